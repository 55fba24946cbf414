"""Gemma 4 26B-A4B: prefill tp=1 -> decode tp=4.

Emitted by kvplan from gemma-4-26b, do not edit:
    kvplan compile gemma-4-26b --prefill tp=1 --decode tp=4

full, a page of the first worker that has one:
    prefill  |             head 0            |             head 1            |     131,072 B
             32 tokens; a plane for each of 5 layers
             2 heads, 65,536 B each: [32 tokens, 2,048 B each: k 1,024 B (512 dim x bf16) | v 1,024 B (512 dim x
               bf16)]
    decode   |0 |1 |2 |… |15|                                                       32,768 B
             16 tokens; a plane for each of 5 layers
             1 head, 32,768 B each: [16 tokens, 2,048 B each: k 1,024 B (512 dim x bf16) | v 1,024 B (512 dim x
               bf16)]

sliding, a page of the first worker that has one:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|     131,072 B
             16 tokens; a plane for each of 5 layers of sliding.0, one of 5 groups
             8 heads, 16,384 B each: [16 tokens, 1,024 B each: k 512 B (256 dim x bf16) | v 512 B (256 dim x bf16)]
    decode   | head 0| head 1|                                                      32,768 B
             16 tokens; a plane for each of 5 layers of sliding.0, one of 5 groups
             2 heads, 16,384 B each: [16 tokens, 1,024 B each: k 512 B (256 dim x bf16) | v 512 B (256 dim x bf16)]

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-3, full: 1 read, 5 spans a run of tokens; 320 requests and 10,485,760 B per 1,024 tokens
    decode workers 0-3, sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, each: 1 read, 5 spans a kernel block;
        325 requests and 10,475,520 B per 1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, each: only the last 1,023 tokens.
Prefill: not probed on vllm, whose file alone says how a page is filled: full, sliding.
Decode: not probed on vllm, whose file alone says how a page is filled: full, sliding.
Proved for every decode worker, each byte written once. full: 5 layers x 4,096 B a token, each from its own (layer,
head, token, dim); sliding: 25 layers x 8,192 B a token, each from its own (layer, head, token, dim).
"""

from __future__ import annotations

from kvplan.plan.types import (
    Blocks,
    Group,
    Loop,
    Needs,
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
)

