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
             x 12,288 B (32 head x 64 head_dim x 3 tap x bf16)
             b 768 B (1 bc_group x 128 state x 3 tap x bf16)
             c 768 B (1 bc_group x 128 state x 3 tap x bf16)
             ssm 524,288 B (32 head x 64 head_dim x 128 state x bf16)
    decode   |x|b|c|                           ssm                           |   1,074,688 B, blocks 1,081,344 B apart
             one slot; a KV cache tensor for each of 4 layers of mamba.0, one of 9 groups of mamba
             x 24,576 B (64 head x 64 head_dim x 3 tap x bf16)
             b 768 B (1 bc_group x 128 state x 3 tap x bf16)
             c 768 B (1 bc_group x 128 state x 3 tap x bf16)
             ssm 1,048,576 B (64 head x 64 head_dim x 128 state x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 8,388,608 B in 24 descriptors; 2 reads, together 8 spans of all layers for a
        whole block, and 16 for the rest
    decode workers 0-1, mamba.0, mamba.1, mamba.2, mamba.3, mamba.4, mamba.5, mamba.6, mamba.7, mamba.8, each:
        4,298,752 B in 16 descriptors, for any number of tokens; 2 reads, together 16 spans of all layers per state

Layers: 40 (4 store attention, 36 store mamba).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it; a state is written whole.
Shared memory: on both sides attention, mamba.0, mamba.1, mamba.2, mamba.3, mamba.4, mamba.5, mamba.6, mamba.7 and
    mamba.8. A block is of one of these groups at a time.
Both sides: the page layout of caches attention and mamba comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 4
    layers x 4,096 B per token, coordinates (layer, head, token, dim); mamba: 36 layers x 2,147,840 B per state,
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
            Read(worker=0, groups="attention", layers=tuple(range(5, 36, 10)), holds=(("head", (0, 2)),),
                 table=ATTENTION),
            Read(worker=1, groups="attention", layers=tuple(range(5, 36, 10)), holds=(("head", (2, 4)),),
                 table=ATTENTION, offset=(0, 540_672)),
            *(Read(worker=0, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (0, 1)), ("head", (0, 32))), table=MAMBA_PART_1_OF_2, first=(plane, plane))
              for name, layers, plane in MAMBA_GROUPS),
            *(Read(worker=1, groups=name, cache="mamba", layers=layers, holds=(("head", (32, 64)),),
                   table=MAMBA_PART_2_OF_2, first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
        ),
        (  # decode worker 1
            Read(worker=2, groups="attention", layers=tuple(range(5, 36, 10)), holds=(("head", (4, 6)),),
                 table=ATTENTION),
            Read(worker=3, groups="attention", layers=tuple(range(5, 36, 10)), holds=(("head", (6, 8)),),
                 table=ATTENTION, offset=(0, 540_672)),
            *(Read(worker=2, groups=name, cache="mamba", layers=layers,
                   holds=(("bc_group", (0, 1)), ("head", (64, 96))), table=MAMBA_PART_1_OF_2, first=(plane, plane))
              for name, layers, plane in MAMBA_GROUPS),
            *(Read(worker=3, groups=name, cache="mamba", layers=layers, holds=(("head", (96, 128)),),
                   table=MAMBA_PART_2_OF_2, first=(plane, plane)) for name, layers, plane in MAMBA_GROUPS),
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

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_4_LAYERS = (Loop("layer", count=4, prefill=(1, 0), decode=(1, 0)),)
EACH_4_LAYERS_2_HEADS = (Loop("layer", count=4, prefill=(1, 0), decode=(1, 0)),
                         Loop("head", count=2, prefill=(0, 270_336), decode=(0, 270_336)))
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=540_672, loops=EACH_4_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_4_LAYERS_2_HEADS, token_step=(512, 512)),),
)
MAMBA_PART_1_OF_2 = Table(per_page=(
    Nest(("x",), bytes=12_288, loops=EACH_4_LAYERS),
    Nest(("b", "c", "ssm"), prefill=(0, 12_288), decode=(0, 24_576), bytes=525_824, loops=EACH_4_LAYERS),
))
MAMBA_PART_2_OF_2 = Table(per_page=(
    Nest(("x",), decode=(0, 12_288), bytes=12_288, loops=EACH_4_LAYERS),
    Nest(("ssm",), prefill=(0, 13_824), decode=(0, 550_400), bytes=524_288, loops=EACH_4_LAYERS),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 528 of block t // 528 on both sides; runs end at multiples of 528.
# mamba.0, mamba.1, mamba.2, mamba.3, mamba.4, mamba.5, mamba.6, mamba.7, mamba.8: the slot of a state on both sides.
GROUP_PAIRS = (
    GroupPair("attention", page_rows=528),
    *(GroupPair(name)
      for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3", "mamba.4", "mamba.5", "mamba.6", "mamba.7", "mamba.8")),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=4", digest="51a620fc462d947e01190317865c54f1", groups=(
        Group("attention", "tokens", tokens=528, kernel=528),
        *(Group(name, "state")
          for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3", "mamba.4", "mamba.5", "mamba.6", "mamba.7",
                       "mamba.8")),
    ), workers=(
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (0, 2)), ("mamba", "bc_group", (0, 1)), ("mamba", "head", (0, 32)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (2, 4)), ("mamba", "bc_group", (0, 1)), ("mamba", "head", (32, 64)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (4, 6)), ("mamba", "bc_group", (0, 1)), ("mamba", "head", (64, 96)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (6, 8)), ("mamba", "bc_group", (0, 1)), ("mamba", "head", (96, 128)))),
    ))

