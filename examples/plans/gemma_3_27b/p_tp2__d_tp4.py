"""Gemma 3 27B: prefill tp=2 -> decode tp=4.

Emitted by kvplan from gemma-3-27b, do not edit:
    kvplan compile gemma-3-27b --prefill tp=2 --decode tp=4

full, a page of the first worker that has one:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|      65,536 B
             16 tokens; a plane for each of 10 layers
             8 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      32,768 B
             16 tokens; a plane for each of 10 layers
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

sliding, a page of the first worker that has one:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|      65,536 B
             16 tokens; a plane for each of 9 layers of sliding.0, one of 6 groups
             8 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      32,768 B
             16 tokens; a plane for each of 9 layers of sliding.0, one of 6 groups
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-3, full: 1 read, 10 spans a kernel block; 640 requests and 20,971,520 B per 1,024 tokens
    decode workers 0-3, sliding.0, sliding.1, sliding.2, sliding.3, each: 1 read, 9 spans a kernel block; 603
        requests and 18,855,936 B per 1,024 tokens
    decode workers 0-3, sliding.4, sliding.5, each: 1 read, 8 spans a kernel block; 536 requests and 16,760,832 B
        per 1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, sliding.5, each: only the last 1,023 tokens.
Prefill: not probed on vllm, whose file alone says how a page is filled: full, sliding.
Decode: not probed on vllm, whose file alone says how a page is filled: full, sliding.
Proved for every decode worker, each byte written once. full: 10 layers x 8,192 B a token, each from its own (layer,
head, token, dim); sliding: 52 layers x 8,192 B a token, each from its own (layer, head, token, dim).
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

MODEL_DIGEST = "c69070f6839acf10e5b38bda8baed07a"
PREFILL_DIGEST = "5d155c59dcdb262c50a56fdc140a90fb"
DECODE_DIGEST = "12300b66e0b4149f7ff57512f88a832f"
PLAN_DIGEST = "ec29cfaed3096c3f433ed6793ec1eb84"
FUNCTIONS_DIGEST = "3904293f1fc88a695ccf683ad501e1d0"

# Layers, by their numbers in the whole model.
SLIDING_LAYERS_0 = (0, 7, 14, 21, 28, 36, 43, 50, 57)
SLIDING_LAYERS_1 = (1, 8, 15, 22, 30, 37, 44, 51, 58)
SLIDING_LAYERS_2 = (2, 9, 16, 24, 31, 38, 45, 52, 60)
SLIDING_LAYERS_3 = (3, 10, 18, 25, 32, 39, 46, 54, 61)
SLIDING_LAYERS_4 = (4, 12, 19, 26, 33, 40, 48, 55)
SLIDING_LAYERS_5 = (6, 13, 20, 27, 34, 42, 49, 56)

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_VIEWS = (
    View("k", "bf16", 0, (("head", 8, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 8, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
DECODE_VIEWS = (
    View("k", "bf16", 0, (("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
FULL_LOOPS = (("layer", tuple(range(5, 60, 6)), 1),)
SLIDING_LOOPS_0 = (("layer", SLIDING_LAYERS_0, 1),)
SLIDING_LOOPS_1 = (("layer", SLIDING_LAYERS_1, 1),)
SLIDING_LOOPS_2 = (("layer", SLIDING_LAYERS_2, 1),)
SLIDING_LOOPS_3 = (("layer", SLIDING_LAYERS_3, 1),)
SLIDING_LOOPS_4 = (("layer", SLIDING_LAYERS_4, 1),)
SLIDING_LOOPS_5 = (("layer", SLIDING_LAYERS_5, 1),)
PREFILL_PLANES = (
    Planes("full", "full", None, 0, FULL_LOOPS, 65_536, 65_536, PREFILL_VIEWS),
    Planes("sliding", "sliding.0", None, 10, SLIDING_LOOPS_0, 65_536, 65_536, PREFILL_VIEWS),
    Planes("sliding", "sliding.1", None, 19, SLIDING_LOOPS_1, 65_536, 65_536, PREFILL_VIEWS),
    Planes("sliding", "sliding.2", None, 28, SLIDING_LOOPS_2, 65_536, 65_536, PREFILL_VIEWS),
    Planes("sliding", "sliding.3", None, 37, SLIDING_LOOPS_3, 65_536, 65_536, PREFILL_VIEWS),
    Planes("sliding", "sliding.4", None, 46, SLIDING_LOOPS_4, 65_536, 65_536, PREFILL_VIEWS),
    Planes("sliding", "sliding.5", None, 54, SLIDING_LOOPS_5, 65_536, 65_536, PREFILL_VIEWS),
)
DECODE_PLANES = (
    Planes("full", "full", None, 0, FULL_LOOPS, 32_768, 32_768, DECODE_VIEWS),
    Planes("sliding", "sliding.0", None, 10, SLIDING_LOOPS_0, 32_768, 32_768, DECODE_VIEWS),
    Planes("sliding", "sliding.1", None, 19, SLIDING_LOOPS_1, 32_768, 32_768, DECODE_VIEWS),
    Planes("sliding", "sliding.2", None, 28, SLIDING_LOOPS_2, 32_768, 32_768, DECODE_VIEWS),
    Planes("sliding", "sliding.3", None, 37, SLIDING_LOOPS_3, 32_768, 32_768, DECODE_VIEWS),
    Planes("sliding", "sliding.4", None, 46, SLIDING_LOOPS_4, 32_768, 32_768, DECODE_VIEWS),
    Planes("sliding", "sliding.5", None, 54, SLIDING_LOOPS_5, 32_768, 32_768, DECODE_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=2",
    digest=PREFILL_DIGEST,
    groups=(
        Group("full", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.0", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.1", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.2", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.3", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.4", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("sliding.5", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
    ),
    workers=(
        Worker(PREFILL_PLANES, holds=(("full", "head", (0, 8)), ("sliding", "head", (0, 8)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (8, 16)), ("sliding", "head", (8, 16)))),
    ),
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
        Group("sliding.5", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
    ),
    workers=(
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 4)), ("sliding", "head", (0, 4)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (4, 8)), ("sliding", "head", (4, 8)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (8, 12)), ("sliding", "head", (8, 12)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (12, 16)), ("sliding", "head", (12, 16)))),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_10_LAYERS = (Loop("layer", 10, (1, 0), (1, 0)),)
EACH_10_LAYERS_4_HEADS = (Loop("layer", 10, (1, 0), (1, 0)), Loop("head", 4, (0, 8192), (0, 8192)))
EACH_9_LAYERS = (Loop("layer", 9, (1, 0), (1, 0)),)
EACH_9_LAYERS_4_HEADS = (Loop("layer", 9, (1, 0), (1, 0)), Loop("head", 4, (0, 8192), (0, 8192)))
EACH_8_LAYERS = (Loop("layer", 8, (1, 0), (1, 0)),)
EACH_8_LAYERS_4_HEADS = (Loop("layer", 8, (1, 0), (1, 0)), Loop("head", 4, (0, 8192), (0, 8192)))
FULL_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 32_768, EACH_10_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_10_LAYERS_4_HEADS, (512, 512)),),
)
FULL_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 32_768), (0, 0), 32_768, EACH_10_LAYERS),),
    token=(Nest(("k", "v"), (0, 32_768), (0, 0), 512, EACH_10_LAYERS_4_HEADS, (512, 512)),),
)
SLIDING_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 32_768, EACH_9_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_9_LAYERS_4_HEADS, (512, 512)),),
)
SLIDING_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 32_768, EACH_8_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_8_LAYERS_4_HEADS, (512, 512)),),
)
SLIDING_TABLE_2 = Table(
    page=(Nest(("k", "v"), (0, 32_768), (0, 0), 32_768, EACH_9_LAYERS),),
    token=(Nest(("k", "v"), (0, 32_768), (0, 0), 512, EACH_9_LAYERS_4_HEADS, (512, 512)),),
)
SLIDING_TABLE_3 = Table(
    page=(Nest(("k", "v"), (0, 32_768), (0, 0), 32_768, EACH_8_LAYERS),),
    token=(Nest(("k", "v"), (0, 32_768), (0, 0), 512, EACH_8_LAYERS_4_HEADS, (512, 512)),),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def full(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 16 tokens on both sides.
    """
    token, count = cuts(first, end, 16)
    p_block, p_token = divmod(token, 16)
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


