"""MiniMax-Text-01: prefill tp=4 -> decode tp=2.

Emitted by kvplan from minimax-text-01, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile minimax-text-01 --prefill tp=4 --decode tp=2

A page of cache attention on worker 0:
    prefill  |     head 0    |     head 1    |                                     524,288 B
             512 tokens; a KV cache tensor for each of 10 layers
             2 heads, 262,144 B each: [512 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |     head 0    |     head 1    |     head 2    |     head 3    |   1,048,576 B
             512 tokens; a KV cache tensor for each of 10 layers
             4 heads, 262,144 B each: [512 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
A page of cache linear on worker 0:
    prefill  |             state             |                                     524,288 B
             one slot; a KV cache tensor for each of 10 layers of linear.0, one of 7 groups of linear
             state 524,288 B (16 head x 128 row x 128 column x bf16)
    decode   |                             state                             |   1,048,576 B
             one slot; a KV cache tensor for each of 10 layers of linear.0, one of 7 groups of linear
             state 1,048,576 B (32 head x 128 row x 128 column x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 20,971,520 B in 40 descriptors; 2 reads, together 20 spans of all layers for each
        of 2 blocks
    decode workers 0-1, linear.0, linear.1, linear.2, linear.3, linear.4, linear.5, linear.6, each: 10,485,760 B in
        20 descriptors, for any number of tokens; 2 reads, together 20 spans of all layers per state

Layers: 80 (10 store attention, 70 store linear).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it; a state is written whole.
Shared memory: on both sides attention, linear.0, linear.1, linear.2, linear.3, linear.4, linear.5 and linear.6. A
    block is of one of these groups at a time.
Both sides: the page layout of caches attention and linear comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 10
    layers x 4,096 B per token, coordinates (layer, head, token, dim); linear: 70 layers x 2,097,152 B per state,
    coordinates (layer, head, row, column).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=tuple(range(7, 80, 8)), holds=(("head", (0, 2)),),
                 table=ATTENTION),
            Read(worker=1, groups="attention", layers=tuple(range(7, 80, 8)), holds=(("head", (2, 4)),),
                 table=ATTENTION, offset=(0, 524_288)),
            *(Read(worker=0, groups=name, cache="linear", layers=layers, holds=(("head", (0, 16)),), table=LINEAR,
                   first=(plane, plane)) for name, layers, plane in LINEAR_GROUPS),
            *(Read(worker=1, groups=name, cache="linear", layers=layers, holds=(("head", (16, 32)),), table=LINEAR,
                   offset=(0, 524_288), first=(plane, plane)) for name, layers, plane in LINEAR_GROUPS),
        ),
        (  # decode worker 1
            Read(worker=2, groups="attention", layers=tuple(range(7, 80, 8)), holds=(("head", (4, 6)),),
                 table=ATTENTION),
            Read(worker=3, groups="attention", layers=tuple(range(7, 80, 8)), holds=(("head", (6, 8)),),
                 table=ATTENTION, offset=(0, 524_288)),
            *(Read(worker=2, groups=name, cache="linear", layers=layers, holds=(("head", (32, 48)),), table=LINEAR,
                   first=(plane, plane)) for name, layers, plane in LINEAR_GROUPS),
            *(Read(worker=3, groups=name, cache="linear", layers=layers, holds=(("head", (48, 64)),), table=LINEAR,
                   offset=(0, 524_288), first=(plane, plane)) for name, layers, plane in LINEAR_GROUPS),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
LINEAR_GROUPS = (
    ("linear.0", (0, 8, 16, 24, 32, 40, 48, 56, 64, 72), 10),
    ("linear.1", (1, 9, 17, 25, 33, 41, 49, 57, 65, 73), 20),
    ("linear.2", (2, 10, 18, 26, 34, 42, 50, 58, 66, 74), 30),
    ("linear.3", (3, 11, 19, 27, 35, 43, 51, 59, 67, 75), 40),
    ("linear.4", (4, 12, 20, 28, 36, 44, 52, 60, 68, 76), 50),
    ("linear.5", (5, 13, 21, 29, 37, 45, 53, 61, 69, 77), 60),
    ("linear.6", (6, 14, 22, 30, 38, 46, 54, 62, 70, 78), 70),
)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_10_LAYERS = (Loop("layer", count=10, prefill=(1, 0), decode=(1, 0)),)
EACH_10_LAYERS_2_HEADS = (Loop("layer", count=10, prefill=(1, 0), decode=(1, 0)),
                          Loop("head", count=2, prefill=(0, 262_144), decode=(0, 262_144)))
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=524_288, loops=EACH_10_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_10_LAYERS_2_HEADS, token_step=(512, 512)),),
)
LINEAR = Table(per_page=(Nest(("state",), bytes=524_288, loops=EACH_10_LAYERS),))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 512 of block t // 512 on both sides; runs end at multiples of 512.
# linear.0, linear.1, linear.2, linear.3, linear.4, linear.5, linear.6: the slot of a state on both sides.
GROUP_PAIRS = (
    GroupPair("attention", page_rows=512),
    *(GroupPair(name) for name in ("linear.0", "linear.1", "linear.2", "linear.3", "linear.4", "linear.5", "linear.6")),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=4", digest="e94ab4101c64a0cf9568330622185703", groups=(
        Group("attention", "tokens", tokens=512, kernel=512),
        *(Group(name, "state")
          for name in ("linear.0", "linear.1", "linear.2", "linear.3", "linear.4", "linear.5", "linear.6")),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 2)), ("linear", "head", (0, 16)))),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (2, 4)), ("linear", "head", (16, 32)))),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 6)), ("linear", "head", (32, 48)))),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (6, 8)), ("linear", "head", (48, 64)))),
    ))

def decode() -> Side:
    return Side(key="tp=2", digest="dbad31969e31c0e94067006d53a39d13", groups=(
        Group("attention", "tokens", tokens=512, kernel=512),
        *(Group(name, "state")
          for name in ("linear.0", "linear.1", "linear.2", "linear.3", "linear.4", "linear.5", "linear.6")),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)), ("linear", "head", (0, 32)))),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)), ("linear", "head", (32, 64)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_LINEAR_VIEWS = (View("state", "bf16", axes=(("head", 16, 32_768), ("row", 128, 256), ("column", 128, 2))),)
DECODE_LINEAR_VIEWS = (View("state", "bf16", axes=(("head", 32, 32_768), ("row", 128, 256), ("column", 128, 2))),)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(7, 80, 8)), 1),), page_bytes=524_288, views=(
        View("k", "bf16", axes=(("head", 2, 262_144), ("token", 512, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 2, 262_144), ("token", 512, 512), ("dim", 128, 2))),
    )),
    *(Planes("linear", name, first=plane, loops=(("layer", layers, 1),), page_bytes=524_288, views=PREFILL_LINEAR_VIEWS)
      for name, layers, plane in LINEAR_GROUPS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(7, 80, 8)), 1),), page_bytes=1_048_576, views=(
        View("k", "bf16", axes=(("head", 4, 262_144), ("token", 512, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 4, 262_144), ("token", 512, 512), ("dim", 128, 2))),
    )),
    *(Planes("linear", name, first=plane, loops=(("layer", layers, 1),), page_bytes=1_048_576,
             views=DECODE_LINEAR_VIEWS) for name, layers, plane in LINEAR_GROUPS),
)

PLAN = Plan(format=3, title="MiniMax-Text-01", model="minimax-text-01",
            model_digest="b5819e97aa188902e0a69be82d970c18", digest="edd697694112ed41c313c319082732b8",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