MODEL_DIGEST = "da4910ff424de4ad905ab725d634e579"
PREFILL_DIGEST = "ca5a664f44b1e21a342f0bf3d4660d49"
DECODE_DIGEST = "9df7f053da5696723e7118c17aff75eb"
PLAN_DIGEST = "52313475dfe49d50d8cc23db32e64945"
FUNCTIONS_DIGEST = "ce2287476c6f0f6842bf5255d862eb5e"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_FULL_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 65_536), ("token", 32, 2048), ("dim", 512, 2))),
    View("v", "bf16", 1024, (("head", 2, 65_536), ("token", 32, 2048), ("dim", 512, 2))),
)
PREFILL_SLIDING_VIEWS = (
    View("k", "bf16", 0, (("head", 8, 16_384), ("token", 16, 1024), ("dim", 256, 2))),
    View("v", "bf16", 512, (("head", 8, 16_384), ("token", 16, 1024), ("dim", 256, 2))),
)
DECODE_FULL_VIEWS = (
    View("k", "bf16", 0, (("head", 1, 32_768), ("token", 16, 2048), ("dim", 512, 2))),
    View("v", "bf16", 1024, (("head", 1, 32_768), ("token", 16, 2048), ("dim", 512, 2))),
)
DECODE_SLIDING_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 16_384), ("token", 16, 1024), ("dim", 256, 2))),
    View("v", "bf16", 512, (("head", 2, 16_384), ("token", 16, 1024), ("dim", 256, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
FULL_LOOPS = (("layer", tuple(range(5, 30, 6)), 1),)
SLIDING_LOOPS_0 = (("layer", tuple(range(0, 25, 6)), 1),)
SLIDING_LOOPS_1 = (("layer", tuple(range(1, 26, 6)), 1),)
SLIDING_LOOPS_2 = (("layer", tuple(range(2, 27, 6)), 1),)
SLIDING_LOOPS_3 = (("layer", tuple(range(3, 28, 6)), 1),)
SLIDING_LOOPS_4 = (("layer", tuple(range(4, 29, 6)), 1),)
PREFILL_PLANES = (
    Planes("full", "full", None, 0, FULL_LOOPS, 131_072, 131_072, PREFILL_FULL_VIEWS),
    Planes("sliding", "sliding.0", None, 5, SLIDING_LOOPS_0, 131_072, 131_072, PREFILL_SLIDING_VIEWS),
    Planes("sliding", "sliding.1", None, 10, SLIDING_LOOPS_1, 131_072, 131_072, PREFILL_SLIDING_VIEWS),
    Planes("sliding", "sliding.2", None, 15, SLIDING_LOOPS_2, 131_072, 131_072, PREFILL_SLIDING_VIEWS),
    Planes("sliding", "sliding.3", None, 20, SLIDING_LOOPS_3, 131_072, 131_072, PREFILL_SLIDING_VIEWS),
    Planes("sliding", "sliding.4", None, 25, SLIDING_LOOPS_4, 131_072, 131_072, PREFILL_SLIDING_VIEWS),
)
DECODE_PLANES = (
    Planes("full", "full", None, 0, FULL_LOOPS, 32_768, 32_768, DECODE_FULL_VIEWS),
    Planes("sliding", "sliding.0", None, 5, SLIDING_LOOPS_0, 32_768, 32_768, DECODE_SLIDING_VIEWS),
    Planes("sliding", "sliding.1", None, 10, SLIDING_LOOPS_1, 32_768, 32_768, DECODE_SLIDING_VIEWS),
    Planes("sliding", "sliding.2", None, 15, SLIDING_LOOPS_2, 32_768, 32_768, DECODE_SLIDING_VIEWS),
    Planes("sliding", "sliding.3", None, 20, SLIDING_LOOPS_3, 32_768, 32_768, DECODE_SLIDING_VIEWS),
    Planes("sliding", "sliding.4", None, 25, SLIDING_LOOPS_4, 32_768, 32_768, DECODE_SLIDING_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=1",
    digest=PREFILL_DIGEST,
    groups=(
        Group("full", "tokens", tokens=32, kernel=32, ratio=1, arena=0),
        Group("sliding.0", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.1", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.2", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.3", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.4", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
    ),
    workers=(Worker(PREFILL_PLANES, holds=(("full", "head", (0, 2)), ("sliding", "head", (0, 8)))),),
)

DECODE = Side(
    key="tp=4",
    digest=DECODE_DIGEST,
    groups=(
        Group("full", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.0", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.1", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.2", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.3", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.4", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
    ),
    workers=(
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 1)), ("sliding", "head", (0, 2)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 1)), ("sliding", "head", (2, 4)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (1, 2)), ("sliding", "head", (4, 6)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (1, 2)), ("sliding", "head", (6, 8)))),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_5_LAYERS = (Loop("layer", 5, (1, 0), (1, 0)),)
EACH_5_LAYERS_2_HEADS = (Loop("layer", 5, (1, 0), (1, 0)), Loop("head", 2, (0, 16_384), (0, 16_384)))
FULL_TABLE_0 = Table(token=(Nest(("k", "v"), (0, 0), (0, 0), 2048, EACH_5_LAYERS, (2048, 2048)),))
FULL_TABLE_1 = Table(token=(Nest(("k", "v"), (0, 65_536), (0, 0), 2048, EACH_5_LAYERS, (2048, 2048)),))
SLIDING_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 32_768, EACH_5_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 1024, EACH_5_LAYERS_2_HEADS, (1024, 1024)),),
)
SLIDING_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 32_768), (0, 0), 32_768, EACH_5_LAYERS),),
    token=(Nest(("k", "v"), (0, 32_768), (0, 0), 1024, EACH_5_LAYERS_2_HEADS, (1024, 1024)),),
)
SLIDING_TABLE_2 = Table(
    page=(Nest(("k", "v"), (0, 65_536), (0, 0), 32_768, EACH_5_LAYERS),),
    token=(Nest(("k", "v"), (0, 65_536), (0, 0), 1024, EACH_5_LAYERS_2_HEADS, (1024, 1024)),),
)
SLIDING_TABLE_3 = Table(
    page=(Nest(("k", "v"), (0, 98_304), (0, 0), 32_768, EACH_5_LAYERS),),
    token=(Nest(("k", "v"), (0, 98_304), (0, 0), 1024, EACH_5_LAYERS_2_HEADS, (1024, 1024)),),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def full(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 32 tokens,
    a decode block one kernel block of 16 tokens.
    """
    token, count = cuts(first, end, 16)
    p_block, p_token = divmod(token, 32)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def sliding_0(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 16 tokens on both sides.
    Needed are the last 1023 of all tokens before end.
    """
    low = max(first, end - 1023)
    token, count = cuts(low, end, 16)
    p_block, p_token = divmod(token, 16)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def sliding_1(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 16 tokens on both sides.
    Needed are the last 1023 of all tokens before end.
    """
    low = max(first, end - 1023)
    token, count = cuts(low, end, 16)
    p_block, p_token = divmod(token, 16)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def sliding_2(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 16 tokens on both sides.
    Needed are the last 1023 of all tokens before end.
    """
    low = max(first, end - 1023)
    token, count = cuts(low, end, 16)
    p_block, p_token = divmod(token, 16)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def sliding_3(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 16 tokens on both sides.
    Needed are the last 1023 of all tokens before end.
    """
    low = max(first, end - 1023)
    token, count = cuts(low, end, 16)
    p_block, p_token = divmod(token, 16)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def sliding_4(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 16 tokens on both sides.
    Needed are the last 1023 of all tokens before end.
    """
    low = max(first, end - 1023)
    token, count = cuts(low, end, 16)
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
        Read(0, "full", "full", tuple(range(5, 30, 6)), (("head", (0, 1)),), FULL_TABLE_0),
        Read(0, "sliding.0", "sliding", tuple(range(0, 25, 6)), (("head", (0, 2)),), SLIDING_TABLE_0, (5, 5)),
        Read(0, "sliding.1", "sliding", tuple(range(1, 26, 6)), (("head", (0, 2)),), SLIDING_TABLE_0, (10, 10)),
        Read(0, "sliding.2", "sliding", tuple(range(2, 27, 6)), (("head", (0, 2)),), SLIDING_TABLE_0, (15, 15)),
        Read(0, "sliding.3", "sliding", tuple(range(3, 28, 6)), (("head", (0, 2)),), SLIDING_TABLE_0, (20, 20)),
        Read(0, "sliding.4", "sliding", tuple(range(4, 29, 6)), (("head", (0, 2)),), SLIDING_TABLE_0, (25, 25)),
    ),
    # decode worker 1
    (
        Read(0, "full", "full", tuple(range(5, 30, 6)), (("head", (0, 1)),), FULL_TABLE_0),
        Read(0, "sliding.0", "sliding", tuple(range(0, 25, 6)), (("head", (2, 4)),), SLIDING_TABLE_1, (5, 5)),
        Read(0, "sliding.1", "sliding", tuple(range(1, 26, 6)), (("head", (2, 4)),), SLIDING_TABLE_1, (10, 10)),
        Read(0, "sliding.2", "sliding", tuple(range(2, 27, 6)), (("head", (2, 4)),), SLIDING_TABLE_1, (15, 15)),
        Read(0, "sliding.3", "sliding", tuple(range(3, 28, 6)), (("head", (2, 4)),), SLIDING_TABLE_1, (20, 20)),
        Read(0, "sliding.4", "sliding", tuple(range(4, 29, 6)), (("head", (2, 4)),), SLIDING_TABLE_1, (25, 25)),
    ),
    # decode worker 2
    (
        Read(0, "full", "full", tuple(range(5, 30, 6)), (("head", (1, 2)),), FULL_TABLE_1),
        Read(0, "sliding.0", "sliding", tuple(range(0, 25, 6)), (("head", (4, 6)),), SLIDING_TABLE_2, (5, 5)),
        Read(0, "sliding.1", "sliding", tuple(range(1, 26, 6)), (("head", (4, 6)),), SLIDING_TABLE_2, (10, 10)),
        Read(0, "sliding.2", "sliding", tuple(range(2, 27, 6)), (("head", (4, 6)),), SLIDING_TABLE_2, (15, 15)),
        Read(0, "sliding.3", "sliding", tuple(range(3, 28, 6)), (("head", (4, 6)),), SLIDING_TABLE_2, (20, 20)),
        Read(0, "sliding.4", "sliding", tuple(range(4, 29, 6)), (("head", (4, 6)),), SLIDING_TABLE_2, (25, 25)),
    ),
    # decode worker 3
    (
        Read(0, "full", "full", tuple(range(5, 30, 6)), (("head", (1, 2)),), FULL_TABLE_1),
        Read(0, "sliding.0", "sliding", tuple(range(0, 25, 6)), (("head", (6, 8)),), SLIDING_TABLE_3, (5, 5)),
        Read(0, "sliding.1", "sliding", tuple(range(1, 26, 6)), (("head", (6, 8)),), SLIDING_TABLE_3, (10, 10)),
        Read(0, "sliding.2", "sliding", tuple(range(2, 27, 6)), (("head", (6, 8)),), SLIDING_TABLE_3, (15, 15)),
        Read(0, "sliding.3", "sliding", tuple(range(3, 28, 6)), (("head", (6, 8)),), SLIDING_TABLE_3, (20, 20)),
        Read(0, "sliding.4", "sliding", tuple(range(4, 29, 6)), (("head", (6, 8)),), SLIDING_TABLE_3, (25, 25)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), (), (), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
# Needs: which tokens are read, the last `keep`, those from the last multiple of `chunk` on, the first `sink`.
PLAN = Plan(
    format=1,
    title="Gemma 4 26B-A4B",
    model="gemma-4-26b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("full", "full", "full", 0, full),
        Pair("sliding.0", "sliding.0", "sliding.0", 16, sliding_0, needs=Needs(keep=1023)),
        Pair("sliding.1", "sliding.1", "sliding.1", 16, sliding_1, needs=Needs(keep=1023)),
        Pair("sliding.2", "sliding.2", "sliding.2", 16, sliding_2, needs=Needs(keep=1023)),
        Pair("sliding.3", "sliding.3", "sliding.3", 16, sliding_3, needs=Needs(keep=1023)),
        Pair("sliding.4", "sliding.4", "sliding.4", 16, sliding_4, needs=Needs(keep=1023)),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