def decode() -> Side:
    return Side(key="tp=2", digest="1b90d1ce3bafcc86d48ecbf38800a897", groups=(
        Group("attention", "tokens", tokens=528, kernel=528),
        *(Group(name, "state")
          for name in ("mamba.0", "mamba.1", "mamba.2", "mamba.3", "mamba.4", "mamba.5", "mamba.6", "mamba.7",
                       "mamba.8")),
    ), workers=(
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (0, 4)), ("mamba", "bc_group", (0, 1)), ("mamba", "head", (0, 64)))),
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (4, 8)), ("mamba", "bc_group", (0, 1)), ("mamba", "head", (64, 128)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 32, 384), ("head_dim", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=12_288, axes=(("bc_group", 1, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=13_056, axes=(("bc_group", 1, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("ssm", "bf16", offset=13_824, axes=(("head", 32, 16_384), ("head_dim", 64, 256), ("state", 128, 2))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", axes=(("head", 64, 384), ("head_dim", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", offset=24_576, axes=(("bc_group", 1, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", offset=25_344, axes=(("bc_group", 1, 768), ("state", 128, 6), ("tap", 3, 2))),
    View("ssm", "bf16", offset=26_112, axes=(("head", 64, 16_384), ("head_dim", 64, 256), ("state", 128, 2))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(5, 36, 10)), 1),), page_bytes=540_672, views=(
        View("k", "bf16", axes=(("head", 2, 270_336), ("token", 528, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 2, 270_336), ("token", 528, 512), ("dim", 128, 2))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page_bytes=538_112, stride=540_672,
             views=PREFILL_MAMBA_VIEWS) for name, layers, plane in MAMBA_GROUPS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(5, 36, 10)), 1),), page_bytes=1_081_344, views=(
        View("k", "bf16", axes=(("head", 4, 270_336), ("token", 528, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 4, 270_336), ("token", 528, 512), ("dim", 128, 2))),
    )),
    *(Planes("mamba", name, first=plane, loops=(("layer", layers, 1),), page_bytes=1_074_688, stride=1_081_344,
             views=DECODE_MAMBA_VIEWS) for name, layers, plane in MAMBA_GROUPS),
)

PLAN = Plan(format=3, title="IBM Granite 4.0 H Small", model="granite-4.0-h-small",
            model_digest="3977afc83779d8a16ec0b4bf824f158d", digest="f7f52966a20013a062842f575adcea1c",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
