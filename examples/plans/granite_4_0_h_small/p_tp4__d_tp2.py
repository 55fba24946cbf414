"""IBM Granite 4.0 H Small: prefill tp=4 -> decode tp=2.

Emitted by kvplan from granite-4.0-h-small, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile granite-4.0-h-small --prefill tp=4 --decode tp=2

A page of cache attention on worker 0:
    prefill  |     head 0    |     head 1    |                                     540,672 B
             528 tokens; a KV cache tensor for each of 4 layers
             2 heads, 270,336 B each: [528 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |     head 0    |     head 1    |     head 2    |     head 3    |   1,081,344 B
             528 tokens; a KV cache tensor for each of 4 layers
             4 heads, 270,336 B each: [528 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
A page of cache mamba on worker 0:
    prefill  |x|b|c|           ssm           |                                     538,112 B, blocks 540,672 B apart
             one slot; a KV cache tensor for each of 4 layers of mamba.0, one of 9 groups of mamba
             x 12,288 B (32 head x 64 hd x 3 tap x bf16)
             b 768 B (1 group x 128 st x 3 tap x bf16)
             c 768 B (1 group x 128 st x 3 tap x bf16)
             ssm 524,288 B (32 head x 64 hd x 128 st x bf16)
    decode   |x|b|c|                           ssm                           |   1,074,688 B, blocks 1,081,344 B apart
             one slot; a KV cache tensor for each of 4 layers of mamba.0, one of 9 groups of mamba
             x 24,576 B (64 head x 64 hd x 3 tap x bf16)
             b 768 B (1 group x 128 st x 3 tap x bf16)
             c 768 B (1 group x 128 st x 3 tap x bf16)
             ssm 1,048,576 B (64 head x 64 hd x 128 st x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 8,388,608 B in 24 descriptors; 2 reads, together 8 spans of all layers for a
        whole block, and 16 for the rest
    decode workers 0-1, mamba.0, mamba.1, mamba.2, mamba.3, mamba.4, mamba.5, mamba.6, mamba.7, mamba.8, each:
        4,298,752 B in 16 descriptors, for any number of tokens; 2 reads, together 16 spans of all layers per state

Layers: 40 (4 store attention, 36 store mamba).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it; a state is written whole.
Both sides: the page layout of caches attention and mamba comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 4
    layers x 4,096 B per token, coordinates (layer, head, token, dim); mamba: 36 layers x 2,147,840 B per state,
    coordinates (layer, head, hd, tap, group, st).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `pair` is one of PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill, decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, pair="attention", layers=tuple(range(5, 36, 10)), holds=(("head", (0, 2)),),
                 table=ATTENTION),
            Read(worker=1, pair="attention", layers=tuple(range(5, 36, 10)), holds=(("head", (2, 4)),),
                 table=ATTENTION, offset=(0, 540_672)),
            *(Read(worker=0, pair=name, cache="mamba", layers=layers, holds=(("group", (0, 1)), ("head", (0, 32))),
                   table=MAMBA_LOWER, first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            *(Read(worker=1, pair=name, cache="mamba", layers=layers, holds=(("head", (32, 64)),), table=MAMBA_UPPER,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
        ),
        (  # decode worker 1
            Read(worker=2, pair="attention", layers=tuple(range(5, 36, 10)), holds=(("head", (4, 6)),),
                 table=ATTENTION),
            Read(worker=3, pair="attention", layers=tuple(range(5, 36, 10)), holds=(("head", (6, 8)),),
                 table=ATTENTION, offset=(0, 540_672)),
            *(Read(worker=2, pair=name, cache="mamba", layers=layers, holds=(("group", (0, 1)), ("head", (64, 96))),
                   table=MAMBA_LOWER, first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            *(Read(worker=3, pair=name, cache="mamba", layers=layers, holds=(("head", (96, 128)),),
                   table=MAMBA_UPPER, first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
MAMBA_GROUPS = (
    ("mamba.0", (0, 10, 20, 30), 4),
    ("mamba.1", (1, 11, 21, 31), 8),
    ("mamba.2", (2, 12, 22, 32), 12),
    ("mamba.3", (3, 13, 23, 33), 16),
    ("mamba.4", (4, 14, 24, 34), 20),
    ("mamba.5", (6, 16, 26, 36), 24),
    ("mamba.6", (7, 17, 27, 37), 28),
    ("mamba.7", (8, 18, 28, 38), 32),
    ("mamba.8", (9, 19, 29, 39), 36),
)

# What a read copies for one block (`page` of a Table), or for each token of a run (`token`). A Nest is a span of
# `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token` of a Nest is the step from one token to the next on each side; if both steps equal `bytes`,
# all tokens of a run are one span.
EACH_4_LAYERS = (Loop("layer", count=4, prefill=(1, 0), decode=(1, 0)),)
EACH_4_LAYERS_2_HEADS = (Loop("layer", count=4, prefill=(1, 0), decode=(1, 0)),
                         Loop("head", count=2, prefill=(0, 270_336), decode=(0, 270_336)))
ATTENTION = Table(
    page=(Nest(("k", "v"), bytes=540_672, loops=EACH_4_LAYERS),),
    token=(Nest(("k", "v"), bytes=512, loops=EACH_4_LAYERS_2_HEADS, token=(512, 512)),),
)
MAMBA_LOWER = Table(page=(
    Nest(("x",), bytes=12_288, loops=EACH_4_LAYERS),
    Nest(("b", "c", "ssm"), prefill=(0, 12_288), decode=(0, 24_576), bytes=525_824, loops=EACH_4_LAYERS),
))
MAMBA_UPPER = Table(page=(
    Nest(("x",), decode=(0, 12_288), bytes=12_288, loops=EACH_4_LAYERS),
    Nest(("ssm",), prefill=(0, 13_824), decode=(0, 550_400), bytes=524_288, loops=EACH_4_LAYERS),
))

# Which groups of the two sides match: a Pair is one of each. Its `page` is the number of token rows in a page, if both
# sides have the same; without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 528 of block t // 528 on both sides; runs end at multiples of 528.
# mamba.0, mamba.1, mamba.2, mamba.3, mamba.4, mamba.5, mamba.6, mamba.7, mamba.8: the slot of a state on both sides.
PAIRS = (
    Pair("attention", page=528),
    *(Pair(name)
      for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3", "mamba.4", "mamba.5", "mamba.6", "mamba.7", "mamba.8")),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="tp=4", digest="8dc8cce40d29d4d21393fd4b4fb51576", groups=(
        Group("attention", "tokens", tokens=528, kernel=528),
        *(Group(name, "state")
          for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3", "mamba.4", "mamba.5", "mamba.6", "mamba.7",
                       "mamba.8")),
    ), workers=(
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (0, 2)), ("mamba", "group", (0, 1)), ("mamba", "head", (0, 32)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (2, 4)), ("mamba", "group", (0, 1)), ("mamba", "head", (32, 64)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (4, 6)), ("mamba", "group", (0, 1)), ("mamba", "head", (64, 96)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (6, 8)), ("mamba", "group", (0, 1)), ("mamba", "head", (96, 128)))),
    ))

def decode() -> Side:
    return Side(key="tp=2", digest="06241100d73a6774cd5de22e8dd85c62", groups=(
        Group("attention", "tokens", tokens=528, kernel=528),
        *(Group(name, "state")
          for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3", "mamba.4", "mamba.5", "mamba.6", "mamba.7",
                       "mamba.8")),
    ), workers=(
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (0, 4)), ("mamba", "group", (0, 1)), ("mamba", "head", (0, 64)))),
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (4, 8)), ("mamba", "group", (0, 1)), ("mamba", "head", (64, 128)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). Pages are `stride` bytes apart; by default
# `page` bytes, the size of a page. `kvplan explain WORD` explains the name of an axis.
PREFILL_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 32, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=12_288, axes=(("group", 1, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=13_056, axes=(("group", 1, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "bf16", offset=13_824, axes=(("head", 32, 16_384), ("hd", 64, 256), ("st", 128, 2))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 64, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=24_576, axes=(("group", 1, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=25_344, axes=(("group", 1, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "bf16", offset=26_112, axes=(("head", 64, 16_384), ("hd", 64, 256), ("st", 128, 2))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(5, 36, 10)), 1),), page=540_672, views=(
        View("k", "bf16", axes=(("head", 2, 270_336), ("token", 528, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 2, 270_336), ("token", 528, 512), ("dim", 128, 2))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page=538_112, stride=540_672,
             views=PREFILL_MAMBA_VIEWS) for name, layers, plane in MAMBA_GROUPS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(5, 36, 10)), 1),), page=1_081_344, views=(
        View("k", "bf16", axes=(("head", 4, 270_336), ("token", 528, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 4, 270_336), ("token", 528, 512), ("dim", 128, 2))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page=1_074_688, stride=1_081_344,
             views=DECODE_MAMBA_VIEWS) for name, layers, plane in MAMBA_GROUPS),
)

PLAN = Plan(format=2, title="IBM Granite 4.0 H Small", model="granite-4.0-h-small",
            model_digest="768c01a2e3579a4c2fab7cf8d8e62476", digest="2c02d61df2ff1114fc936d9413a83e12",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(), pairs=PAIRS,
            reads=reads())
