"""Falcon Mamba 7B: prefill tp=1 -> decode tp=2.

Emitted by kvplan from falcon-mamba-7b, do not edit:
    kvplan compile falcon-mamba-7b --prefill tp=1 --decode tp=2

mamba, a page of the first worker that has one:
    prefill  |    x    |                         ssm                         |     311,296 B
             one slot; a plane for each of 64 layers
             x 49,152 B (8,192 channel x 3 tap x bf16)
             ssm 262,144 B (8,192 channel x 16 st x bf16)
    decode   | x  |           ssm            |                                     155,648 B
             one slot; a plane for each of 64 layers
             x 24,576 B (4,096 channel x 3 tap x bf16)
             ssm 131,072 B (4,096 channel x 16 st x bf16)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, mamba: 1 read, 128 spans a slot; 128 requests and 9,961,472 B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: mamba.
Decode: not probed on vllm, whose file alone says how a page is filled: mamba.
Proved for every decode worker, each byte written once. mamba: 64 layers x 311,296 B a state, each from its own
(layer, channel, tap, st).
"""

from __future__ import annotations

from kvplan.plan.types import (
    Blocks,
    Group,
    Loop,
    Nest,
    Pair,
    Plan,
    Planes,
    Read,
    Runs,
    Side,
    Table,
    View,
    Worker,
    slots,
)

MODEL_DIGEST = "e6f940923aac567199f3d3516ee94738"
PREFILL_DIGEST = "cde5d7efb46325829428b084f46bcf0b"
DECODE_DIGEST = "f203b00fc3a4f1f5d58bb0e68c72dd19"
PLAN_DIGEST = "325f78208a0b4ff9a81171dee2b79c98"
FUNCTIONS_DIGEST = "f5be854e4b374015ff4d2cf8637b4374"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("channel", 8192, 6), ("tap", 3, 2))),
    View("ssm", "bf16", 49_152, (("channel", 8192, 32), ("st", 16, 2))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("channel", 4096, 6), ("tap", 3, 2))),
    View("ssm", "bf16", 24_576, (("channel", 4096, 32), ("st", 16, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
MAMBA_LOOPS = (("layer", tuple(range(64)), 1),)
PREFILL_PLANES = (Planes("mamba", "mamba", None, 0, MAMBA_LOOPS, 311_296, 311_296, PREFILL_MAMBA_VIEWS),)
DECODE_PLANES = (Planes("mamba", "mamba", None, 0, MAMBA_LOOPS, 155_648, 155_648, DECODE_MAMBA_VIEWS),)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=1",
    digest=PREFILL_DIGEST,
    groups=(Group("mamba", "state", tokens=0, kernel=0, ratio=1, arena=0),),
    workers=(Worker(PREFILL_PLANES, holds=(("mamba", "channel", (0, 8192)),)),),
)

DECODE = Side(
    key="tp=2",
    digest=DECODE_DIGEST,
    groups=(Group("mamba", "state", tokens=0, kernel=0, ratio=1, arena=0),),
    workers=(
        Worker(DECODE_PLANES, holds=(("mamba", "channel", (0, 4096)),)),
        Worker(DECODE_PLANES, holds=(("mamba", "channel", (4096, 8192)),)),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_64_LAYERS = (Loop("layer", 64, (1, 0), (1, 0)),)
MAMBA_TABLE_0 = Table(
    page=(
        Nest(("x",), (0, 0), (0, 0), 24_576, EACH_64_LAYERS),
        Nest(("ssm",), (0, 49_152), (0, 24_576), 131_072, EACH_64_LAYERS),
    ),
)
MAMBA_TABLE_1 = Table(
    page=(
        Nest(("x",), (0, 24_576), (0, 0), 24_576, EACH_64_LAYERS),
        Nest(("ssm",), (0, 180_224), (0, 24_576), 131_072, EACH_64_LAYERS),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def mamba(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (Read(0, "mamba", "mamba", tuple(range(64)), (("channel", (0, 4096)),), MAMBA_TABLE_0),),
    # decode worker 1
    (Read(0, "mamba", "mamba", tuple(range(64)), (("channel", (4096, 8192)),), MAMBA_TABLE_1),),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="Falcon Mamba 7B",
    model="falcon-mamba-7b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(Pair("mamba", "mamba", "mamba", 0, mamba),),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
