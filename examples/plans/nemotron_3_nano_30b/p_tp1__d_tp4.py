"""NVIDIA Nemotron 3 Nano 30B-A3B: prefill tp=1 -> decode tp=4.

Emitted by kvplan from nemotron-3-nano-30b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile nemotron-3-nano-30b --prefill tp=1 --decode tp=4

A page of cache attention on worker 0:
    prefill  |             head 0            |             head 1            |   2,146,304 B
             2,096 tokens; a KV cache tensor for each of 6 layers
             2 heads, 1,073,152 B each: [2,096 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x
               bf16)]
    decode   |0 |1 |2 |  …  |                                                      540,672 B, by token
             1,056 tokens; a KV cache tensor for each of 6 layers
             1 head, 540,672 B each: [1,056 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
A page of cache mamba on worker 0:
    prefill  |x|b|c|                           ssm                           |   2,134,016 B, blocks 2,146,304 B apart
             one slot; a KV cache tensor for each of 6 layers of mamba.0, one of 4 groups of mamba
             x 24,576 B (64 head x 64 head_dim x 3 tap x bf16)
             b 6,144 B (8 bc_group x 128 state x 3 tap x bf16)
             c 6,144 B (8 bc_group x 128 state x 3 tap x bf16)
             ssm 2,097,152 B (64 head x 64 head_dim x 128 state x f32)
    decode   |x|b|c|   ssm   |                                                     533,504 B, blocks 540,672 B apart
             one slot; a KV cache tensor for each of 6 layers of mamba.0, one of 4 groups of mamba
             x 6,144 B (16 head x 64 head_dim x 3 tap x bf16)
             b 1,536 B (2 bc_group x 128 state x 3 tap x bf16)
             c 1,536 B (2 bc_group x 128 state x 3 tap x bf16)
             ssm 524,288 B (16 head x 64 head_dim x 128 state x f32)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-3, attention: 3,145,728 B in 6 descriptors; 1 read, 6 spans of all layers per run of tokens
    decode workers 0-3, mamba.0, mamba.1, mamba.2, each: 3,201,024 B in 24 descriptors, for any number of tokens; 1
        read, 24 spans of all layers per state
    decode workers 0-3, mamba.3: 2,667,520 B in 20 descriptors, for any number of tokens; 1 read, 20 spans of all
        layers per state

Layers: 52 (6 store attention, 23 store mamba, 23 store nothing).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written; a state is written whole.
Shared memory: on both sides attention, mamba.0, mamba.1, mamba.2 and mamba.3. A block is of one of these groups at
    a time.
Both sides: the page layout of caches attention and mamba comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 6
    layers x 1,024 B per token, coordinates (layer, head, token, dim); mamba: 23 layers x 2,134,016 B per state,
    coordinates (layer, head, head_dim, tap, bc_group, state).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=LAYERS_OF_ATTENTION, holds=(("head", (0, 1)),), table=ATTENTION),
            *(Read(worker=0, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (0, 2)), ("head", (0, 16))), table=MAMBA_OF_6_LAYERS_PART_1_OF_4,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            Read(worker=0, groups="mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (0, 2)), ("head", (0, 16))), table=MAMBA_OF_5_LAYERS_PART_1_OF_4,
                 first=(24, 24)),
        ),
        (  # decode worker 1
            Read(worker=0, groups="attention", layers=LAYERS_OF_ATTENTION, holds=(("head", (0, 1)),), table=ATTENTION),
            *(Read(worker=0, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (2, 4)), ("head", (16, 32))), table=MAMBA_OF_6_LAYERS_PART_2_OF_4,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            Read(worker=0, groups="mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (2, 4)), ("head", (16, 32))), table=MAMBA_OF_5_LAYERS_PART_2_OF_4,
                 first=(24, 24)),
        ),
        (  # decode worker 2
            Read(worker=0, groups="attention", layers=LAYERS_OF_ATTENTION, holds=(("head", (1, 2)),),
                 table=ATTENTION, offset=(1_073_152, 0)),
            *(Read(worker=0, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (4, 6)), ("head", (32, 48))), table=MAMBA_OF_6_LAYERS_PART_3_OF_4,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            Read(worker=0, groups="mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (4, 6)), ("head", (32, 48))), table=MAMBA_OF_5_LAYERS_PART_3_OF_4,
                 first=(24, 24)),
        ),
        (  # decode worker 3
            Read(worker=0, groups="attention", layers=LAYERS_OF_ATTENTION, holds=(("head", (1, 2)),),
                 table=ATTENTION, offset=(1_073_152, 0)),
            *(Read(worker=0, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (6, 8)), ("head", (48, 64))), table=MAMBA_OF_6_LAYERS_PART_4_OF_4,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            Read(worker=0, groups="mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (6, 8)), ("head", (48, 64))), table=MAMBA_OF_5_LAYERS_PART_4_OF_4,
                 first=(24, 24)),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
LAYERS_OF_ATTENTION = (5, 12, 19, 26, 33, 42)
LAYERS_OF_MAMBA_3 = (7, 16, 25, 35, 44)
MAMBA_GROUPS = (
    ("mamba.0", (0, 9, 18, 28, 37, 46), 6),
    ("mamba.1", (2, 11, 21, 30, 39, 48), 12),
    ("mamba.2", (4, 14, 23, 32, 41, 50), 18),
)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_6_LAYERS = (Loop("layer", count=6, prefill=(1, 0), decode=(1, 0)),)
EACH_5_LAYERS = (Loop("layer", count=5, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(per_token=(Nest(("k", "v"), bytes=512, loops=EACH_6_LAYERS, token_step=(512, 512)),))
MAMBA_OF_6_LAYERS_PART_1_OF_4 = Table(per_page=(
    Nest(("x",), bytes=6144, loops=EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 24_576), decode=(0, 6144), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 30_720), decode=(0, 7680), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 36_864), decode=(0, 9216), bytes=524_288, loops=EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_1_OF_4 = Table(per_page=(
    Nest(("x",), bytes=6144, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 24_576), decode=(0, 6144), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 30_720), decode=(0, 7680), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(0, 36_864), decode=(0, 9216), bytes=524_288, loops=EACH_5_LAYERS),
))
MAMBA_OF_6_LAYERS_PART_2_OF_4 = Table(per_page=(
    Nest(("x",), prefill=(0, 6144), bytes=6144, loops=EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 26_112), decode=(0, 6144), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 32_256), decode=(0, 7680), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 561_152), decode=(0, 9216), bytes=524_288, loops=EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_2_OF_4 = Table(per_page=(
    Nest(("x",), prefill=(0, 6144), bytes=6144, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 26_112), decode=(0, 6144), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 32_256), decode=(0, 7680), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(0, 561_152), decode=(0, 9216), bytes=524_288, loops=EACH_5_LAYERS),
))
MAMBA_OF_6_LAYERS_PART_3_OF_4 = Table(per_page=(
    Nest(("x",), prefill=(0, 12_288), bytes=6144, loops=EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 27_648), decode=(0, 6144), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 33_792), decode=(0, 7680), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 1_085_440), decode=(0, 9216), bytes=524_288, loops=EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_3_OF_4 = Table(per_page=(
    Nest(("x",), prefill=(0, 12_288), bytes=6144, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 27_648), decode=(0, 6144), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 33_792), decode=(0, 7680), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(0, 1_085_440), decode=(0, 9216), bytes=524_288, loops=EACH_5_LAYERS),
))
MAMBA_OF_6_LAYERS_PART_4_OF_4 = Table(per_page=(
    Nest(("x",), prefill=(0, 18_432), bytes=6144, loops=EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 29_184), decode=(0, 6144), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 35_328), decode=(0, 7680), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 1_609_728), decode=(0, 9216), bytes=524_288, loops=EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_4_OF_4 = Table(per_page=(
    Nest(("x",), prefill=(0, 18_432), bytes=6144, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 29_184), decode=(0, 6144), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 35_328), decode=(0, 7680), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(0, 1_609_728), decode=(0, 9216), bytes=524_288, loops=EACH_5_LAYERS),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 2096 of block t // 2096 of prefill, at t % 1056 of block t // 1056 of decode; runs end at
#   multiples of 1056 and 2096.
# mamba.0, mamba.1, mamba.2, mamba.3: the slot of a state on both sides.
GROUP_PAIRS = (*(GroupPair(name) for name in ("attention", "mamba.0", "mamba.1", "mamba.2", "mamba.3")),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=1", digest="96aa3d0a43277113bc964f80ffe8672e", groups=(
        Group("attention", "tokens", tokens=2096, kernel=2096),
        *(Group(name, "state") for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3")),
    ), workers=(
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (0, 2)), ("mamba", "bc_group", (0, 8)), ("mamba", "head", (0, 64)))),
    ))

def decode() -> Side:
    return Side(key="tp=4", digest="8dcb340dc5a225089efdaa1953a4a6e4", groups=(
        Group("attention", "tokens", tokens=1056, kernel=1056),
        *(Group(name, "state") for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3")),
    ), workers=(
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (0, 1)), ("mamba", "bc_group", (0, 2)), ("mamba", "head", (0, 16)))),
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (0, 1)), ("mamba", "bc_group", (2, 4)), ("mamba", "head", (16, 32)))),
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (1, 2)), ("mamba", "bc_group", (4, 6)), ("mamba", "head", (32, 48)))),
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (1, 2)), ("mamba", "bc_group", (6, 8)), ("mamba", "head", (48, 64)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 64, 384), ("head_dim", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=24_576, axes=(("bc_group", 8, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=30_720, axes=(("bc_group", 8, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", offset=36_864, axes=(("head", 64, 32_768), ("head_dim", 64, 512), ("state", 128, 4))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 16, 384), ("head_dim", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=6144, axes=(("bc_group", 2, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=7680, axes=(("bc_group", 2, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", offset=9216, axes=(("head", 16, 32_768), ("head_dim", 64, 512), ("state", 128, 4))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=2_146_304, views=(
        View("k", "bf16", axes=(("head", 2, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 2, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page_bytes=2_134_016, stride=2_146_304,
             views=PREFILL_MAMBA_VIEWS) for name, layers, plane in MAMBA_GROUPS),
    Planes("mamba", "mamba.3", first=24, loops=(("layer", LAYERS_OF_MAMBA_3, 1),), page_bytes=2_134_016,
           stride=2_146_304, views=PREFILL_MAMBA_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=540_672, views=(
        View("k", "bf16", axes=(("head", 1, 540_672), ("token", 1056, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 1, 540_672), ("token", 1056, 512), ("dim", 128, 2))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page_bytes=533_504, stride=540_672,
             views=DECODE_MAMBA_VIEWS) for name, layers, plane in MAMBA_GROUPS),
    Planes("mamba", "mamba.3", first=24, loops=(("layer", LAYERS_OF_MAMBA_3, 1),), page_bytes=533_504,
           stride=540_672, views=DECODE_MAMBA_VIEWS),
)

PLAN = Plan(format=3, title="NVIDIA Nemotron 3 Nano 30B-A3B", model="nemotron-3-nano-30b",
            model_digest="779acf0597d9330ac5f5c2b67a878310", digest="8f803bd4d1f11a57ec56ca57c1011fd6",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
