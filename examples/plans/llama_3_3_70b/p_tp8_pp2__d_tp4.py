"""Llama 3.3 70B: prefill tp=8,pp=2 -> decode tp=4.

Emitted by kvplan from llama-3.3-70b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile llama-3.3-70b --prefill tp=8,pp=2 --decode tp=4

A page of cache attention on worker 0:
    prefill  |  0  |  1  |  2  |  …  |  15 |                                         8,192 B, by token
             16 tokens; a KV cache tensor for each of 40 layers
             1 head, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |             head 0            |             head 1            |      16,384 B
             16 tokens; a KV cache tensor for each of 80 layers
             2 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-3, attention: 83,886,080 B in 10,240 descriptors; 4 reads, together 160 spans of all layers for
        each of 64 blocks

Layers: 80 (all store attention).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
Both sides: the page layout of cache attention comes from vllm's engine file; not yet verified on a running engine:
    the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 80
    layers x 4,096 B per token, coordinates (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=tuple(range(40)), holds=(("head", (0, 1)),), table=ATTENTION),
            Read(worker=1, groups="attention", layers=tuple(range(40)), holds=(("head", (1, 2)),), table=ATTENTION,
                 offset=(0, 8192)),
            Read(worker=8, groups="attention", layers=tuple(range(40, 80)), holds=(("head", (0, 1)),),
                 table=ATTENTION, first=(0, 40)),
            Read(worker=9, groups="attention", layers=tuple(range(40, 80)), holds=(("head", (1, 2)),),
                 table=ATTENTION, first=(0, 40), offset=(0, 8192)),
        ),
        (  # decode worker 1
            Read(worker=2, groups="attention", layers=tuple(range(40)), holds=(("head", (2, 3)),), table=ATTENTION),
            Read(worker=3, groups="attention", layers=tuple(range(40)), holds=(("head", (3, 4)),), table=ATTENTION,
                 offset=(0, 8192)),
            Read(worker=10, groups="attention", layers=tuple(range(40, 80)), holds=(("head", (2, 3)),),
                 table=ATTENTION, first=(0, 40)),
            Read(worker=11, groups="attention", layers=tuple(range(40, 80)), holds=(("head", (3, 4)),),
                 table=ATTENTION, first=(0, 40), offset=(0, 8192)),
        ),
        (  # decode worker 2
            Read(worker=4, groups="attention", layers=tuple(range(40)), holds=(("head", (4, 5)),), table=ATTENTION),
            Read(worker=5, groups="attention", layers=tuple(range(40)), holds=(("head", (5, 6)),), table=ATTENTION,
                 offset=(0, 8192)),
            Read(worker=12, groups="attention", layers=tuple(range(40, 80)), holds=(("head", (4, 5)),),
                 table=ATTENTION, first=(0, 40)),
            Read(worker=13, groups="attention", layers=tuple(range(40, 80)), holds=(("head", (5, 6)),),
                 table=ATTENTION, first=(0, 40), offset=(0, 8192)),
        ),
        (  # decode worker 3
            Read(worker=6, groups="attention", layers=tuple(range(40)), holds=(("head", (6, 7)),), table=ATTENTION),
            Read(worker=7, groups="attention", layers=tuple(range(40)), holds=(("head", (7, 8)),), table=ATTENTION,
                 offset=(0, 8192)),
            Read(worker=14, groups="attention", layers=tuple(range(40, 80)), holds=(("head", (6, 7)),),
                 table=ATTENTION, first=(0, 40)),
            Read(worker=15, groups="attention", layers=tuple(range(40, 80)), holds=(("head", (7, 8)),),
                 table=ATTENTION, first=(0, 40), offset=(0, 8192)),
        ),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_40_LAYERS = (Loop("layer", count=40, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=8192, loops=EACH_40_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_40_LAYERS, token_step=(512, 512)),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
GROUP_PAIRS = (GroupPair("attention", page_rows=16),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="tp=8,pp=2", digest="339d0a9de5b6a3f3904e3b59f4537c92", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (7, 8)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (7, 8)),)),
    ))

def decode() -> Side:
    return Side(key="tp=4", digest="e70a45a75e07ed2325a04e10313cbceb", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 2)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (2, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 6)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (6, 8)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
PREFILL_0_TO_7_PLANES = (Planes("attention", loops=(("layer", tuple(range(40)), 1),), page_bytes=8192,
                                views=PREFILL_ATTENTION_VIEWS),)
PREFILL_8_TO_15_PLANES = (Planes("attention", loops=(("layer", tuple(range(40, 80)), 1),), page_bytes=8192,
                                 views=PREFILL_ATTENTION_VIEWS),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(80)), 1),), page_bytes=16_384, views=(
    View("k", "bf16", axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=3, title="Llama 3.3 70B", model="llama-3.3-70b", model_digest="83b4e9c13dfcee00d83c0fae985c50ef",
            digest="e1b4e28affdb7cc6bf58ab57e6f3e943", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
