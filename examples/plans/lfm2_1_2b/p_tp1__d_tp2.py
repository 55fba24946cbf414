"""LFM2 1.2B: prefill tp=1 -> decode tp=2.

Emitted by kvplan from lfm2-1.2b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains it.
To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile lfm2-1.2b --prefill tp=1 --decode tp=2

A page of cache attention on worker 0:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|      32,768 B
             16 tokens; a KV cache tensor for each of 6 layers
             8 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v 128 B (64 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      16,384 B
             16 tokens; a KV cache tensor for each of 6 layers
             4 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v 128 B (64 dim x bf16)]
A page of cache conv on worker 0:
    prefill  |                               x                               |       8,192 B, blocks 32,768 B apart
             one slot; a KV cache tensor for each of 5 layers of conv.0, one of 2 groups of conv
             x 8,192 B (2,048 channel x 2 tap x bf16)
    decode   |               x               |                                       4,096 B, blocks 16,384 B apart
             one slot; a KV cache tensor for each of 5 layers of conv.0, one of 2 groups of conv
             x 4,096 B (1,024 channel x 2 tap x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 6,291,456 B in 384 descriptors; 1 read, 6 spans of all layers for each of 64
        blocks
    decode workers 0-1, conv.0, conv.1, each: 20,480 B in 5 descriptors, for any number of tokens; 1 read, 5 spans
        of all layers per state

Layers: 16 (6 store attention, 10 store conv).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it; a state is written whole.
Shared memory: on both sides attention, conv.0 and conv.1. A block is of one of these groups at a time.
Both sides: the page layout of caches attention and conv comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 6
    layers x 2,048 B per token, coordinates (layer, head, token, dim); conv: 10 layers x 8,192 B per state,
    coordinates (layer, channel, tap).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=LAYERS_OF_ATTENTION, holds=(("head", (0, 4)),), table=ATTENTION),
            Read(worker=0, groups="conv.0", cache="conv", layers=LAYERS_OF_CONV_0, holds=(("channel", (0, 1024)),),
                 table=CONV, first=(6, 6)),
            Read(worker=0, groups="conv.1", cache="conv", layers=LAYERS_OF_CONV_1, holds=(("channel", (0, 1024)),),
                 table=CONV, first=(11, 11)),
        ),
        (  # decode worker 1
            Read(worker=0, groups="attention", layers=LAYERS_OF_ATTENTION, holds=(("head", (4, 8)),),
                 table=ATTENTION, offset=(16_384, 0)),
            Read(worker=0, groups="conv.0", cache="conv", layers=LAYERS_OF_CONV_0,
                 holds=(("channel", (1024, 2048)),), table=CONV, first=(6, 6), offset=(4096, 0)),
            Read(worker=0, groups="conv.1", cache="conv", layers=LAYERS_OF_CONV_1,
                 holds=(("channel", (1024, 2048)),), table=CONV, first=(11, 11), offset=(4096, 0)),
        ),
    )

# Layers, numbered as in the whole model.
LAYERS_OF_ATTENTION = (2, 5, 8, 10, 12, 14)
LAYERS_OF_CONV_0 = (0, 3, 6, 9, 13)
LAYERS_OF_CONV_1 = (1, 4, 7, 11, 15)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_6_LAYERS = (Loop("layer", count=6, prefill=(1, 0), decode=(1, 0)),)
EACH_6_LAYERS_4_HEADS = (Loop("layer", count=6, prefill=(1, 0), decode=(1, 0)),
                         Loop("head", count=4, prefill=(0, 4096), decode=(0, 4096)))
EACH_5_LAYERS = (Loop("layer", count=5, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=16_384, loops=EACH_6_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=256, loops=EACH_6_LAYERS_4_HEADS, token_step=(256, 256)),),
)
CONV = Table(per_page=(Nest(("x",), bytes=4096, loops=EACH_5_LAYERS),))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
# conv.0, conv.1: the slot of a state on both sides.
GROUP_PAIRS = (GroupPair("attention", page_rows=16), GroupPair("conv.0"), GroupPair("conv.1"))

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(
        key="tp=1", digest="aac6999991b7ead46e151596eeb41582",
        groups=(Group("attention", "tokens", tokens=16, kernel=16), Group("conv.0", "state"), Group("conv.1", "state")),
        workers=(Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 8)), ("conv", "channel", (0, 2048)))),),
    )

def decode() -> Side:
    return Side(key="tp=2", digest="2c2fdf24e3accf07e18fbaeb0957041e", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("conv.0", "state"),
        Group("conv.1", "state"),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)), ("conv", "channel", (0, 1024)))),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)), ("conv", "channel", (1024, 2048)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_CONV_VIEWS = (View("x", "bf16", axes=(("channel", 2048, 4), ("tap", 2, 2))),)
DECODE_CONV_VIEWS = (View("x", "bf16", axes=(("channel", 1024, 4), ("tap", 2, 2))),)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=32_768, views=(
        View("k", "bf16", axes=(("head", 8, 4096), ("token", 16, 256), ("dim", 64, 2))),
        View("v", "bf16", offset=128, axes=(("head", 8, 4096), ("token", 16, 256), ("dim", 64, 2))),
    )),
    Planes("conv", "conv.0", first=6, loops=(("layer", LAYERS_OF_CONV_0, 1),), page_bytes=8192, stride=32_768,
           views=PREFILL_CONV_VIEWS),
    Planes("conv", "conv.1", first=11, loops=(("layer", LAYERS_OF_CONV_1, 1),), page_bytes=8192, stride=32_768,
           views=PREFILL_CONV_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=16_384, views=(
        View("k", "bf16", axes=(("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
        View("v", "bf16", offset=128, axes=(("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
    )),
    Planes("conv", "conv.0", first=6, loops=(("layer", LAYERS_OF_CONV_0, 1),), page_bytes=4096, stride=16_384,
           views=DECODE_CONV_VIEWS),
    Planes("conv", "conv.1", first=11, loops=(("layer", LAYERS_OF_CONV_1, 1),), page_bytes=4096, stride=16_384,
           views=DECODE_CONV_VIEWS),
)

PLAN = Plan(format=3, title="LFM2 1.2B", model="lfm2-1.2b", model_digest="4885bed7cabb0ba61f31749358e2019e",
            digest="2d0f3d55f57b211090ecd5a1b81dbe51", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
