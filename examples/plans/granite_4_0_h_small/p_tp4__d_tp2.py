"""IBM Granite 4.0 H Small: prefill tp=4 -> decode tp=2.

Emitted by kvplan from granite-4.0-h-small, do not edit:
    kvplan compile granite-4.0-h-small --prefill tp=4 --decode tp=2

attention, a page of the first worker that has one:
    prefill  |     head 0    |     head 1    |                                     540,672 B
             528 tokens; a plane for each of 4 layers
             2 heads, 270,336 B each: [528 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |     head 0    |     head 1    |     head 2    |     head 3    |   1,081,344 B
             528 tokens; a plane for each of 4 layers
             4 heads, 270,336 B each: [528 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

mamba, a page of the first worker that has one:
    prefill  |x|b|c|           ssm           |                                     538,112 B, next 540,672 B on
             one slot; a plane for each of 4 layers of mamba.0, one of 9 groups
             x 12,288 B (32 head x 64 hd x 3 tap x bf16)
             b 768 B (1 group x 128 st x 3 tap x bf16)
             c 768 B (1 group x 128 st x 3 tap x bf16)
             ssm 524,288 B (32 head x 64 hd x 128 st x bf16)
    decode   |x|b|c|                           ssm                           |   1,074,688 B, next 1,081,344 B on
             one slot; a plane for each of 4 layers of mamba.0, one of 9 groups
             x 24,576 B (64 head x 64 hd x 3 tap x bf16)
             b 768 B (1 group x 128 st x 3 tap x bf16)
             c 768 B (1 group x 128 st x 3 tap x bf16)
             ssm 1,048,576 B (64 head x 64 hd x 128 st x bf16)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, attention: 2 reads, 8 spans a kernel block; 24 requests and 8,388,608 B per 1,024 tokens
    decode workers 0-1, mamba.0, mamba.1, mamba.2, mamba.3, mamba.4, mamba.5, mamba.6, mamba.7, mamba.8, each: 2
        reads, 16 spans a slot; 16 requests and 4,298,752 B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, mamba.
Decode: not probed on vllm, whose file alone says how a page is filled: attention, mamba.
Proved for every decode worker, each byte written once. attention: 4 layers x 4,096 B a token, each from its own
(layer, head, token, dim); mamba: 36 layers x 2,147,840 B a state, each from its own (layer, head, hd, tap, group,
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

MODEL_DIGEST = "768c01a2e3579a4c2fab7cf8d8e62476"
PREFILL_DIGEST = "1b655130bf8a8aff1125e2b117384432"
DECODE_DIGEST = "64703287c83b13324b13d406800b1fef"
PLAN_DIGEST = "df59f2986dd4d7560d6f1a3ed7cd8ffa"
FUNCTIONS_DIGEST = "739b338236b1ddfbad5f856a5fe87281"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 270_336), ("token", 528, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 2, 270_336), ("token", 528, 512), ("dim", 128, 2))),
)
PREFILL_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("head", 32, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", 12_288, (("group", 1, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", 13_056, (("group", 1, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "bf16", 13_824, (("head", 32, 16_384), ("hd", 64, 256), ("st", 128, 2))),
)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 4, 270_336), ("token", 528, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 4, 270_336), ("token", 528, 512), ("dim", 128, 2))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("head", 64, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", 24_576, (("group", 1, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", 25_344, (("group", 1, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "bf16", 26_112, (("head", 64, 16_384), ("hd", 64, 256), ("st", 128, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", tuple(range(5, 36, 10)), 1),)
MAMBA_LOOPS_0 = (("layer", tuple(range(0, 31, 10)), 1),)
MAMBA_LOOPS_1 = (("layer", tuple(range(1, 32, 10)), 1),)
MAMBA_LOOPS_2 = (("layer", tuple(range(2, 33, 10)), 1),)
MAMBA_LOOPS_3 = (("layer", tuple(range(3, 34, 10)), 1),)
MAMBA_LOOPS_4 = (("layer", tuple(range(4, 35, 10)), 1),)
MAMBA_LOOPS_5 = (("layer", tuple(range(6, 37, 10)), 1),)
MAMBA_LOOPS_6 = (("layer", tuple(range(7, 38, 10)), 1),)
MAMBA_LOOPS_7 = (("layer", tuple(range(8, 39, 10)), 1),)
MAMBA_LOOPS_8 = (("layer", tuple(range(9, 40, 10)), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 540_672, 540_672, PREFILL_ATTENTION_VIEWS),
    Planes("mamba", "mamba.0", None, 4, MAMBA_LOOPS_0, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.1", None, 8, MAMBA_LOOPS_1, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.2", None, 12, MAMBA_LOOPS_2, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.3", None, 16, MAMBA_LOOPS_3, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.4", None, 20, MAMBA_LOOPS_4, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.5", None, 24, MAMBA_LOOPS_5, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.6", None, 28, MAMBA_LOOPS_6, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.7", None, 32, MAMBA_LOOPS_7, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
    Planes("mamba", "mamba.8", None, 36, MAMBA_LOOPS_8, 538_112, 540_672, PREFILL_MAMBA_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 1_081_344, 1_081_344, DECODE_ATTENTION_VIEWS),
    Planes("mamba", "mamba.0", None, 4, MAMBA_LOOPS_0, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.1", None, 8, MAMBA_LOOPS_1, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.2", None, 12, MAMBA_LOOPS_2, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.3", None, 16, MAMBA_LOOPS_3, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.4", None, 20, MAMBA_LOOPS_4, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.5", None, 24, MAMBA_LOOPS_5, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.6", None, 28, MAMBA_LOOPS_6, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.7", None, 32, MAMBA_LOOPS_7, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.8", None, 36, MAMBA_LOOPS_8, 1_074_688, 1_081_344, DECODE_MAMBA_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=4",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=528, kernel=528, ratio=1, arena=0),
        Group("mamba.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.3", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.4", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.5", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.6", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.7", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.8", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (0, 2)), ("mamba", "group", (0, 1)), ("mamba", "head", (0, 32))),
        ),
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (2, 4)), ("mamba", "group", (0, 1)), ("mamba", "head", (32, 64))),
        ),
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (4, 6)), ("mamba", "group", (0, 1)), ("mamba", "head", (64, 96))),
        ),
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (6, 8)), ("mamba", "group", (0, 1)), ("mamba", "head", (96, 128))),
        ),
    ),
)

DECODE = Side(
    key="tp=2",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=528, kernel=528, ratio=1, arena=0),
        Group("mamba.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.3", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.4", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.5", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.6", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.7", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.8", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            DECODE_PLANES, holds=(("attention", "head", (0, 4)), ("mamba", "group", (0, 1)), ("mamba", "head", (0, 64)))
        ),
        Worker(
            DECODE_PLANES,
            holds=(("attention", "head", (4, 8)), ("mamba", "group", (0, 1)), ("mamba", "head", (64, 128))),
        ),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_4_LAYERS = (Loop("layer", 4, (1, 0), (1, 0)),)
EACH_4_LAYERS_2_HEADS = (Loop("layer", 4, (1, 0), (1, 0)), Loop("head", 2, (0, 270_336), (0, 270_336)))
ATTENTION_HOLDS_0 = (("head", (0, 2)),)
ATTENTION_HOLDS_1 = (("head", (2, 4)),)
ATTENTION_HOLDS_2 = (("head", (4, 6)),)
ATTENTION_HOLDS_3 = (("head", (6, 8)),)
MAMBA_HOLDS_0 = (("group", (0, 1)), ("head", (0, 32)))
MAMBA_HOLDS_1 = (("head", (32, 64)),)
MAMBA_HOLDS_2 = (("group", (0, 1)), ("head", (64, 96)))
MAMBA_HOLDS_3 = (("head", (96, 128)),)
ATTENTION_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 540_672, EACH_4_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_4_LAYERS_2_HEADS, (512, 512)),),
)
ATTENTION_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 540_672), 540_672, EACH_4_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 540_672), 512, EACH_4_LAYERS_2_HEADS, (512, 512)),),
)
MAMBA_TABLE_0 = Table(
    page=(
        Nest(("x",), (0, 0), (0, 0), 12_288, EACH_4_LAYERS),
        Nest(("b", "c", "ssm"), (0, 12_288), (0, 24_576), 525_824, EACH_4_LAYERS),
    ),
)
MAMBA_TABLE_1 = Table(
    page=(
        Nest(("x",), (0, 0), (0, 12_288), 12_288, EACH_4_LAYERS),
        Nest(("ssm",), (0, 13_824), (0, 550_400), 524_288, EACH_4_LAYERS),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 528 tokens on both sides.
    """
    token, count = cuts(first, end, 528)
    p_block, p_token = divmod(token, 528)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 528)
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


