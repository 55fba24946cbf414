r"""NVIDIA Nemotron 3 Nano 30B-A3B: prefill tp=4,kv_dtype=fp8,kernel_block=16 -> decode
tp=1,kv_dtype=fp8,kernel_block=16.

Emitted by kvplan from nemotron-3-nano-30b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile nemotron-3-nano-30b \
        --prefill tp=4,kv_dtype=fp8,kernel_block=16 \
        --decode tp=1,kv_dtype=fp8,kernel_block=16

A page of cache attention on worker 0:
    prefill  |  0  |  1  |  2  |  …  |  15 |                                         4,096 B, by token
             16 tokens, 131 of them make a logical block of 2,096; a KV cache tensor for each of 6 layers
             1 head, 4,096 B each: [16 tokens, 256 B each: k 128 B (128 dim x fp8) | v 128 B (128 dim x fp8)]
    decode   |             head 0            |             head 1            |       8,192 B
             16 tokens, 261 of them make a logical block of 4,176; a KV cache tensor for each of 6 layers
             2 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (128 dim x fp8) | v 128 B (128 dim x fp8)]
A page of cache mamba on worker 0:
    prefill  |x|b|c|   ssm   |                                                     533,504 B, blocks 536,576 B apart
             one slot; a KV cache tensor for each of 6 layers of mamba.0, one of 4 groups of mamba
             x 6,144 B (16 head x 64 head_dim x 3 tap x bf16)
             b 1,536 B (2 bc_group x 128 state x 3 tap x bf16)
             c 1,536 B (2 bc_group x 128 state x 3 tap x bf16)
             ssm 524,288 B (16 head x 64 head_dim x 128 state x f32)
    decode   |x|b|c|                           ssm                           |   2,134,016 B, blocks 2,138,112 B apart
             one slot; a KV cache tensor for each of 6 layers of mamba.0, one of 4 groups of mamba
             x 24,576 B (64 head x 64 head_dim x 3 tap x bf16)
             b 6,144 B (8 bc_group x 128 state x 3 tap x bf16)
             c 6,144 B (8 bc_group x 128 state x 3 tap x bf16)
             ssm 2,097,152 B (64 head x 64 head_dim x 128 state x f32)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode worker 0, attention: 3,145,728 B in 768 descriptors; 2 reads, together 12 spans of all layers for each of
        64 blocks
    decode worker 0, mamba.0, mamba.1, mamba.2, each: 12,804,096 B in 96 descriptors, for any number of tokens; 4
        reads, together 96 spans of all layers per state
    decode worker 0, mamba.3: 10,670,080 B in 80 descriptors, for any number of tokens; 4 reads, together 80 spans
        of all layers per state

Layers: 52 (6 store attention, 23 store mamba, 23 store nothing).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written; a state is written whole.
Shared memory: on both sides attention, mamba.0, mamba.1, mamba.2 and mamba.3. A block is of one of these groups at
    a time.
Prefill: kernel_block=16 is given; the engine would derive 2096.
Both sides: the page layout of caches attention and mamba comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Decode: kernel_block=16 is given; the engine would derive 4176.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 6
    layers x 512 B per token, coordinates (layer, head, token, dim); mamba: 23 layers x 2,134,016 B per state,
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
            Read(worker=2, groups="attention", layers=LAYERS_OF_ATTENTION, holds=(("head", (1, 2)),),
                 table=ATTENTION, offset=(0, 4096)),
            *(Read(worker=0, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (0, 2)), ("head", (0, 16))), table=MAMBA_OF_6_LAYERS_PART_1_OF_4,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            Read(worker=0, groups="mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (0, 2)), ("head", (0, 16))), table=MAMBA_OF_5_LAYERS_PART_1_OF_4,
                 first=(24, 24)),
            *(Read(worker=1, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (2, 4)), ("head", (16, 32))), table=MAMBA_OF_6_LAYERS_PART_2_OF_4,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            Read(worker=1, groups="mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (2, 4)), ("head", (16, 32))), table=MAMBA_OF_5_LAYERS_PART_2_OF_4,
                 first=(24, 24)),
            *(Read(worker=2, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (4, 6)), ("head", (32, 48))), table=MAMBA_OF_6_LAYERS_PART_3_OF_4,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            Read(worker=2, groups="mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (4, 6)), ("head", (32, 48))), table=MAMBA_OF_5_LAYERS_PART_3_OF_4,
                 first=(24, 24)),
            *(Read(worker=3, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (6, 8)), ("head", (48, 64))), table=MAMBA_OF_6_LAYERS_PART_4_OF_4,
                   first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
            Read(worker=3, groups="mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
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
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=4096, loops=EACH_6_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=256, loops=EACH_6_LAYERS, token_step=(256, 256)),),
)
MAMBA_OF_6_LAYERS_PART_1_OF_4 = Table(per_page=(
    Nest(("x",), bytes=6144, loops=EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 6144), decode=(0, 24_576), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 7680), decode=(0, 30_720), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 9216), decode=(0, 36_864), bytes=524_288, loops=EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_1_OF_4 = Table(per_page=(
    Nest(("x",), bytes=6144, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 6144), decode=(0, 24_576), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 7680), decode=(0, 30_720), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(0, 9216), decode=(0, 36_864), bytes=524_288, loops=EACH_5_LAYERS),
))
MAMBA_OF_6_LAYERS_PART_2_OF_4 = Table(per_page=(
    Nest(("x",), decode=(0, 6144), bytes=6144, loops=EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 6144), decode=(0, 26_112), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 7680), decode=(0, 32_256), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 9216), decode=(0, 561_152), bytes=524_288, loops=EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_2_OF_4 = Table(per_page=(
    Nest(("x",), decode=(0, 6144), bytes=6144, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 6144), decode=(0, 26_112), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 7680), decode=(0, 32_256), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(0, 9216), decode=(0, 561_152), bytes=524_288, loops=EACH_5_LAYERS),
))
MAMBA_OF_6_LAYERS_PART_3_OF_4 = Table(per_page=(
    Nest(("x",), decode=(0, 12_288), bytes=6144, loops=EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 6144), decode=(0, 27_648), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 7680), decode=(0, 33_792), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 9216), decode=(0, 1_085_440), bytes=524_288, loops=EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_3_OF_4 = Table(per_page=(
    Nest(("x",), decode=(0, 12_288), bytes=6144, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 6144), decode=(0, 27_648), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 7680), decode=(0, 33_792), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(0, 9216), decode=(0, 1_085_440), bytes=524_288, loops=EACH_5_LAYERS),
))
MAMBA_OF_6_LAYERS_PART_4_OF_4 = Table(per_page=(
    Nest(("x",), decode=(0, 18_432), bytes=6144, loops=EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 6144), decode=(0, 29_184), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 7680), decode=(0, 35_328), bytes=1536, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 9216), decode=(0, 1_609_728), bytes=524_288, loops=EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_4_OF_4 = Table(per_page=(
    Nest(("x",), decode=(0, 18_432), bytes=6144, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 6144), decode=(0, 29_184), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 7680), decode=(0, 35_328), bytes=1536, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(0, 9216), decode=(0, 1_609_728), bytes=524_288, loops=EACH_5_LAYERS),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 16 of block t // 16 (kernel block t // 16 % 131 of table entry t // 2096) of prefill, at t %
#   16 of block t // 16 (kernel block t // 16 % 261 of table entry t // 4176) of decode; runs end at multiples of 16.
# mamba.0, mamba.1, mamba.2, mamba.3: the slot of a state on both sides.
GROUP_PAIRS = (
    GroupPair("attention", page_rows=16),
    *(GroupPair(name) for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3")),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=4,kv_dtype=fp8,kernel_block=16", digest="717ec728378a4c922aac8897f9d7ad8f", groups=(
        Group("attention", "tokens", tokens=2096, kernel=16, ratio=131),
        *(Group(name, "state") for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3")),
    ), workers=(
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (0, 1)), ("mamba", "bc_group", (0, 2)), ("mamba", "head", (0, 16)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (0, 1)), ("mamba", "bc_group", (2, 4)), ("mamba", "head", (16, 32)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (1, 2)), ("mamba", "bc_group", (4, 6)), ("mamba", "head", (32, 48)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (1, 2)), ("mamba", "bc_group", (6, 8)), ("mamba", "head", (48, 64)))),
    ))

def decode() -> Side:
    return Side(key="tp=1,kv_dtype=fp8,kernel_block=16", digest="e59501f76dd081031184c295cef0916b", groups=(
        Group("attention", "tokens", tokens=4176, kernel=16, ratio=261),
        *(Group(name, "state") for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3")),
    ), workers=(
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (0, 2)), ("mamba", "bc_group", (0, 8)), ("mamba", "head", (0, 64)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 16, 384), ("head_dim", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=6144, axes=(("bc_group", 2, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=7680, axes=(("bc_group", 2, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", offset=9216, axes=(("head", 16, 32_768), ("head_dim", 64, 512), ("state", 128, 4))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 64, 384), ("head_dim", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=24_576, axes=(("bc_group", 8, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=30_720, axes=(("bc_group", 8, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", offset=36_864, axes=(("head", 64, 32_768), ("head_dim", 64, 512), ("state", 128, 4))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=4096, views=(
        View("k", "fp8", axes=(("head", 1, 4096), ("token", 16, 256), ("dim", 128, 1))),
        View("v", "fp8", offset=128, axes=(("head", 1, 4096), ("token", 16, 256), ("dim", 128, 1))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page_bytes=533_504, stride=536_576,
             views=PREFILL_MAMBA_VIEWS) for name, layers, plane in MAMBA_GROUPS),
    Planes("mamba", "mamba.3", first=24, loops=(("layer", LAYERS_OF_MAMBA_3, 1),), page_bytes=533_504,
           stride=536_576, views=PREFILL_MAMBA_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=8192, views=(
        View("k", "fp8", axes=(("head", 2, 4096), ("token", 16, 256), ("dim", 128, 1))),
        View("v", "fp8", offset=128, axes=(("head", 2, 4096), ("token", 16, 256), ("dim", 128, 1))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page_bytes=2_134_016, stride=2_138_112,
             views=DECODE_MAMBA_VIEWS) for name, layers, plane in MAMBA_GROUPS),
    Planes("mamba", "mamba.3", first=24, loops=(("layer", LAYERS_OF_MAMBA_3, 1),), page_bytes=2_134_016,
           stride=2_138_112, views=DECODE_MAMBA_VIEWS),
)

PLAN = Plan(format=3, title="NVIDIA Nemotron 3 Nano 30B-A3B", model="nemotron-3-nano-30b",
            model_digest="1484a0ddd434bb21762ff1725c58ad1e", digest="d7630023f7894e7ca9f57502eafc2a33",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
