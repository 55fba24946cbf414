"""Kimi K2 with an EAGLE-3 draft: prefill tp=2,draft_tokens=3 -> decode tp=4,draft_tokens=3.

Emitted by kvplan from kimi-k2-eagle3, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile kimi-k2-eagle3 --prefill tp=2,draft_tokens=3 --decode tp=4,draft_tokens=3

A page of cache attention on worker 0:
    both     |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a KV cache tensor for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
A page of cache draft on worker 0:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 31   |     262,144 B
             16 tokens; a KV cache tensor for each of 1 layer
             32 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |  0  |  1  |  2  |  …  |  15 |                                       131,072 B, by head
             16 tokens; a KV cache tensor for each of 1 layer
             16 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-3, attention+draft: 80,347,136 B in 3,968 descriptors; 2 reads, together 62 spans of all layers
        for each of 64 blocks

Layers: 61 and 1 draft (1 stores draft, 61 store attention).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
Both sides: the page layout of caches attention and draft comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 61
    layers x 1,152 B per token, coordinates (layer, token, dim, turn); draft: 1 layers x 32,768 B per token,
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
            Read(worker=0, groups="attention+draft", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=0, groups="attention+draft", cache="draft", layers=(61,), holds=(("head", (0, 16)),),
                 table=DRAFT, first=(61, 61)),
        ),
        (  # decode worker 1
            Read(worker=0, groups="attention+draft", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=0, groups="attention+draft", cache="draft", layers=(61,), holds=(("head", (16, 32)),),
                 table=DRAFT, first=(61, 61), offset=(131_072, 0)),
        ),
        (  # decode worker 2
            Read(worker=1, groups="attention+draft", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=1, groups="attention+draft", cache="draft", layers=(61,), holds=(("head", (32, 48)),),
                 table=DRAFT, first=(61, 61)),
        ),
        (  # decode worker 3
            Read(worker=1, groups="attention+draft", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=1, groups="attention+draft", cache="draft", layers=(61,), holds=(("head", (48, 64)),),
                 table=DRAFT, first=(61, 61), offset=(131_072, 0)),
        ),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
EACH_16_HEADS = (Loop("head", count=16, prefill=(0, 8192), decode=(0, 8192)),)
ATTENTION = Table(
    per_page=(Nest(("latent", "rope"), bytes=18_432, loops=EACH_61_LAYERS),),
    per_token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_61_LAYERS, token_step=(1152, 1152)),),
)
DRAFT = Table(
    per_page=(Nest(("k", "v"), bytes=131_072),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_16_HEADS, token_step=(512, 512)),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention+draft: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
GROUP_PAIRS = (GroupPair("attention+draft", page_rows=16),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="tp=2,draft_tokens=3", digest="d8b971cad36e9801fac3c6ded271ed0d", groups=(
        Group("attention+draft", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("draft", "head", (0, 32)),)),
        Worker(PREFILL_PLANES, holds=(("draft", "head", (32, 64)),)),
    ))

def decode() -> Side:
    return Side(key="tp=4,draft_tokens=3", digest="8c5c4aab88bf8659630929274328db9e", groups=(
        Group("attention+draft", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("draft", "head", (0, 16)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (16, 32)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (32, 48)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (48, 64)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_PLANES = (
    Planes("attention", "attention+draft", loops=(("layer", tuple(range(61)), 1),), page_bytes=18_432, views=(
        View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
        View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
    )),
    Planes("draft", "attention+draft", first=61, loops=(("layer", (61,), 1),), page_bytes=262_144, views=(
        View("k", "bf16", axes=(("head", 32, 8192), ("token", 16, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 32, 8192), ("token", 16, 512), ("dim", 128, 2))),
    )),
)
DECODE_PLANES = (
    Planes("attention", "attention+draft", loops=(("layer", tuple(range(61)), 1),), page_bytes=18_432, views=(
        View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
        View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
    )),
    Planes("draft", "attention+draft", first=61, loops=(("layer", (61,), 1),), page_bytes=131_072, views=(
        View("k", "bf16", axes=(("head", 16, 8192), ("token", 16, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 16, 8192), ("token", 16, 512), ("dim", 128, 2))),
    )),
)

PLAN = Plan(format=3, title="Kimi K2 with an EAGLE-3 draft", model="kimi-k2-eagle3",
            model_digest="274f4f09cbd5aa1458294b67f412a7fc", digest="28d1abf9c8ffc7ee9697d7bca1d53eed",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