def mamba_4(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba_5(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba_6(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba_7(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba_8(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", tuple(range(5, 36, 10)), ATTENTION_HOLDS_0, ATTENTION_TABLE_0),
        Read(1, "attention", "attention", tuple(range(5, 36, 10)), ATTENTION_HOLDS_1, ATTENTION_TABLE_1),
        Read(0, "mamba.0", "mamba", tuple(range(0, 31, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (4, 4)),
        Read(1, "mamba.0", "mamba", tuple(range(0, 31, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (4, 4)),
        Read(0, "mamba.1", "mamba", tuple(range(1, 32, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (8, 8)),
        Read(1, "mamba.1", "mamba", tuple(range(1, 32, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (8, 8)),
        Read(0, "mamba.2", "mamba", tuple(range(2, 33, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (12, 12)),
        Read(1, "mamba.2", "mamba", tuple(range(2, 33, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (12, 12)),
        Read(0, "mamba.3", "mamba", tuple(range(3, 34, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (16, 16)),
        Read(1, "mamba.3", "mamba", tuple(range(3, 34, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (16, 16)),
        Read(0, "mamba.4", "mamba", tuple(range(4, 35, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (20, 20)),
        Read(1, "mamba.4", "mamba", tuple(range(4, 35, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (20, 20)),
        Read(0, "mamba.5", "mamba", tuple(range(6, 37, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (24, 24)),
        Read(1, "mamba.5", "mamba", tuple(range(6, 37, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (24, 24)),
        Read(0, "mamba.6", "mamba", tuple(range(7, 38, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (28, 28)),
        Read(1, "mamba.6", "mamba", tuple(range(7, 38, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (28, 28)),
        Read(0, "mamba.7", "mamba", tuple(range(8, 39, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (32, 32)),
        Read(1, "mamba.7", "mamba", tuple(range(8, 39, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (32, 32)),
        Read(0, "mamba.8", "mamba", tuple(range(9, 40, 10)), MAMBA_HOLDS_0, MAMBA_TABLE_0, (36, 36)),
        Read(1, "mamba.8", "mamba", tuple(range(9, 40, 10)), MAMBA_HOLDS_1, MAMBA_TABLE_1, (36, 36)),
    ),
    # decode worker 1
    (
        Read(2, "attention", "attention", tuple(range(5, 36, 10)), ATTENTION_HOLDS_2, ATTENTION_TABLE_0),
        Read(3, "attention", "attention", tuple(range(5, 36, 10)), ATTENTION_HOLDS_3, ATTENTION_TABLE_1),
        Read(2, "mamba.0", "mamba", tuple(range(0, 31, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (4, 4)),
        Read(3, "mamba.0", "mamba", tuple(range(0, 31, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (4, 4)),
        Read(2, "mamba.1", "mamba", tuple(range(1, 32, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (8, 8)),
        Read(3, "mamba.1", "mamba", tuple(range(1, 32, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (8, 8)),
        Read(2, "mamba.2", "mamba", tuple(range(2, 33, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (12, 12)),
        Read(3, "mamba.2", "mamba", tuple(range(2, 33, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (12, 12)),
        Read(2, "mamba.3", "mamba", tuple(range(3, 34, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (16, 16)),
        Read(3, "mamba.3", "mamba", tuple(range(3, 34, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (16, 16)),
        Read(2, "mamba.4", "mamba", tuple(range(4, 35, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (20, 20)),
        Read(3, "mamba.4", "mamba", tuple(range(4, 35, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (20, 20)),
        Read(2, "mamba.5", "mamba", tuple(range(6, 37, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (24, 24)),
        Read(3, "mamba.5", "mamba", tuple(range(6, 37, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (24, 24)),
        Read(2, "mamba.6", "mamba", tuple(range(7, 38, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (28, 28)),
        Read(3, "mamba.6", "mamba", tuple(range(7, 38, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (28, 28)),
        Read(2, "mamba.7", "mamba", tuple(range(8, 39, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (32, 32)),
        Read(3, "mamba.7", "mamba", tuple(range(8, 39, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (32, 32)),
        Read(2, "mamba.8", "mamba", tuple(range(9, 40, 10)), MAMBA_HOLDS_2, MAMBA_TABLE_0, (36, 36)),
        Read(3, "mamba.8", "mamba", tuple(range(9, 40, 10)), MAMBA_HOLDS_3, MAMBA_TABLE_1, (36, 36)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="IBM Granite 4.0 H Small",
    model="granite-4.0-h-small",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("attention", "attention", "attention", 528, attention),
        Pair("mamba.0", "mamba.0", "mamba.0", 0, mamba_0),
        Pair("mamba.1", "mamba.1", "mamba.1", 0, mamba_1),
        Pair("mamba.2", "mamba.2", "mamba.2", 0, mamba_2),
        Pair("mamba.3", "mamba.3", "mamba.3", 0, mamba_3),
        Pair("mamba.4", "mamba.4", "mamba.4", 0, mamba_4),
        Pair("mamba.5", "mamba.5", "mamba.5", 0, mamba_5),
        Pair("mamba.6", "mamba.6", "mamba.6", 0, mamba_6),
        Pair("mamba.7", "mamba.7", "mamba.7", 0, mamba_7),
        Pair("mamba.8", "mamba.8", "mamba.8", 0, mamba_8),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
