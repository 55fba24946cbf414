"""Whisper large v3: prefill tp=1 -> decode tp=2.

Emitted by kvplan from whisper-large-v3, do not edit:
    kvplan compile whisper-large-v3 --prefill tp=1 --decode tp=2

attention, a page of the first worker that has one:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 19   |      81,920 B
             16 tokens; a plane for each of 32 layers
             20 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]
    decode   |  0  |  1  |  2  |  …  |  9  |                                        40,960 B
             16 tokens; a plane for each of 32 layers
             10 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]

cross, a page of the first worker that has one:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 19   |      81,920 B
             16 tokens; a plane for each of 32 layers
             20 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]
    decode   |  0  |  1  |  2  |  …  |  9  |                                        40,960 B
             16 tokens; a plane for each of 32 layers
             10 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, attention, cross, each: 1 read, 32 spans a kernel block; 2,048 requests and 83,886,080 B per
        1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
cross: tokens are those of 'encoder'.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, cross.
Decode: not probed on vllm, whose file alone says how a page is filled: attention, cross.
Proved for every decode worker, each byte written once. attention: 32 layers x 5,120 B a token, each from its own
(layer, head, token, dim); cross: 32 layers x 5,120 B a token, each from its own (layer, head, token, dim).
"""

from __future__ import annotations

from kvplan.plan.types import Blocks, Group, Loop, Nest, Pair, Plan, Planes, Read, Runs, Side, Table, View, Worker, cuts

MODEL_DIGEST = "08ae06b050c4a16bbaf77e0d05992fc3"
PREFILL_DIGEST = "a3d40b8acee4223181a7cd227c541855"
DECODE_DIGEST = "51ea55ba9cdcb671eb2efea607bb9ac4"
PLAN_DIGEST = "c474d8d9afe4621b936a8cd7ce0f0a2c"
FUNCTIONS_DIGEST = "3cd40fde75b79f85c700579728e01a02"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_VIEWS = (
    View("k", "f16", 0, (("head", 20, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "f16", 128, (("head", 20, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
DECODE_VIEWS = (
    View("k", "f16", 0, (("head", 10, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "f16", 128, (("head", 10, 4096), ("token", 16, 256), ("dim", 64, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
LOOPS = (("layer", tuple(range(32)), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, LOOPS, 81_920, 81_920, PREFILL_VIEWS),
    Planes("cross", "cross", None, 32, LOOPS, 81_920, 81_920, PREFILL_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, LOOPS, 40_960, 40_960, DECODE_VIEWS),
    Planes("cross", "cross", None, 32, LOOPS, 40_960, 40_960, DECODE_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=1",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("cross", "tokens", tokens=16, kernel=16, ratio=1, arena=0, length="encoder"),
    ),
    workers=(Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 20)), ("cross", "head", (0, 20)))),),
)

DECODE = Side(
    key="tp=2",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("cross", "tokens", tokens=16, kernel=16, ratio=1, arena=0, length="encoder"),
    ),
    workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 10)), ("cross", "head", (0, 10)))),
        Worker(DECODE_PLANES, holds=(("attention", "head", (10, 20)), ("cross", "head", (10, 20)))),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_32_LAYERS = (Loop("layer", 32, (1, 0), (1, 0)),)
EACH_32_LAYERS_10_HEADS = (Loop("layer", 32, (1, 0), (1, 0)), Loop("head", 10, (0, 4096), (0, 4096)))
TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 40_960, EACH_32_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 256, EACH_32_LAYERS_10_HEADS, (256, 256)),),
)
TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 40_960), (0, 0), 40_960, EACH_32_LAYERS),),
    token=(Nest(("k", "v"), (0, 40_960), (0, 0), 256, EACH_32_LAYERS_10_HEADS, (256, 256)),),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 16 tokens on both sides.
    """
    token, count = cuts(first, end, 16)
    p_block, p_token = divmod(token, 16)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def cross(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 16 tokens on both sides.
    """
    token, count = cuts(first, end, 16)
    p_block, p_token = divmod(token, 16)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", tuple(range(32)), (("head", (0, 10)),), TABLE_0),
        Read(0, "cross", "cross", tuple(range(32)), (("head", (0, 10)),), TABLE_0, (32, 32)),
    ),
    # decode worker 1
    (
        Read(0, "attention", "attention", tuple(range(32)), (("head", (10, 20)),), TABLE_1),
        Read(0, "cross", "cross", tuple(range(32)), (("head", (10, 20)),), TABLE_1, (32, 32)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="Whisper large v3",
    model="whisper-large-v3",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(Pair("attention", "attention", "attention", 16, attention), Pair("cross", "cross", "cross", 16, cross)),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
