"""LFM2 1.2B: prefill tp=1 -> decode tp=2.

Emitted by kvplan from lfm2-1.2b, do not edit:
    kvplan compile lfm2-1.2b --prefill tp=1 --decode tp=2

attention, a page of the first worker that has one:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|      32,768 B
             16 tokens; a plane for each of 6 layers
             8 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v 128 B (64 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      16,384 B
             16 tokens; a plane for each of 6 layers
             4 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v 128 B (64 dim x bf16)]

conv, a page of the first worker that has one:
    prefill  |                               x                               |       8,192 B, next 32,768 B on
             one slot; a plane for each of 5 layers of conv.0, one of 2 groups
             x 8,192 B (2,048 channel x 2 tap x bf16)
    decode   |               x               |                                       4,096 B, next 16,384 B on
             one slot; a plane for each of 5 layers of conv.0, one of 2 groups
             x 4,096 B (1,024 channel x 2 tap x bf16)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, attention: 1 read, 6 spans a kernel block; 384 requests and 6,291,456 B per 1,024 tokens
    decode workers 0-1, conv.0, conv.1, each: 1 read, 5 spans a slot; 5 requests and 20,480 B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, conv.
Decode: not probed on vllm, whose file alone says how a page is filled: attention, conv.
Proved for every decode worker, each byte written once. attention: 6 layers x 2,048 B a token, each from its own
(layer, head, token, dim); conv: 10 layers x 8,192 B a state, each from its own (layer, channel, tap).
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

MODEL_DIGEST = "4885bed7cabb0ba61f31749358e2019e"
PREFILL_DIGEST = "ca725a9fd0bd597a98bc8ae13e166fb4"
DECODE_DIGEST = "02a4837a163c9a4b688b5c3dc30ec406"
PLAN_DIGEST = "540e4918a151923704a1c922f632e2e4"
FUNCTIONS_DIGEST = "a9acd02f39659056fb88964de926890b"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 8, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "bf16", 128, (("head", 8, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
PREFILL_CONV_VIEWS = (View("x", "bf16", 0, (("channel", 2048, 4), ("tap", 2, 2))),)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "bf16", 128, (("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
DECODE_CONV_VIEWS = (View("x", "bf16", 0, (("channel", 1024, 4), ("tap", 2, 2))),)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", (2, 5, 8, 10, 12, 14), 1),)
CONV_LOOPS_0 = (("layer", (0, 3, 6, 9, 13), 1),)
CONV_LOOPS_1 = (("layer", (1, 4, 7, 11, 15), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 32_768, 32_768, PREFILL_ATTENTION_VIEWS),
    Planes("conv", "conv.0", None, 6, CONV_LOOPS_0, 8192, 32_768, PREFILL_CONV_VIEWS),
    Planes("conv", "conv.1", None, 11, CONV_LOOPS_1, 8192, 32_768, PREFILL_CONV_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 16_384, 16_384, DECODE_ATTENTION_VIEWS),
    Planes("conv", "conv.0", None, 6, CONV_LOOPS_0, 4096, 16_384, DECODE_CONV_VIEWS),
    Planes("conv", "conv.1", None, 11, CONV_LOOPS_1, 4096, 16_384, DECODE_CONV_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=1",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("conv.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("conv.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 8)), ("conv", "channel", (0, 2048)))),),
)

DECODE = Side(
    key="tp=2",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("conv.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("conv.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)), ("conv", "channel", (0, 1024)))),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)), ("conv", "channel", (1024, 2048)))),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_6_LAYERS = (Loop("layer", 6, (1, 0), (1, 0)),)
EACH_6_LAYERS_4_HEADS = (Loop("layer", 6, (1, 0), (1, 0)), Loop("head", 4, (0, 4096), (0, 4096)))
EACH_5_LAYERS = (Loop("layer", 5, (1, 0), (1, 0)),)
ATTENTION_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 16_384, EACH_6_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 256, EACH_6_LAYERS_4_HEADS, (256, 256)),),
)
ATTENTION_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 16_384), (0, 0), 16_384, EACH_6_LAYERS),),
    token=(Nest(("k", "v"), (0, 16_384), (0, 0), 256, EACH_6_LAYERS_4_HEADS, (256, 256)),),
)
CONV_TABLE_0 = Table(page=(Nest(("x",), (0, 0), (0, 0), 4096, EACH_5_LAYERS),))
CONV_TABLE_1 = Table(page=(Nest(("x",), (0, 4096), (0, 0), 4096, EACH_5_LAYERS),))


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


def conv_0(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def conv_1(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", (2, 5, 8, 10, 12, 14), (("head", (0, 4)),), ATTENTION_TABLE_0),
        Read(0, "conv.0", "conv", (0, 3, 6, 9, 13), (("channel", (0, 1024)),), CONV_TABLE_0, (6, 6)),
        Read(0, "conv.1", "conv", (1, 4, 7, 11, 15), (("channel", (0, 1024)),), CONV_TABLE_0, (11, 11)),
    ),
    # decode worker 1
    (
        Read(0, "attention", "attention", (2, 5, 8, 10, 12, 14), (("head", (4, 8)),), ATTENTION_TABLE_1),
        Read(0, "conv.0", "conv", (0, 3, 6, 9, 13), (("channel", (1024, 2048)),), CONV_TABLE_1, (6, 6)),
        Read(0, "conv.1", "conv", (1, 4, 7, 11, 15), (("channel", (1024, 2048)),), CONV_TABLE_1, (11, 11)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="LFM2 1.2B",
    model="lfm2-1.2b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("attention", "attention", "attention", 16, attention),
        Pair("conv.0", "conv.0", "conv.0", 0, conv_0),
        Pair("conv.1", "conv.1", "conv.1", 0, conv_1),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
