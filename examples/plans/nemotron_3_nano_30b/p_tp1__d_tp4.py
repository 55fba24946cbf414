"""NVIDIA Nemotron 3 Nano 30B-A3B: prefill tp=1 -> decode tp=4.

Emitted by kvplan from nemotron-3-nano-30b, do not edit:
    kvplan compile nemotron-3-nano-30b --prefill tp=1 --decode tp=4

attention, a page of the first worker that has one:
    prefill  |             head 0            |             head 1            |   2,146,304 B
             2,096 tokens; a plane for each of 6 layers
             2 heads, 1,073,152 B each: [2,096 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x
               bf16)]
    decode   |0 |1 |2 |… |10|                                                      540,672 B
             1,056 tokens; a plane for each of 6 layers
             1 head, 540,672 B each: [1,056 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

mamba, a page of the first worker that has one:
    prefill  |x|b|c|                           ssm                           |   2,134,016 B, next 2,146,304 B on
             one slot; a plane for each of 6 layers of mamba.0, one of 4 groups
             x 24,576 B (64 head x 64 hd x 3 tap x bf16)
             b 6,144 B (8 group x 128 st x 3 tap x bf16)
             c 6,144 B (8 group x 128 st x 3 tap x bf16)
             ssm 2,097,152 B (64 head x 64 hd x 128 st x f32)
    decode   |x|b|c|   ssm   |                                                     533,504 B, next 540,672 B on
             one slot; a plane for each of 6 layers of mamba.0, one of 4 groups
             x 6,144 B (16 head x 64 hd x 3 tap x bf16)
             b 1,536 B (2 group x 128 st x 3 tap x bf16)
             c 1,536 B (2 group x 128 st x 3 tap x bf16)
             ssm 524,288 B (16 head x 64 hd x 128 st x f32)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-3, attention: 1 read, 6 spans a run of tokens; 6 requests and 3,145,728 B per 1,024 tokens
    decode workers 0-3, mamba.0, mamba.1, mamba.2, each: 1 read, 24 spans a slot; 24 requests and 3,201,024 B a
        request
    decode workers 0-3, mamba.3: 1 read, 20 spans a slot; 20 requests and 2,667,520 B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, mamba.
Decode: not probed on vllm, whose file alone says how a page is filled: attention, mamba.
Proved for every decode worker, each byte written once. attention: 6 layers x 1,024 B a token, each from its own
(layer, head, token, dim); mamba: 23 layers x 2,134,016 B a state, each from its own (layer, head, hd, tap, group,
st).
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

MODEL_DIGEST = "2e78ffd50f5b547ec7ce3197551a15d9"
PREFILL_DIGEST = "8140d954d5303eee599f8fe2805e3fe6"
DECODE_DIGEST = "203ff9cc3e59e1083ab95d797048afac"
PLAN_DIGEST = "af05a5f6d7023970cbcb66870bb62402"
FUNCTIONS_DIGEST = "95139d94469e2a5cbe2844af6b2f733f"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 2, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
)
PREFILL_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("head", 64, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", 24_576, (("group", 8, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", 30_720, (("group", 8, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", 36_864, (("head", 64, 32_768), ("hd", 64, 512), ("st", 128, 4))),
)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 1, 540_672), ("token", 1056, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 1, 540_672), ("token", 1056, 512), ("dim", 128, 2))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("head", 16, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", 6144, (("group", 2, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", 7680, (("group", 2, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", 9216, (("head", 16, 32_768), ("hd", 64, 512), ("st", 128, 4))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", (5, 12, 19, 26, 33, 42), 1),)
MAMBA_LOOPS_0 = (("layer", (0, 9, 18, 28, 37, 46), 1),)
MAMBA_LOOPS_1 = (("layer", (2, 11, 21, 30, 39, 48), 1),)
MAMBA_LOOPS_2 = (("layer", (4, 14, 23, 32, 41, 50), 1),)
MAMBA_LOOPS_3 = (("layer", (7, 16, 25, 35, 44), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 2_146_304, 2_146_304, PREFILL_ATTENTION_VIEWS),
    Planes("mamba", "mamba.0", None, 6, MAMBA_LOOPS_0, 2_134_016, 2_146_304, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.1", None, 12, MAMBA_LOOPS_1, 2_134_016, 2_146_304, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.2", None, 18, MAMBA_LOOPS_2, 2_134_016, 2_146_304, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.3", None, 24, MAMBA_LOOPS_3, 2_134_016, 2_146_304, PREFILL_MAMBA_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 540_672, 540_672, DECODE_ATTENTION_VIEWS),
    Planes("mamba", "mamba.0", None, 6, MAMBA_LOOPS_0, 533_504, 540_672, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.1", None, 12, MAMBA_LOOPS_1, 533_504, 540_672, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.2", None, 18, MAMBA_LOOPS_2, 533_504, 540_672, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.3", None, 24, MAMBA_LOOPS_3, 533_504, 540_672, DECODE_MAMBA_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=1",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=2096, kernel=2096, ratio=1, arena=0),
        Group("mamba.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.3", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (0, 2)), ("mamba", "group", (0, 8)), ("mamba", "head", (0, 64))),
        ),
    ),
)

DECODE = Side(
    key="tp=4",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=1056, kernel=1056, ratio=1, arena=0),
        Group("mamba.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.3", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            DECODE_PLANES, holds=(("attention", "head", (0, 1)), ("mamba", "group", (0, 2)), ("mamba", "head", (0, 16)))
        ),
        Worker(
            DECODE_PLANES,
            holds=(("attention", "head", (0, 1)), ("mamba", "group", (2, 4)), ("mamba", "head", (16, 32))),
        ),
        Worker(
            DECODE_PLANES,
            holds=(("attention", "head", (1, 2)), ("mamba", "group", (4, 6)), ("mamba", "head", (32, 48))),
        ),
        Worker(
            DECODE_PLANES,
            holds=(("attention", "head", (1, 2)), ("mamba", "group", (6, 8)), ("mamba", "head", (48, 64))),
        ),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_6_LAYERS = (Loop("layer", 6, (1, 0), (1, 0)),)
EACH_5_LAYERS = (Loop("layer", 5, (1, 0), (1, 0)),)
ATTENTION_HOLDS_0 = (("head", (0, 1)),)
ATTENTION_HOLDS_1 = (("head", (1, 2)),)
MAMBA_HOLDS_0 = (("group", (0, 2)), ("head", (0, 16)))
MAMBA_HOLDS_1 = (("group", (2, 4)), ("head", (16, 32)))
MAMBA_HOLDS_2 = (("group", (4, 6)), ("head", (32, 48)))
MAMBA_HOLDS_3 = (("group", (6, 8)), ("head", (48, 64)))
ATTENTION_TABLE_0 = Table(token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_6_LAYERS, (512, 512)),))
ATTENTION_TABLE_1 = Table(token=(Nest(("k", "v"), (0, 1_073_152), (0, 0), 512, EACH_6_LAYERS, (512, 512)),))
MAMBA_TABLE_0 = Table(
    page=(
        Nest(("x",), (0, 0), (0, 0), 6144, EACH_6_LAYERS),
        Nest(("b",), (0, 24_576), (0, 6144), 1536, EACH_6_LAYERS),
        Nest(("c",), (0, 30_720), (0, 7680), 1536, EACH_6_LAYERS),
        Nest(("ssm",), (0, 36_864), (0, 9216), 524_288, EACH_6_LAYERS),
    ),
)
MAMBA_TABLE_1 = Table(
    page=(
        Nest(("x",), (0, 0), (0, 0), 6144, EACH_5_LAYERS),
        Nest(("b",), (0, 24_576), (0, 6144), 1536, EACH_5_LAYERS),
        Nest(("c",), (0, 30_720), (0, 7680), 1536, EACH_5_LAYERS),
        Nest(("ssm",), (0, 36_864), (0, 9216), 524_288, EACH_5_LAYERS),
    ),
)
MAMBA_TABLE_2 = Table(
    page=(
        Nest(("x",), (0, 6144), (0, 0), 6144, EACH_6_LAYERS),
        Nest(("b",), (0, 26_112), (0, 6144), 1536, EACH_6_LAYERS),
        Nest(("c",), (0, 32_256), (0, 7680), 1536, EACH_6_LAYERS),
        Nest(("ssm",), (0, 561_152), (0, 9216), 524_288, EACH_6_LAYERS),
    ),
)
MAMBA_TABLE_3 = Table(
    page=(
        Nest(("x",), (0, 6144), (0, 0), 6144, EACH_5_LAYERS),
        Nest(("b",), (0, 26_112), (0, 6144), 1536, EACH_5_LAYERS),
        Nest(("c",), (0, 32_256), (0, 7680), 1536, EACH_5_LAYERS),
        Nest(("ssm",), (0, 561_152), (0, 9216), 524_288, EACH_5_LAYERS),
    ),
)
MAMBA_TABLE_4 = Table(
    page=(
        Nest(("x",), (0, 12_288), (0, 0), 6144, EACH_6_LAYERS),
        Nest(("b",), (0, 27_648), (0, 6144), 1536, EACH_6_LAYERS),
        Nest(("c",), (0, 33_792), (0, 7680), 1536, EACH_6_LAYERS),
        Nest(("ssm",), (0, 1_085_440), (0, 9216), 524_288, EACH_6_LAYERS),
    ),
)
MAMBA_TABLE_5 = Table(
    page=(
        Nest(("x",), (0, 12_288), (0, 0), 6144, EACH_5_LAYERS),
        Nest(("b",), (0, 27_648), (0, 6144), 1536, EACH_5_LAYERS),
        Nest(("c",), (0, 33_792), (0, 7680), 1536, EACH_5_LAYERS),
        Nest(("ssm",), (0, 1_085_440), (0, 9216), 524_288, EACH_5_LAYERS),
    ),
)
MAMBA_TABLE_6 = Table(
    page=(
        Nest(("x",), (0, 18_432), (0, 0), 6144, EACH_6_LAYERS),
        Nest(("b",), (0, 29_184), (0, 6144), 1536, EACH_6_LAYERS),
        Nest(("c",), (0, 35_328), (0, 7680), 1536, EACH_6_LAYERS),
        Nest(("ssm",), (0, 1_609_728), (0, 9216), 524_288, EACH_6_LAYERS),
    ),
)
MAMBA_TABLE_7 = Table(
    page=(
        Nest(("x",), (0, 18_432), (0, 0), 6144, EACH_5_LAYERS),
        Nest(("b",), (0, 29_184), (0, 6144), 1536, EACH_5_LAYERS),
        Nest(("c",), (0, 35_328), (0, 7680), 1536, EACH_5_LAYERS),
        Nest(("ssm",), (0, 1_609_728), (0, 9216), 524_288, EACH_5_LAYERS),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 2096 tokens,
    a decode block one kernel block of 1056 tokens.
    """
    token, count = cuts(first, end, 1056, 2096)
    p_block, p_token = divmod(token, 2096)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 1056)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def mamba_0(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba_1(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba_2(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba_3(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_0, ATTENTION_TABLE_0),
        Read(0, "mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_0, MAMBA_TABLE_0, (6, 6)),
        Read(0, "mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_0, MAMBA_TABLE_0, (12, 12)),
        Read(0, "mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_0, MAMBA_TABLE_0, (18, 18)),
        Read(0, "mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_0, MAMBA_TABLE_1, (24, 24)),
    ),
    # decode worker 1
    (
        Read(0, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_0, ATTENTION_TABLE_0),
        Read(0, "mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_1, MAMBA_TABLE_2, (6, 6)),
        Read(0, "mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_1, MAMBA_TABLE_2, (12, 12)),
        Read(0, "mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_1, MAMBA_TABLE_2, (18, 18)),
        Read(0, "mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_1, MAMBA_TABLE_3, (24, 24)),
    ),
    # decode worker 2
    (
        Read(0, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_1, ATTENTION_TABLE_1),
        Read(0, "mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_2, MAMBA_TABLE_4, (6, 6)),
        Read(0, "mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_2, MAMBA_TABLE_4, (12, 12)),
        Read(0, "mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_2, MAMBA_TABLE_4, (18, 18)),
        Read(0, "mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_2, MAMBA_TABLE_5, (24, 24)),
    ),
    # decode worker 3
    (
        Read(0, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_1, ATTENTION_TABLE_1),
        Read(0, "mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_3, MAMBA_TABLE_6, (6, 6)),
        Read(0, "mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_3, MAMBA_TABLE_6, (12, 12)),
        Read(0, "mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_3, MAMBA_TABLE_6, (18, 18)),
        Read(0, "mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_3, MAMBA_TABLE_7, (24, 24)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), (), (), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="NVIDIA Nemotron 3 Nano 30B-A3B",
    model="nemotron-3-nano-30b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("attention", "attention", "attention", 0, attention),
        Pair("mamba.0", "mamba.0", "mamba.0", 0, mamba_0),
        Pair("mamba.1", "mamba.1", "mamba.1", 0, mamba_1),
        Pair("mamba.2", "mamba.2", "mamba.2", 0, mamba_2),
        Pair("mamba.3", "mamba.3", "mamba.3", 0, mamba_3),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
