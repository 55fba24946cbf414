"""Qwen3-Next 80B-A3B: prefill tp=2 -> decode tp=1,conv=SD.

Emitted by kvplan from qwen3-next-80b, do not edit:
    kvplan compile qwen3-next-80b --prefill tp=2 --decode tp=1,conv=SD

attention, a page of the first worker that has one:
    prefill  |  0  |  1  |  2  |  …  | 543 |                                       557,056 B
             544 tokens; a plane for each of 12 layers
             1 head, 557,056 B each: [544 tokens, 1,024 B each: k 512 B (256 dim x bf16) | v 512 B (256 dim x bf16)]
    decode   |             head 0            |             head 1            |   1,114,112 B
             544 tokens; a plane for each of 12 layers
             2 heads, 557,056 B each: [544 tokens, 1,024 B each: k 512 B (256 dim x bf16) | v 512 B (256 dim x
               bf16)]

delta, a page of the first worker that has one:
    prefill  |q|k|v|           ssm           |                                     548,864 B, next 557,056 B on
             one slot; a plane for each of 12 layers of delta.0, one of 3 groups
             q 6,144 B (8 key_head x 128 kd x 3 tap x bf16)
             k 6,144 B (8 key_head x 128 kd x 3 tap x bf16)
             v 12,288 B (16 head x 128 hd x 3 tap x bf16)
             ssm 524,288 B (16 head x 128 hd x 128 kd x bf16)
    decode   |0|1|2|                           ssm                           |   1,097,728 B, next 1,114,112 B on
             one slot; a plane for each of 12 layers of delta.0, one of 3 groups
             3 taps, 16,384 B each: q 4,096 B (16 key_head x 128 kd x bf16) | k 4,096 B (16 key_head x 128 kd x
               bf16) | v 8,192 B (32 head x 128 hd x bf16)
             ssm 1,048,576 B (32 head x 128 hd x 128 kd x bf16)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode worker 0, attention: 2 reads, 24 spans a kernel block; 48 requests and 25,165,824 B per 1,024 tokens
    decode worker 0, delta.0, delta.1, delta.2, each: 2 reads, 294,936 spans a slot; 294,936 requests and 13,172,736
        B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: draft is not stored (when draft_tokens > 0).
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, delta.
Decode: draft is not stored (when draft_tokens > 0).
Decode: not probed on vllm, whose file alone says how a page is filled: attention, delta.
Proved for every decode worker, each byte written once. attention: 12 layers x 2,048 B a token, each from its own
(layer, head, token, dim); delta: 36 layers x 1,097,728 B a state, each from its own (layer, key_head, kd, tap,
head, hd).
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

MODEL_DIGEST = "2d629023e9def50c5dab29593c8437e6"
PREFILL_DIGEST = "d13a304d799b2847244fe8f5c8dcc48a"
DECODE_DIGEST = "7932f4ad300065eb6e1dae37cd9d6db2"
PLAN_DIGEST = "37a7c806960c5bd93617620b875b712c"
FUNCTIONS_DIGEST = "0e818edc703cade204c1ee3f907154d4"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 1, 557_056), ("token", 544, 1024), ("dim", 256, 2))),
    View("v", "bf16", 512, (("head", 1, 557_056), ("token", 544, 1024), ("dim", 256, 2))),
)
PREFILL_DELTA_VIEWS = (
    View("q", "bf16", 0, (("key_head", 8, 768), ("kd", 128, 6), ("tap", 3, 2))),
    View("k", "bf16", 6144, (("key_head", 8, 768), ("kd", 128, 6), ("tap", 3, 2))),
    View("v", "bf16", 12_288, (("head", 16, 768), ("hd", 128, 6), ("tap", 3, 2))),
    View("ssm", "bf16", 24_576, (("head", 16, 32_768), ("hd", 128, 256), ("kd", 128, 2))),
)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 557_056), ("token", 544, 1024), ("dim", 256, 2))),
    View("v", "bf16", 512, (("head", 2, 557_056), ("token", 544, 1024), ("dim", 256, 2))),
)
DECODE_DELTA_VIEWS = (
    View("q", "bf16", 0, (("tap", 3, 16_384), ("key_head", 16, 256), ("kd", 128, 2))),
    View("k", "bf16", 4096, (("tap", 3, 16_384), ("key_head", 16, 256), ("kd", 128, 2))),
    View("v", "bf16", 8192, (("tap", 3, 16_384), ("head", 32, 256), ("hd", 128, 2))),
    View("ssm", "bf16", 49_152, (("head", 32, 32_768), ("hd", 128, 256), ("kd", 128, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", tuple(range(3, 48, 4)), 1),)
DELTA_LOOPS_0 = (("layer", tuple(range(0, 45, 4)), 1),)
DELTA_LOOPS_1 = (("layer", tuple(range(1, 46, 4)), 1),)
DELTA_LOOPS_2 = (("layer", tuple(range(2, 47, 4)), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 557_056, 557_056, PREFILL_ATTENTION_VIEWS),
    Planes("delta", "delta.0", None, 12, DELTA_LOOPS_0, 548_864, 557_056, PREFILL_DELTA_VIEWS),
    Planes("delta", "delta.1", None, 24, DELTA_LOOPS_1, 548_864, 557_056, PREFILL_DELTA_VIEWS),
    Planes("delta", "delta.2", None, 36, DELTA_LOOPS_2, 548_864, 557_056, PREFILL_DELTA_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 1_114_112, 1_114_112, DECODE_ATTENTION_VIEWS),
    Planes("delta", "delta.0", None, 12, DELTA_LOOPS_0, 1_097_728, 1_114_112, DECODE_DELTA_VIEWS),
    Planes("delta", "delta.1", None, 24, DELTA_LOOPS_1, 1_097_728, 1_114_112, DECODE_DELTA_VIEWS),
    Planes("delta", "delta.2", None, 36, DELTA_LOOPS_2, 1_097_728, 1_114_112, DECODE_DELTA_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=2",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=544, kernel=544, ratio=1, arena=0),
        Group("delta.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("delta.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("delta.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (0, 1)), ("delta", "head", (0, 16)), ("delta", "key_head", (0, 8))),
        ),
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (1, 2)), ("delta", "head", (16, 32)), ("delta", "key_head", (8, 16))),
        ),
    ),
)

DECODE = Side(
    key="tp=1,conv=SD",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=544, kernel=544, ratio=1, arena=0),
        Group("delta.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("delta.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("delta.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            DECODE_PLANES,
            holds=(("attention", "head", (0, 2)), ("delta", "head", (0, 32)), ("delta", "key_head", (0, 16))),
        ),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_12_LAYERS = (Loop("layer", 12, (1, 0), (1, 0)),)
EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KDS = (
    Loop("layer", 12, (1, 0), (1, 0)),
    Loop("tap", 3, (0, 2), (0, 16_384)),
    Loop("key_head", 8, (0, 768), (0, 256)),
    Loop("kd", 128, (0, 6), (0, 2)),
)
EACH_12_LAYERS_3_TAPS_16_HEADS_128_HDS = (
    Loop("layer", 12, (1, 0), (1, 0)),
    Loop("tap", 3, (0, 2), (0, 16_384)),
    Loop("head", 16, (0, 768), (0, 256)),
    Loop("hd", 128, (0, 6), (0, 2)),
)
ATTENTION_HOLDS_0 = (("head", (0, 1)),)
ATTENTION_HOLDS_1 = (("head", (1, 2)),)
DELTA_HOLDS_0 = (("head", (0, 16)), ("key_head", (0, 8)))
DELTA_HOLDS_1 = (("head", (16, 32)), ("key_head", (8, 16)))
ATTENTION_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 557_056, EACH_12_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 1024, EACH_12_LAYERS, (1024, 1024)),),
)
ATTENTION_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 557_056), 557_056, EACH_12_LAYERS),),
    token=(Nest(("k", "v"), (0, 0), (0, 557_056), 1024, EACH_12_LAYERS, (1024, 1024)),),
)
DELTA_TABLE_0 = Table(
    page=(
        Nest(("q",), (0, 0), (0, 0), 2, EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KDS),
        Nest(("k",), (0, 6144), (0, 4096), 2, EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KDS),
        Nest(("v",), (0, 12_288), (0, 8192), 2, EACH_12_LAYERS_3_TAPS_16_HEADS_128_HDS),
        Nest(("ssm",), (0, 24_576), (0, 49_152), 524_288, EACH_12_LAYERS),
    ),
)
DELTA_TABLE_1 = Table(
    page=(
        Nest(("q",), (0, 0), (0, 2048), 2, EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KDS),
        Nest(("k",), (0, 6144), (0, 6144), 2, EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KDS),
        Nest(("v",), (0, 12_288), (0, 12_288), 2, EACH_12_LAYERS_3_TAPS_16_HEADS_128_HDS),
        Nest(("ssm",), (0, 24_576), (0, 573_440), 524_288, EACH_12_LAYERS),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 544 tokens on both sides.
    """
    token, count = cuts(first, end, 544)
    p_block, p_token = divmod(token, 544)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 544)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def delta_0(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def delta_1(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def delta_2(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", tuple(range(3, 48, 4)), ATTENTION_HOLDS_0, ATTENTION_TABLE_0),
        Read(1, "attention", "attention", tuple(range(3, 48, 4)), ATTENTION_HOLDS_1, ATTENTION_TABLE_1),
        Read(0, "delta.0", "delta", tuple(range(0, 45, 4)), DELTA_HOLDS_0, DELTA_TABLE_0, (12, 12)),
        Read(1, "delta.0", "delta", tuple(range(0, 45, 4)), DELTA_HOLDS_1, DELTA_TABLE_1, (12, 12)),
        Read(0, "delta.1", "delta", tuple(range(1, 46, 4)), DELTA_HOLDS_0, DELTA_TABLE_0, (24, 24)),
        Read(1, "delta.1", "delta", tuple(range(1, 46, 4)), DELTA_HOLDS_1, DELTA_TABLE_1, (24, 24)),
        Read(0, "delta.2", "delta", tuple(range(2, 47, 4)), DELTA_HOLDS_0, DELTA_TABLE_0, (36, 36)),
        Read(1, "delta.2", "delta", tuple(range(2, 47, 4)), DELTA_HOLDS_1, DELTA_TABLE_1, (36, 36)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((),)

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="Qwen3-Next 80B-A3B",
    model="qwen3-next-80b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("attention", "attention", "attention", 544, attention),
        Pair("delta.0", "delta.0", "delta.0", 0, delta_0),
        Pair("delta.1", "delta.1", "delta.1", 0, delta_1),
        Pair("delta.2", "delta.2", "delta.2", 0, delta_2),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