def sliding_5(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
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
        Read(0, "full", "full", tuple(range(5, 60, 6)), (("head", (0, 4)),), FULL_TABLE_0),
        Read(0, "sliding.0", "sliding", SLIDING_LAYERS_0, (("head", (0, 4)),), SLIDING_TABLE_0, (10, 10)),
        Read(0, "sliding.1", "sliding", SLIDING_LAYERS_1, (("head", (0, 4)),), SLIDING_TABLE_0, (19, 19)),
        Read(0, "sliding.2", "sliding", SLIDING_LAYERS_2, (("head", (0, 4)),), SLIDING_TABLE_0, (28, 28)),
        Read(0, "sliding.3", "sliding", SLIDING_LAYERS_3, (("head", (0, 4)),), SLIDING_TABLE_0, (37, 37)),
        Read(0, "sliding.4", "sliding", SLIDING_LAYERS_4, (("head", (0, 4)),), SLIDING_TABLE_1, (46, 46)),
        Read(0, "sliding.5", "sliding", SLIDING_LAYERS_5, (("head", (0, 4)),), SLIDING_TABLE_1, (54, 54)),
    ),
    # decode worker 1
    (
        Read(0, "full", "full", tuple(range(5, 60, 6)), (("head", (4, 8)),), FULL_TABLE_1),
        Read(0, "sliding.0", "sliding", SLIDING_LAYERS_0, (("head", (4, 8)),), SLIDING_TABLE_2, (10, 10)),
        Read(0, "sliding.1", "sliding", SLIDING_LAYERS_1, (("head", (4, 8)),), SLIDING_TABLE_2, (19, 19)),
        Read(0, "sliding.2", "sliding", SLIDING_LAYERS_2, (("head", (4, 8)),), SLIDING_TABLE_2, (28, 28)),
        Read(0, "sliding.3", "sliding", SLIDING_LAYERS_3, (("head", (4, 8)),), SLIDING_TABLE_2, (37, 37)),
        Read(0, "sliding.4", "sliding", SLIDING_LAYERS_4, (("head", (4, 8)),), SLIDING_TABLE_3, (46, 46)),
        Read(0, "sliding.5", "sliding", SLIDING_LAYERS_5, (("head", (4, 8)),), SLIDING_TABLE_3, (54, 54)),
    ),
    # decode worker 2
    (
        Read(1, "full", "full", tuple(range(5, 60, 6)), (("head", (8, 12)),), FULL_TABLE_0),
        Read(1, "sliding.0", "sliding", SLIDING_LAYERS_0, (("head", (8, 12)),), SLIDING_TABLE_0, (10, 10)),
        Read(1, "sliding.1", "sliding", SLIDING_LAYERS_1, (("head", (8, 12)),), SLIDING_TABLE_0, (19, 19)),
        Read(1, "sliding.2", "sliding", SLIDING_LAYERS_2, (("head", (8, 12)),), SLIDING_TABLE_0, (28, 28)),
        Read(1, "sliding.3", "sliding", SLIDING_LAYERS_3, (("head", (8, 12)),), SLIDING_TABLE_0, (37, 37)),
        Read(1, "sliding.4", "sliding", SLIDING_LAYERS_4, (("head", (8, 12)),), SLIDING_TABLE_1, (46, 46)),
        Read(1, "sliding.5", "sliding", SLIDING_LAYERS_5, (("head", (8, 12)),), SLIDING_TABLE_1, (54, 54)),
    ),
    # decode worker 3
    (
        Read(1, "full", "full", tuple(range(5, 60, 6)), (("head", (12, 16)),), FULL_TABLE_1),
        Read(1, "sliding.0", "sliding", SLIDING_LAYERS_0, (("head", (12, 16)),), SLIDING_TABLE_2, (10, 10)),
        Read(1, "sliding.1", "sliding", SLIDING_LAYERS_1, (("head", (12, 16)),), SLIDING_TABLE_2, (19, 19)),
        Read(1, "sliding.2", "sliding", SLIDING_LAYERS_2, (("head", (12, 16)),), SLIDING_TABLE_2, (28, 28)),
        Read(1, "sliding.3", "sliding", SLIDING_LAYERS_3, (("head", (12, 16)),), SLIDING_TABLE_2, (37, 37)),
        Read(1, "sliding.4", "sliding", SLIDING_LAYERS_4, (("head", (12, 16)),), SLIDING_TABLE_3, (46, 46)),
        Read(1, "sliding.5", "sliding", SLIDING_LAYERS_5, (("head", (12, 16)),), SLIDING_TABLE_3, (54, 54)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), (), (), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
# Needs: which tokens are read, the last `keep`, those from the last multiple of `chunk` on, the first `sink`.
PLAN = Plan(
    format=1,
    title="Gemma 3 27B",
    model="gemma-3-27b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("full", "full", "full", 16, full),
        Pair("sliding.0", "sliding.0", "sliding.0", 16, sliding_0, needs=Needs(keep=1023)),
        Pair("sliding.1", "sliding.1", "sliding.1", 16, sliding_1, needs=Needs(keep=1023)),
        Pair("sliding.2", "sliding.2", "sliding.2", 16, sliding_2, needs=Needs(keep=1023)),
        Pair("sliding.3", "sliding.3", "sliding.3", 16, sliding_3, needs=Needs(keep=1023)),
        Pair("sliding.4", "sliding.4", "sliding.4", 16, sliding_4, needs=Needs(keep=1023)),
        Pair("sliding.5", "sliding.5", "sliding.5", 16, sliding_5, needs=Needs(keep=1023)),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
