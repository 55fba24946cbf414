"""Falcon Mamba 7B: prefill tp=1 -> decode tp=2.

Emitted by kvplan from falcon-mamba-7b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile falcon-mamba-7b --prefill tp=1 --decode tp=2

A page of cache mamba on worker 0:
    prefill  |    x    |                         ssm                         |     311,296 B
             one slot; a KV cache tensor for each of 64 layers
             x 49,152 B (8,192 channel x 3 tap x bf16)
             ssm 262,144 B (8,192 channel x 16 state x bf16)
    decode   | x  |           ssm            |                                     155,648 B
             one slot; a KV cache tensor for each of 64 layers
             x 24,576 B (4,096 channel x 3 tap x bf16)
             ssm 131,072 B (4,096 channel x 16 state x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, mamba: 9,961,472 B in 128 descriptors, for any number of tokens; 1 read, 128 spans of all
        layers per state

Layers: 64 (all store mamba).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written; a state is written whole.
Both sides: the page layout of cache mamba comes from vllm's engine file; not yet verified on a running engine: the
    --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. mamba: 64
    layers x 311,296 B per state, coordinates (layer, channel, tap, state).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, groups="mamba", layers=tuple(range(64)), holds=(("channel", (0, 4096)),),
              table=MAMBA_PART_1_OF_2),),
        # decode worker 1
        (Read(worker=0, groups="mamba", layers=tuple(range(64)), holds=(("channel", (4096, 8192)),),
              table=MAMBA_PART_2_OF_2),),
    )

# What a read copies for one block (`per_page` of a Table). A Nest is a span of `bytes` bytes at (plane, byte in the
# page) on each side, (0, 0) if left out; its loops repeat it with steps of (planes, bytes).
EACH_64_LAYERS = (Loop("layer", count=64, prefill=(1, 0), decode=(1, 0)),)
MAMBA_PART_1_OF_2 = Table(per_page=(
    Nest(("x",), bytes=24_576, loops=EACH_64_LAYERS),
    Nest(("ssm",), prefill=(0, 49_152), decode=(0, 24_576), bytes=131_072, loops=EACH_64_LAYERS),
))
MAMBA_PART_2_OF_2 = Table(per_page=(
    Nest(("x",), prefill=(0, 24_576), bytes=24_576, loops=EACH_64_LAYERS),
    Nest(("ssm",), prefill=(0, 180_224), decode=(0, 24_576), bytes=131_072, loops=EACH_64_LAYERS),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# mamba: the slot of a state on both sides.
GROUP_PAIRS = (GroupPair("mamba"),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(
        key="tp=1", digest="a710cd53653f7ebfda68ee0dddba032a",
        groups=(Group("mamba", "state"),),
        workers=(Worker(PREFILL_PLANES, holds=(("mamba", "channel", (0, 8192)),)),),
    )

def decode() -> Side:
    return Side(key="tp=2", digest="27e5a5ce7d5c5e0b37fa577ec7a89f69", groups=(Group("mamba", "state"),), workers=(
        Worker(DECODE_PLANES, holds=(("mamba", "channel", (0, 4096)),)),
        Worker(DECODE_PLANES, holds=(("mamba", "channel", (4096, 8192)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_PLANES = (Planes("mamba", loops=(("layer", tuple(range(64)), 1),), page_bytes=311_296, views=(
    View("x", "bf16", axes=(("channel", 8192, 6), ("tap", 3, 2))),
    View("ssm", "bf16", offset=49_152, axes=(("channel", 8192, 32), ("state", 16, 2))),
)),)
DECODE_PLANES = (Planes("mamba", loops=(("layer", tuple(range(64)), 1),), page_bytes=155_648, views=(
    View("x", "bf16", axes=(("channel", 4096, 6), ("tap", 3, 2))),
    View("ssm", "bf16", offset=24_576, axes=(("channel", 4096, 32), ("state", 16, 2))),
)),)

PLAN = Plan(format=3, title="Falcon Mamba 7B", model="falcon-mamba-7b",
            model_digest="cde6c389d1bc9420b200c9238c2a4724", digest="1708eaf4763c2c9e888f983405f4f68c",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
