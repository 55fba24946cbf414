"""NVIDIA Nemotron 3 Nano 30B-A3B: prefill engine=sglang,tp=2,block=16 -> decode tp=1.

Emitted by kvplan from nemotron-3-nano-30b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile nemotron-3-nano-30b --prefill engine=sglang,tp=2,block=16 --decode tp=1

A page of cache attention on worker 0:
    prefill k |k|                                                                     4,096 B
             16 tokens; a KV cache tensor for each of 6 layers
             k 4,096 B (16 token x 1 head x 128 dim x bf16)
    prefill v |v|                                                                     4,096 B
             16 tokens; a KV cache tensor for each of 6 layers
             v 4,096 B (16 token x 1 head x 128 dim x bf16)
    decode   |             head 0            |             head 1            |   2,146,304 B
             2,096 tokens; a KV cache tensor for each of 6 layers
             2 heads, 1,073,152 B each: [2,096 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x
               bf16)]
A page of cache mamba on worker 0:
    prefill conv |x|b|c|                                                                18,432 B
             one slot; a KV cache tensor for each of 23 layers
             x 12,288 B (32 head x 64 head_dim x 3 tap x bf16)
             b 3,072 B (4 bc_group x 128 state x 3 tap x bf16)
             c 3,072 B (4 bc_group x 128 state x 3 tap x bf16)
    prefill ssm |             ssm              |                                    1,048,576 B
             one slot; a KV cache tensor for each of 23 layers
             ssm 1,048,576 B (32 head x 64 head_dim x 128 state x f32)
    decode   |x|b|c|                           ssm                           |   2,134,016 B, blocks 2,146,304 B apart
             one slot; a KV cache tensor for each of 6 layers of mamba.0, one of 4 groups of mamba
             x 24,576 B (64 head x 64 head_dim x 3 tap x bf16)
             b 6,144 B (8 bc_group x 128 state x 3 tap x bf16)
             c 6,144 B (8 bc_group x 128 state x 3 tap x bf16)
             ssm 2,097,152 B (64 head x 64 head_dim x 128 state x f32)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode worker 0, attention: 6,291,456 B in 24,576 descriptors; 2 reads, together 24 spans of all layers for each
        of 1,024 tokens
    decode worker 0, mamba>mamba.0, mamba>mamba.1, mamba>mamba.2, each: 12,804,096 B in 48 descriptors, for any
        number of tokens; 2 reads, together 48 spans of all layers per state
    decode worker 0, mamba>mamba.3: 10,670,080 B in 40 descriptors, for any number of tokens; 2 reads, together 40
        spans of all layers per state

Layers: 52 (6 store attention, 23 store mamba, 23 store nothing).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written; a state is written whole.
Shared memory: decode's attention, mamba.0, mamba.1, mamba.2 and mamba.3. A block is of one of these groups at a
    time.
Prefill: the page layout of caches attention and mamba comes from sglang's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Decode: the page layout of caches attention and mamba comes from vllm's engine file; not yet verified on a running
    engine: the --probe of kvplan from-cache verifies it.
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
            Read(worker=1, groups="attention", layers=LAYERS_OF_ATTENTION, holds=(("head", (1, 2)),),
                 table=ATTENTION, offset=(0, 1_073_152)),
            *(Read(worker=0, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (0, 4)), ("head", (0, 32))), table=MAMBA_OF_6_LAYERS_PART_1_OF_2, first=first)
              for name, layers, first in MAMBA_GROUP_PAIRS),
            Read(worker=0, groups="mamba>mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (0, 4)), ("head", (0, 32))), table=MAMBA_OF_5_LAYERS_PART_1_OF_2,
                 first=(15, 24)),
            *(Read(worker=1, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (4, 8)), ("head", (32, 64))), table=MAMBA_OF_6_LAYERS_PART_2_OF_2,
                   first=first) for name, layers, first in MAMBA_GROUP_PAIRS),
            Read(worker=1, groups="mamba>mamba.3", cache="mamba", layers=LAYERS_OF_MAMBA_3,
                 holds=(("bc_group", (4, 8)), ("head", (32, 64))), table=MAMBA_OF_5_LAYERS_PART_2_OF_2,
                 first=(15, 24)),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
LAYERS_OF_ATTENTION = (5, 12, 19, 26, 33, 42)
LAYERS_OF_MAMBA_3 = (7, 16, 25, 35, 44)
LAYERS_OF_MAMBA = (0, 2, 4, 7, 9, 11, 14, 16, 18, 21, 23, 25, 28, 30, 32, 35, 37, 39, 41, 44, 46, 48, 50)
DECODE_MAMBA_GROUPS = (
    ("mamba.0", (0, 9, 18, 28, 37, 46), 6),
    ("mamba.1", (2, 11, 21, 30, 39, 48), 12),
    ("mamba.2", (4, 14, 23, 32, 41, 50), 18),
)
MAMBA_GROUP_PAIRS = (
    ("mamba>mamba.0", (0, 9, 18, 28, 37, 46), (12, 6)),
    ("mamba>mamba.1", (2, 11, 21, 30, 39, 48), (13, 12)),
    ("mamba>mamba.2", (4, 14, 23, 32, 41, 50), (14, 18)),
)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side.
ATTENTION_EACH_6_LAYERS = (Loop("layer", count=6, prefill=(2, 0), decode=(1, 0)),)
MAMBA_EACH_6_LAYERS = (Loop("layer", count=6, prefill=(4, 0), decode=(1, 0)),)
EACH_5_LAYERS = (Loop("layer", count=5, prefill=(4, 0), decode=(1, 0)),)
ATTENTION = Table(per_token=(
    Nest(("k",), bytes=256, loops=ATTENTION_EACH_6_LAYERS, token_step=(256, 512)),
    Nest(("v",), prefill=(1, 0), decode=(0, 256), bytes=256, loops=ATTENTION_EACH_6_LAYERS, token_step=(256, 512)),
))
MAMBA_OF_6_LAYERS_PART_1_OF_2 = Table(per_page=(
    Nest(("x",), bytes=12_288, loops=MAMBA_EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 12_288), decode=(0, 24_576), bytes=3072, loops=MAMBA_EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 15_360), decode=(0, 30_720), bytes=3072, loops=MAMBA_EACH_6_LAYERS),
    Nest(("ssm",), prefill=(23, 0), decode=(0, 36_864), bytes=1_048_576, loops=MAMBA_EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_1_OF_2 = Table(per_page=(
    Nest(("x",), bytes=12_288, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 12_288), decode=(0, 24_576), bytes=3072, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 15_360), decode=(0, 30_720), bytes=3072, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(23, 0), decode=(0, 36_864), bytes=1_048_576, loops=EACH_5_LAYERS),
))
MAMBA_OF_6_LAYERS_PART_2_OF_2 = Table(per_page=(
    Nest(("x",), decode=(0, 12_288), bytes=12_288, loops=MAMBA_EACH_6_LAYERS),
    Nest(("b",), prefill=(0, 12_288), decode=(0, 27_648), bytes=3072, loops=MAMBA_EACH_6_LAYERS),
    Nest(("c",), prefill=(0, 15_360), decode=(0, 33_792), bytes=3072, loops=MAMBA_EACH_6_LAYERS),
    Nest(("ssm",), prefill=(23, 0), decode=(0, 1_085_440), bytes=1_048_576, loops=MAMBA_EACH_6_LAYERS),
))
MAMBA_OF_5_LAYERS_PART_2_OF_2 = Table(per_page=(
    Nest(("x",), decode=(0, 12_288), bytes=12_288, loops=EACH_5_LAYERS),
    Nest(("b",), prefill=(0, 12_288), decode=(0, 27_648), bytes=3072, loops=EACH_5_LAYERS),
    Nest(("c",), prefill=(0, 15_360), decode=(0, 33_792), bytes=3072, loops=EACH_5_LAYERS),
    Nest(("ssm",), prefill=(23, 0), decode=(0, 1_085_440), bytes=1_048_576, loops=EACH_5_LAYERS),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 16 of block t // 16 of prefill, at t % 2096 of block t // 2096 of decode; runs end at
#   multiples of 16.
# mamba>mamba.0, mamba>mamba.1, mamba>mamba.2, mamba>mamba.3: the slot of a state on both sides.
GROUP_PAIRS = (GroupPair("attention"),
               GroupPair("mamba>mamba.0", prefill="mamba", decode="mamba.0"),
               GroupPair("mamba>mamba.1", prefill="mamba", decode="mamba.1"),
               GroupPair("mamba>mamba.2", prefill="mamba", decode="mamba.2"),
               GroupPair("mamba>mamba.3", prefill="mamba", decode="mamba.3"))

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="engine=sglang,tp=2,block=16", digest="5b9a774e5cf81c01ecc251891bf38270", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("mamba", "state", arena=1),
    ), workers=(
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (0, 1)), ("mamba", "bc_group", (0, 4)), ("mamba", "head", (0, 32)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (1, 2)), ("mamba", "bc_group", (4, 8)), ("mamba", "head", (32, 64)))),
    ))

def decode() -> Side:
    return Side(key="tp=1", digest="96aa3d0a43277113bc964f80ffe8672e", groups=(
        Group("attention", "tokens", tokens=2096, kernel=2096),
        *(Group(name, "state") for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3")),
    ), workers=(
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (0, 2)), ("mamba", "bc_group", (0, 8)), ("mamba", "head", (0, 64)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
# `part`: an allocation of a cache that has several. Allocations by number: part "0" has k (attention), part "1" has v
# (attention).
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 64, 384), ("head_dim", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=24_576, axes=(("bc_group", 8, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=30_720, axes=(("bc_group", 8, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", offset=36_864, axes=(("head", 64, 32_768), ("head_dim", 64, 512), ("state", 128, 4))),
)
PREFILL_PLANES = (
    Planes(
        "attention", part="0", loops=(("layer", LAYERS_OF_ATTENTION, 2),), page_bytes=4096,
        views=(View("k", "bf16", axes=(("token", 16, 256), ("head", 1, 256), ("dim", 128, 2))),),
    ),
    Planes(
        "attention", part="1", first=1, loops=(("layer", LAYERS_OF_ATTENTION, 2),), page_bytes=4096,
        views=(View("v", "bf16", axes=(("token", 16, 256), ("head", 1, 256), ("dim", 128, 2))),),
    ),
    Planes("mamba", part="conv", first=12, loops=(("layer", LAYERS_OF_MAMBA, 1),), page_bytes=18_432, views=(
        View("x", "bf16", axes=(("head", 32, 384), ("head_dim", 64, 6), ("tap", 3, 2))),
        View("b", "bf16", offset=12_288, axes=(("bc_group", 4, 768), ("state", 128, 6), ("tap", 3, 2))),
        View("c", "bf16", offset=15_360, axes=(("bc_group", 4, 768), ("state", 128, 6), ("tap", 3, 2))),
    )),
    Planes(
        "mamba", part="ssm", first=35, loops=(("layer", LAYERS_OF_MAMBA, 1),), page_bytes=1_048_576,
        views=(View("ssm", "f32", axes=(("head", 32, 32_768), ("head_dim", 64, 512), ("state", 128, 4))),),
    ),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=2_146_304, views=(
        View("k", "bf16", axes=(("head", 2, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 2, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page_bytes=2_134_016, stride=2_146_304,
             views=DECODE_MAMBA_VIEWS) for name, layers, plane in DECODE_MAMBA_GROUPS),
    Planes("mamba", "mamba.3", first=24, loops=(("layer", LAYERS_OF_MAMBA_3, 1),), page_bytes=2_134_016,
           stride=2_146_304, views=DECODE_MAMBA_VIEWS),
)

PLAN = Plan(format=3, title="NVIDIA Nemotron 3 Nano 30B-A3B", model="nemotron-3-nano-30b",
            model_digest="779acf0597d9330ac5f5c2b67a878310", digest="599d9e1cbab72605825c3ea04b20c5f4",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
