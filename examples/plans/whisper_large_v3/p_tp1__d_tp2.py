"""Whisper large v3: prefill tp=1 -> decode tp=2.

Emitted by kvplan from whisper-large-v3, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile whisper-large-v3 --prefill tp=1 --decode tp=2

A page of cache attention on worker 0:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 19   |      81,920 B
             16 tokens; a KV cache tensor for each of 32 layers
             20 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]
    decode   |  0  |  1  |  2  |  …  |  9  |                                        40,960 B, by head
             16 tokens; a KV cache tensor for each of 32 layers
             10 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]
A page of cache cross on worker 0:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 19   |      81,920 B
             16 tokens; a KV cache tensor for each of 32 layers
             20 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]
    decode   |  0  |  1  |  2  |  …  |  9  |                                        40,960 B, by head
             16 tokens; a KV cache tensor for each of 32 layers
             10 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention, cross, each: 83,886,080 B in 2,048 descriptors; 1 read, 32 spans of all layers
        for each of 64 blocks

Layers: 32 (all store attention, all store cross).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
cross: tokens are those of 'encoder'.
Shared memory: on both sides attention and cross. A block is of one of these groups at a time.
Both sides: the page layout of caches attention and cross comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 32
    layers x 5,120 B per token, coordinates (layer, head, token, dim); cross: 32 layers x 5,120 B per token,
    coordinates (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=tuple(range(32)), holds=(("head", (0, 10)),),
                 table=ATTENTION_AND_CROSS),
            Read(worker=0, groups="cross", layers=tuple(range(32)), holds=(("head", (0, 10)),),
                 table=ATTENTION_AND_CROSS, first=(32, 32)),
        ),
        (  # decode worker 1
            Read(worker=0, groups="attention", layers=tuple(range(32)), holds=(("head", (10, 20)),),
                 table=ATTENTION_AND_CROSS, offset=(40_960, 0)),
            Read(worker=0, groups="cross", layers=tuple(range(32)), holds=(("head", (10, 20)),),
                 table=ATTENTION_AND_CROSS, first=(32, 32), offset=(40_960, 0)),
        ),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_32_LAYERS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),)
EACH_32_LAYERS_10_HEADS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                           Loop("head", count=10, prefill=(0, 4096), decode=(0, 4096)))
ATTENTION_AND_CROSS = Table(
    per_page=(Nest(("k", "v"), bytes=40_960, loops=EACH_32_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=256, loops=EACH_32_LAYERS_10_HEADS, token_step=(256, 256)),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention, cross: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
GROUP_PAIRS = (GroupPair("attention", page_rows=16), GroupPair("cross", page_rows=16))

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=1", digest="3502c539d76f97ad77b3b45f8984c299", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("cross", "tokens", tokens=16, kernel=16, length="encoder"),
    ), workers=(Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 20)), ("cross", "head", (0, 20)))),))

def decode() -> Side:
    return Side(key="tp=2", digest="d503b6a91f340b60a2cb362f4b2ee7fe", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("cross", "tokens", tokens=16, kernel=16, length="encoder"),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 10)), ("cross", "head", (0, 10)))),
        Worker(DECODE_PLANES, holds=(("attention", "head", (10, 20)), ("cross", "head", (10, 20)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_ATTENTION_AND_CROSS_VIEWS = (
    View("k", "f16", axes=(("head", 20, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "f16", offset=128, axes=(("head", 20, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
DECODE_ATTENTION_AND_CROSS_VIEWS = (
    View("k", "f16", axes=(("head", 10, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "f16", offset=128, axes=(("head", 10, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=81_920,
           views=PREFILL_ATTENTION_AND_CROSS_VIEWS),
    Planes("cross", first=32, loops=(("layer", tuple(range(32)), 1),), page_bytes=81_920,
           views=PREFILL_ATTENTION_AND_CROSS_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=40_960,
           views=DECODE_ATTENTION_AND_CROSS_VIEWS),
    Planes("cross", first=32, loops=(("layer", tuple(range(32)), 1),), page_bytes=40_960,
           views=DECODE_ATTENTION_AND_CROSS_VIEWS),
)

PLAN = Plan(format=3, title="Whisper large v3", model="whisper-large-v3",
            model_digest="08ae06b050c4a16bbaf77e0d05992fc3", digest="9505c61e90d4bbfb3fa1510c2279aa0b",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
