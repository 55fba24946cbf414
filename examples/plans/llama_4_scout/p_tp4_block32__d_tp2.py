"""Llama 4 Scout 17B-16E: prefill tp=4,block=32 -> decode tp=2.

Emitted by kvplan from llama-4-scout, do not edit:
    kvplan compile llama-4-scout --prefill tp=4,block=32 --decode tp=2

full, a page of the first worker that has one:
    prefill  |             head 0            |             head 1            |      32,768 B
             32 tokens; a plane for each of 12 layers
             2 heads, 16,384 B each: [32 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |     head 0    |     head 1    |     head 2    |     head 3    |      32,768 B
             16 tokens; a plane for each of 12 layers
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

local, a page of the first worker that has one:
    prefill  |             head 0            |             head 1            |      32,768 B
             32 tokens; a plane for each of 12 layers of local.0, one of 3 groups
             2 heads, 16,384 B each: [32 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |     head 0    |     head 1    |     head 2    |     head 3    |      32,768 B
             16 tokens; a plane for each of 12 layers of local.0, one of 3 groups
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, full, local.0, local.1, local.2, each: 2 reads, 48 spans a run of tokens; 3,072 requests and
        25,165,824 B per 1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
local.0, local.1, local.2, each: only those from the last multiple of 8,192 on.
Prefill: not probed on vllm, whose file alone says how a page is filled: full, local.
Decode: not probed on vllm, whose file alone says how a page is filled: full, local.
Proved for every decode worker, each byte written once. full: 12 layers x 4,096 B a token, each from its own (layer,
head, token, dim); local: 36 layers x 4,096 B a token, each from its own (layer, head, token, dim).
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

MODEL_DIGEST = "22375e0f22670dc97cba1aad16744c24"
PREFILL_DIGEST = "85f04f1f37b8548f9c7dd24f4ee582f5"
DECODE_DIGEST = "f921af19ec7e9d5e1180bdb4776c4f87"
PLAN_DIGEST = "044396e3b5dc6d5b1a1656bbc4b00754"
FUNCTIONS_DIGEST = "d19e7efe8655a025cdbe46b1f4b1e273"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 16_384), ("token", 32, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 2, 16_384), ("token", 32, 512), ("dim", 128, 2))),
)
DECODE_VIEWS = (
    View("k", "bf16", 0, (("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
FULL_LOOPS = (("layer", tuple(range(3, 48, 4)), 1),)
LOCAL_LOOPS_0 = (("layer", tuple(range(0, 45, 4)), 1),)
LOCAL_LOOPS_1 = (("layer", tuple(range(1, 46, 4)), 1),)
LOCAL_LOOPS_2 = (("layer", tuple(range(2, 47, 4)), 1),)
PREFILL_PLANES = (
    Planes("full", "full", None, 0, FULL_LOOPS, 32_768, 32_768, PREFILL_VIEWS),
    Planes("local", "local.0", None, 12, LOCAL_LOOPS_0, 32_768, 32_768, PREFILL_VIEWS),
    Planes("local", "local.1", None, 24, LOCAL_LOOPS_1, 32_768, 32_768, PREFILL_VIEWS),
    Planes("local", "local.2", None, 36, LOCAL_LOOPS_2, 32_768, 32_768, PREFILL_VIEWS),
)
DECODE_PLANES = (
    Planes("full", "full", None, 0, FULL_LOOPS, 32_768, 32_768, DECODE_VIEWS),
    Planes("local", "local.0", None, 12, LOCAL_LOOPS_0, 32_768, 32_768, DECODE_VIEWS),
    Planes("local", "local.1", None, 24, LOCAL_LOOPS_1, 32_768, 32_768, DECODE_VIEWS),
    Planes("local", "local.2", None, 36, LOCAL_LOOPS_2, 32_768, 32_768, DECODE_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=4,block=32",
    digest=PREFILL_DIGEST,
    groups=(
        Group("full", "tokens", tokens=32, kernel=32, ratio=1, arena=0),
        Group("local.0", "tokens", tokens=32, kernel=32, ratio=1, arena=0),
        Group("local.1", "tokens", tokens=32, kernel=32, ratio=1, arena=0),
        Group("local.2", "tokens", tokens=32, kernel=32, ratio=1, arena=0),
    ),
    workers=(
        Worker(PREFILL_PLANES, holds=(("full", "head", (0, 2)), ("local", "head", (0, 2)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (2, 4)), ("local", "head", (2, 4)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (4, 6)), ("local", "head", (4, 6)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (6, 8)), ("local", "head", (6, 8)))),
    ),
)

DECODE = Side(
    key="tp=2",
    digest=DECODE_DIGEST,
    groups=(
        Group("full", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("local.0", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("local.1", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("local.2", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
    ),
    workers=(
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 4)), ("local", "head", (0, 4)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (4, 8)), ("local", "head", (4, 8)))),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_12_LAYERS_2_HEADS = (Loop("layer", 12, (1, 0), (1, 0)), Loop("head", 2, (0, 16_384), (0, 8192)))
TABLE_0 = Table(token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_12_LAYERS_2_HEADS, (512, 512)),))
TABLE_1 = Table(token=(Nest(("k", "v"), (0, 0), (0, 16_384), 512, EACH_12_LAYERS_2_HEADS, (512, 512)),))


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


def local_0(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 32 tokens,
    a decode block one kernel block of 16 tokens.
    Needed are those in the last chunk of 8192 of all tokens before end.
    """
    low = max(first, end // 8192 * 8192)
    token, count = cuts(low, end, 16)
    p_block, p_token = divmod(token, 32)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def local_1(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 32 tokens,
    a decode block one kernel block of 16 tokens.
    Needed are those in the last chunk of 8192 of all tokens before end.
    """
    low = max(first, end // 8192 * 8192)
    token, count = cuts(low, end, 16)
    p_block, p_token = divmod(token, 32)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def local_2(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 32 tokens,
    a decode block one kernel block of 16 tokens.
    Needed are those in the last chunk of 8192 of all tokens before end.
    """
    low = max(first, end // 8192 * 8192)
    token, count = cuts(low, end, 16)
    p_block, p_token = divmod(token, 32)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "full", "full", tuple(range(3, 48, 4)), (("head", (0, 2)),), TABLE_0),
        Read(1, "full", "full", tuple(range(3, 48, 4)), (("head", (2, 4)),), TABLE_1),
        Read(0, "local.0", "local", tuple(range(0, 45, 4)), (("head", (0, 2)),), TABLE_0, (12, 12)),
        Read(1, "local.0", "local", tuple(range(0, 45, 4)), (("head", (2, 4)),), TABLE_1, (12, 12)),
        Read(0, "local.1", "local", tuple(range(1, 46, 4)), (("head", (0, 2)),), TABLE_0, (24, 24)),
        Read(1, "local.1", "local", tuple(range(1, 46, 4)), (("head", (2, 4)),), TABLE_1, (24, 24)),
        Read(0, "local.2", "local", tuple(range(2, 47, 4)), (("head", (0, 2)),), TABLE_0, (36, 36)),
        Read(1, "local.2", "local", tuple(range(2, 47, 4)), (("head", (2, 4)),), TABLE_1, (36, 36)),
    ),
    # decode worker 1
    (
        Read(2, "full", "full", tuple(range(3, 48, 4)), (("head", (4, 6)),), TABLE_0),
        Read(3, "full", "full", tuple(range(3, 48, 4)), (("head", (6, 8)),), TABLE_1),
        Read(2, "local.0", "local", tuple(range(0, 45, 4)), (("head", (4, 6)),), TABLE_0, (12, 12)),
        Read(3, "local.0", "local", tuple(range(0, 45, 4)), (("head", (6, 8)),), TABLE_1, (12, 12)),
        Read(2, "local.1", "local", tuple(range(1, 46, 4)), (("head", (4, 6)),), TABLE_0, (24, 24)),
        Read(3, "local.1", "local", tuple(range(1, 46, 4)), (("head", (6, 8)),), TABLE_1, (24, 24)),
        Read(2, "local.2", "local", tuple(range(2, 47, 4)), (("head", (4, 6)),), TABLE_0, (36, 36)),
        Read(3, "local.2", "local", tuple(range(2, 47, 4)), (("head", (6, 8)),), TABLE_1, (36, 36)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
# Needs: which tokens are read, the last `keep`, those from the last multiple of `chunk` on, the first `sink`.
PLAN = Plan(
    format=1,
    title="Llama 4 Scout 17B-16E",
    model="llama-4-scout",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("full", "full", "full", 0, full),
        Pair("local.0", "local.0", "local.0", 0, local_0, needs=Needs(chunk=8192)),
        Pair("local.1", "local.1", "local.1", 0, local_1, needs=Needs(chunk=8192)),
        Pair("local.2", "local.2", "local.2", 0, local_2, needs=Needs(chunk=8192)),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
