"""MiniMax-Text-01: prefill tp=4 -> decode tp=2.

Emitted by kvplan from minimax-text-01, do not edit:
    kvplan compile minimax-text-01 --prefill tp=4 --decode tp=2

attention, a page of the first worker that has one:
    prefill  |     head 0    |     head 1    |                                     524,288 B
             512 tokens; a plane for each of 10 layers
             2 heads, 262,144 B each: [512 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |     head 0    |     head 1    |     head 2    |     head 3    |   1,048,576 B
             512 tokens; a plane for each of 10 layers
             4 heads, 262,144 B each: [512 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

linear, a page of the first worker that has one:
    prefill  |             state             |                                     524,288 B
             one slot; a plane for each of 10 layers of linear.0, one of 7 groups
             state 524,288 B (16 head x 128 row x 128 column x bf16)
    decode   |                             state                             |   1,048,576 B
             one slot; a plane for each of 10 layers of linear.0, one of 7 groups
             state 1,048,576 B (32 head x 128 row x 128 column x bf16)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, attention: 2 reads, 20 spans a kernel block; 40 requests and 20,971,520 B per 1,024 tokens
    decode workers 0-1, linear.0, linear.1, linear.2, linear.3, linear.4, linear.5, linear.6, each: 2 reads, 20
        spans a slot; 20 requests and 10,485,760 B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, linear.
Decode: not probed on vllm, whose file alone says how a page is filled: attention, linear.
Proved for every decode worker, each byte written once. attention: 10 layers x 4,096 B a token, each from its own
(layer, head, token, dim); linear: 70 layers x 2,097,152 B a state, each from its own (layer, head, row, column).
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
    cuts,
    slots,
)

MODEL_DIGEST = "b5819e97aa188902e0a69be82d970c18"
PREFILL_DIGEST = "d4b843a4424eb4ad01e7a1fd0967d922"
DECODE_DIGEST = "5fcee712c7e589c8bab367112da607b4"
PLAN_DIGEST = "9b69271ff9c5e30c61594b57dbf995d8"
FUNCTIONS_DIGEST = "397ad8cce1cd42e76573e80b8b99fbe4"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 262_144), ("token", 512, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 2, 262_144), ("token", 512, 512), ("dim", 128, 2))),
)
PREFILL_LINEAR_VIEWS = (View("state", "bf16", 0, (("head", 16, 32_768), ("row", 128, 256), ("column", 128, 2))),)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 4, 262_144), ("token", 512, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 4, 262_144), ("token", 512, 512), ("dim", 128, 2))),
)
DECODE_LINEAR_VIEWS = (View("state", "bf16", 0, (("head", 32, 32_768), ("row", 128, 256), ("column", 128, 2))),)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", tuple(range(7, 80, 8)), 1),)
LINEAR_LOOPS_0 = (("layer", tuple(range(0, 73, 8)), 1),)
LINEAR_LOOPS_1 = (("layer", tuple(range(1, 74, 8)), 1),)
LINEAR_LOOPS_2 = (("layer", tuple(range(2, 75, 8)), 1),)
LINEAR_LOOPS_3 = (("layer", tuple(range(3, 76, 8)), 1),)
LINEAR_LOOPS_4 = (("layer", tuple(range(4, 77, 8)), 1),)
LINEAR_LOOPS_5 = (("layer", tuple(range(5, 78, 8)), 1),)
LINEAR_LOOPS_6 = (("layer", tuple(range(6, 79, 8)), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 524_288, 524_288, PREFILL_ATTENTION_VIEWS),
    Planes("linear", "linear.0", None, 10, LINEAR_LOOPS_0, 524_288, 524_288, PREFILL_LINEAR_VIEWS),
    Planes("linear", "linear.1", None, 20, LINEAR_LOOPS_1, 524_288, 524_288, PREFILL_LINEAR_VIEWS),
    Planes("linear", "linear.2", None, 30, LINEAR_LOOPS_2, 524_288, 524_288, PREFILL_LINEAR_VIEWS),
    Planes("linear", "linear.3", None, 40, LINEAR_LOOPS_3, 524_288, 524_288, PREFILL_LINEAR_VIEWS),
    Planes("linear", "linear.4", None, 50, LINEAR_LOOPS_4, 524_288, 524_288, PREFILL_LINEAR_VIEWS),
    Planes("linear", "linear.5", None, 60, LINEAR_LOOPS_5, 524_288, 524_288, PREFILL_LINEAR_VIEWS),
    Planes("linear", "linear.6", None, 70, LINEAR_LOOPS_6, 524_288, 524_288, PREFILL_LINEAR_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 1_048_576, 1_048_576, DECODE_ATTENTION_VIEWS),
    Planes("linear", "linear.0", None, 10, LINEAR_LOOPS_0, 1_048_576, 1_048_576, DECODE_LINEAR_VIEWS),
    Planes("linear", "linear.1", None, 20, LINEAR_LOOPS_1, 1_048_576, 1_048_576, DECODE_LINEAR_VIEWS),
    Planes("linear", "linear.2", None, 30, LINEAR_LOOPS_2, 1_048_576, 1_048_576, DECODE_LINEAR_VIEWS),
    Planes("linear", "linear.3", None, 40, LINEAR_LOOPS_3, 1_048_576, 1_048_576, DECODE_LINEAR_VIEWS),
    Planes("linear", "linear.4", None, 50, LINEAR_LOOPS_4, 1_048_576, 1_048_576, DECODE_LINEAR_VIEWS),
    Planes("linear", "linear.5", None, 60, LINEAR_LOOPS_5, 1_048_576, 1_048_576, DECODE_LINEAR_VIEWS),
    Planes("linear", "linear.6", None, 70, LINEAR_LOOPS_6, 1_048_576, 1_048_576, DECODE_LINEAR_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=4",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=512, kernel=512, ratio=1, arena=0),
        Group("linear.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.3", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.4", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.5", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.6", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 2)), ("linear", "head", (0, 16)))),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (2, 4)), ("linear", "head", (16, 32)))),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 6)), ("linear", "head", (32, 48)))),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (6, 8)), ("linear", "head", (48, 64)))),
    ),
)

DECODE = Side(
    key="tp=2",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=512, kernel=512, ratio=1, arena=0),
        Group("linear.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.3", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.4", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.5", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("linear.6", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)), ("linear", "head", (0, 32)))),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)), ("linear", "head", (32, 64)))),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_10_LAYERS = (Loop("layer", 10, (1, 0), (1, 0)),)
EACH_10_LAYERS_2_HEADS = (Loop("layer", 10, (1, 0), (1, 0)), Loop("head", 2, (0, 262_144), (0, 262_144)))
ATTENTION_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 524_288, EACH_10_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_10_LAYERS_2_HEADS, (512, 512)),),
)
ATTENTION_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 524_288), 524_288, EACH_10_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 524_288), 512, EACH_10_LAYERS_2_HEADS, (512, 512)),),
)
LINEAR_TABLE_0 = Table(page=(Nest(("state",), (0, 0), (0, 0), 524_288, EACH_10_LAYERS),))
LINEAR_TABLE_1 = Table(page=(Nest(("state",), (0, 0), (0, 524_288), 524_288, EACH_10_LAYERS),))


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 512 tokens on both sides.
    """
    token, count = cuts(first, end, 512)
    p_block, p_token = divmod(token, 512)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 512)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def linear_0(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def linear_1(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def linear_2(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def linear_3(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def linear_4(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def linear_5(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def linear_6(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", tuple(range(7, 80, 8)), (("head", (0, 2)),), ATTENTION_TABLE_0),
        Read(1, "attention", "attention", tuple(range(7, 80, 8)), (("head", (2, 4)),), ATTENTION_TABLE_1),
        Read(0, "linear.0", "linear", tuple(range(0, 73, 8)), (("head", (0, 16)),), LINEAR_TABLE_0, (10, 10)),
        Read(1, "linear.0", "linear", tuple(range(0, 73, 8)), (("head", (16, 32)),), LINEAR_TABLE_1, (10, 10)),
        Read(0, "linear.1", "linear", tuple(range(1, 74, 8)), (("head", (0, 16)),), LINEAR_TABLE_0, (20, 20)),
        Read(1, "linear.1", "linear", tuple(range(1, 74, 8)), (("head", (16, 32)),), LINEAR_TABLE_1, (20, 20)),
        Read(0, "linear.2", "linear", tuple(range(2, 75, 8)), (("head", (0, 16)),), LINEAR_TABLE_0, (30, 30)),
        Read(1, "linear.2", "linear", tuple(range(2, 75, 8)), (("head", (16, 32)),), LINEAR_TABLE_1, (30, 30)),
        Read(0, "linear.3", "linear", tuple(range(3, 76, 8)), (("head", (0, 16)),), LINEAR_TABLE_0, (40, 40)),
        Read(1, "linear.3", "linear", tuple(range(3, 76, 8)), (("head", (16, 32)),), LINEAR_TABLE_1, (40, 40)),
        Read(0, "linear.4", "linear", tuple(range(4, 77, 8)), (("head", (0, 16)),), LINEAR_TABLE_0, (50, 50)),
        Read(1, "linear.4", "linear", tuple(range(4, 77, 8)), (("head", (16, 32)),), LINEAR_TABLE_1, (50, 50)),
        Read(0, "linear.5", "linear", tuple(range(5, 78, 8)), (("head", (0, 16)),), LINEAR_TABLE_0, (60, 60)),
        Read(1, "linear.5", "linear", tuple(range(5, 78, 8)), (("head", (16, 32)),), LINEAR_TABLE_1, (60, 60)),
        Read(0, "linear.6", "linear", tuple(range(6, 79, 8)), (("head", (0, 16)),), LINEAR_TABLE_0, (70, 70)),
        Read(1, "linear.6", "linear", tuple(range(6, 79, 8)), (("head", (16, 32)),), LINEAR_TABLE_1, (70, 70)),
    ),
    # decode worker 1
    (
        Read(2, "attention", "attention", tuple(range(7, 80, 8)), (("head", (4, 6)),), ATTENTION_TABLE_0),
        Read(3, "attention", "attention", tuple(range(7, 80, 8)), (("head", (6, 8)),), ATTENTION_TABLE_1),
        Read(2, "linear.0", "linear", tuple(range(0, 73, 8)), (("head", (32, 48)),), LINEAR_TABLE_0, (10, 10)),
        Read(3, "linear.0", "linear", tuple(range(0, 73, 8)), (("head", (48, 64)),), LINEAR_TABLE_1, (10, 10)),
        Read(2, "linear.1", "linear", tuple(range(1, 74, 8)), (("head", (32, 48)),), LINEAR_TABLE_0, (20, 20)),
        Read(3, "linear.1", "linear", tuple(range(1, 74, 8)), (("head", (48, 64)),), LINEAR_TABLE_1, (20, 20)),
        Read(2, "linear.2", "linear", tuple(range(2, 75, 8)), (("head", (32, 48)),), LINEAR_TABLE_0, (30, 30)),
        Read(3, "linear.2", "linear", tuple(range(2, 75, 8)), (("head", (48, 64)),), LINEAR_TABLE_1, (30, 30)),
        Read(2, "linear.3", "linear", tuple(range(3, 76, 8)), (("head", (32, 48)),), LINEAR_TABLE_0, (40, 40)),
        Read(3, "linear.3", "linear", tuple(range(3, 76, 8)), (("head", (48, 64)),), LINEAR_TABLE_1, (40, 40)),
        Read(2, "linear.4", "linear", tuple(range(4, 77, 8)), (("head", (32, 48)),), LINEAR_TABLE_0, (50, 50)),
        Read(3, "linear.4", "linear", tuple(range(4, 77, 8)), (("head", (48, 64)),), LINEAR_TABLE_1, (50, 50)),
        Read(2, "linear.5", "linear", tuple(range(5, 78, 8)), (("head", (32, 48)),), LINEAR_TABLE_0, (60, 60)),
        Read(3, "linear.5", "linear", tuple(range(5, 78, 8)), (("head", (48, 64)),), LINEAR_TABLE_1, (60, 60)),
        Read(2, "linear.6", "linear", tuple(range(6, 79, 8)), (("head", (32, 48)),), LINEAR_TABLE_0, (70, 70)),
        Read(3, "linear.6", "linear", tuple(range(6, 79, 8)), (("head", (48, 64)),), LINEAR_TABLE_1, (70, 70)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="MiniMax-Text-01",
    model="minimax-text-01",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("attention", "attention", "attention", 512, attention),
        Pair("linear.0", "linear.0", "linear.0", 0, linear_0),
        Pair("linear.1", "linear.1", "linear.1", 0, linear_1),
        Pair("linear.2", "linear.2", "linear.2", 0, linear_2),
        Pair("linear.3", "linear.3", "linear.3", 0, linear_3),
        Pair("linear.4", "linear.4", "linear.4", 0, linear_4),
        Pair("linear.5", "linear.5", "linear.5", 0, linear_5),
        Pair("linear.6", "linear.6", "linear.6", 0, linear_6),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
