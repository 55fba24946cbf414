"""Kimi Linear 48B-A3B: prefill tp=2 -> decode tp=1.

Emitted by kvplan from kimi-linear-48b, do not edit:
    kvplan compile kimi-linear-48b --prefill tp=2 --decode tp=1

attention, a page of the first worker that has one:
    prefill  |  0  |  1   |  2   |  …   | 1023 |                                 1,179,648 B
             1,024 tokens; a plane for each of 7 layers
             1,024 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      | token 1919 |   2,211,840 B
             1,920 tokens; a plane for each of 7 layers
             1,920 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)

delta, a page of the first worker that has one:
    prefill  |q|k|v|           ssm           |                                   1,085,440 B, next 1,179,648 B on
             one slot; a plane for each of 7 layers of delta.0, one of 3 groups
             q 12,288 B (16 key_head x 128 kd x 3 tap x bf16)
             k 12,288 B (16 key_head x 128 kd x 3 tap x bf16)
             v 12,288 B (16 head x 128 hd x 3 tap x bf16)
             ssm 1,048,576 B (16 head x 128 row x 128 hd x f32)
    decode   |q|k|v|                           ssm                           |   2,170,880 B, next 2,211,840 B on
             one slot; a plane for each of 7 layers of delta.0, one of 3 groups
             q 24,576 B (32 key_head x 128 kd x 3 tap x bf16)
             k 24,576 B (32 key_head x 128 kd x 3 tap x bf16)
             v 24,576 B (32 head x 128 hd x 3 tap x bf16)
             ssm 2,097,152 B (32 head x 128 row x 128 hd x f32)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode worker 0, attention: 1 read, 7 spans a run of tokens; 7 requests and 8,257,536 B per 1,024 tokens
    decode worker 0, delta.0, delta.1, each: 2 reads, 56 spans a slot; 56 requests and 15,196,160 B a request
    decode worker 0, delta.2: 2 reads, 48 spans a slot; 48 requests and 13,025,280 B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, delta.
Decode: not probed on vllm, whose file alone says how a page is filled: attention, delta.
Proved for every decode worker, each byte written once. attention: 7 layers x 1,152 B a token, each from its own
(layer, token, dim, turn); delta: 20 layers x 2,170,880 B a state, each from its own (layer, key_head, kd, tap,
head, hd, row).
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

MODEL_DIGEST = "a523c8405b895def2d25c9d8b38fa726"
PREFILL_DIGEST = "4b0ee3e1fa9d968bea3188c2ab56447a"
DECODE_DIGEST = "aa00af814142b2d2d8fbde55e354bb6f"
PLAN_DIGEST = "f700bf36c07ceb79ac62ffeb320e3c5f"
FUNCTIONS_DIGEST = "cfb2c7f8193bfffa237a49c6497b19ec"

# Layers, by their numbers in the whole model.
ATTENTION_LAYERS = (3, 7, 11, 15, 19, 23, 26)

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("latent", "bf16", 0, (("token", 1024, 1152), ("dim", 512, 2))),
    View("rope", "bf16", 1024, (("token", 1024, 1152), ("turn", 64, 2))),
)
PREFILL_DELTA_VIEWS = (
    View("q", "bf16", 0, (("key_head", 16, 768), ("kd", 128, 6), ("tap", 3, 2))),
    View("k", "bf16", 12_288, (("key_head", 16, 768), ("kd", 128, 6), ("tap", 3, 2))),
    View("v", "bf16", 24_576, (("head", 16, 768), ("hd", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", 36_864, (("head", 16, 65_536), ("row", 128, 512), ("hd", 128, 4))),
)
DECODE_ATTENTION_VIEWS = (
    View("latent", "bf16", 0, (("token", 1920, 1152), ("dim", 512, 2))),
    View("rope", "bf16", 1024, (("token", 1920, 1152), ("turn", 64, 2))),
)
DECODE_DELTA_VIEWS = (
    View("q", "bf16", 0, (("key_head", 32, 768), ("kd", 128, 6), ("tap", 3, 2))),
    View("k", "bf16", 24_576, (("key_head", 32, 768), ("kd", 128, 6), ("tap", 3, 2))),
    View("v", "bf16", 49_152, (("head", 32, 768), ("hd", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", 73_728, (("head", 32, 65_536), ("row", 128, 512), ("hd", 128, 4))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", ATTENTION_LAYERS, 1),)
DELTA_LOOPS_0 = (("layer", tuple(range(0, 25, 4)), 1),)
DELTA_LOOPS_1 = (("layer", tuple(range(1, 26, 4)), 1),)
DELTA_LOOPS_2 = (("layer", tuple(range(2, 23, 4)), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 1_179_648, 1_179_648, PREFILL_ATTENTION_VIEWS),
    Planes("delta", "delta.0", None, 7, DELTA_LOOPS_0, 1_085_440, 1_179_648, PREFILL_DELTA_VIEWS),
    Planes("delta", "delta.1", None, 14, DELTA_LOOPS_1, 1_085_440, 1_179_648, PREFILL_DELTA_VIEWS),
    Planes("delta", "delta.2", None, 21, DELTA_LOOPS_2, 1_085_440, 1_179_648, PREFILL_DELTA_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 2_211_840, 2_211_840, DECODE_ATTENTION_VIEWS),
    Planes("delta", "delta.0", None, 7, DELTA_LOOPS_0, 2_170_880, 2_211_840, DECODE_DELTA_VIEWS),
    Planes("delta", "delta.1", None, 14, DELTA_LOOPS_1, 2_170_880, 2_211_840, DECODE_DELTA_VIEWS),
    Planes("delta", "delta.2", None, 21, DELTA_LOOPS_2, 2_170_880, 2_211_840, DECODE_DELTA_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=2",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=1024, kernel=1024, ratio=1, arena=0),
        Group("delta.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("delta.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("delta.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(PREFILL_PLANES, holds=(("delta", "head", (0, 16)), ("delta", "key_head", (0, 16)))),
        Worker(PREFILL_PLANES, holds=(("delta", "head", (16, 32)), ("delta", "key_head", (16, 32)))),
    ),
)

DECODE = Side(
    key="tp=1",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=1920, kernel=1920, ratio=1, arena=0),
        Group("delta.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("delta.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("delta.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(Worker(DECODE_PLANES, holds=(("delta", "head", (0, 32)), ("delta", "key_head", (0, 32)))),),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_7_LAYERS = (Loop("layer", 7, (1, 0), (1, 0)),)
EACH_6_LAYERS = (Loop("layer", 6, (1, 0), (1, 0)),)
ATTENTION_HOLDS = ()
DELTA_HOLDS_0 = (("head", (0, 16)), ("key_head", (0, 16)))
DELTA_HOLDS_1 = (("head", (16, 32)), ("key_head", (16, 32)))
ATTENTION_TABLE = Table(token=(Nest(("latent", "rope"), (0, 0), (0, 0), 1152, EACH_7_LAYERS, (1152, 1152)),))
DELTA_TABLE_0 = Table(
    page=(
        Nest(("q",), (0, 0), (0, 0), 12_288, EACH_7_LAYERS),
        Nest(("k",), (0, 12_288), (0, 24_576), 12_288, EACH_7_LAYERS),
        Nest(("v",), (0, 24_576), (0, 49_152), 12_288, EACH_7_LAYERS),
        Nest(("ssm",), (0, 36_864), (0, 73_728), 1_048_576, EACH_7_LAYERS),
    ),
)
DELTA_TABLE_1 = Table(
    page=(
        Nest(("q",), (0, 0), (0, 12_288), 12_288, EACH_7_LAYERS),
        Nest(("k",), (0, 12_288), (0, 36_864), 12_288, EACH_7_LAYERS),
        Nest(("v",), (0, 24_576), (0, 61_440), 12_288, EACH_7_LAYERS),
        Nest(("ssm",), (0, 36_864), (0, 1_122_304), 1_048_576, EACH_7_LAYERS),
    ),
)
DELTA_TABLE_2 = Table(
    page=(
        Nest(("q",), (0, 0), (0, 0), 12_288, EACH_6_LAYERS),
        Nest(("k",), (0, 12_288), (0, 24_576), 12_288, EACH_6_LAYERS),
        Nest(("v",), (0, 24_576), (0, 49_152), 12_288, EACH_6_LAYERS),
        Nest(("ssm",), (0, 36_864), (0, 73_728), 1_048_576, EACH_6_LAYERS),
    ),
)
DELTA_TABLE_3 = Table(
    page=(
        Nest(("q",), (0, 0), (0, 12_288), 12_288, EACH_6_LAYERS),
        Nest(("k",), (0, 12_288), (0, 36_864), 12_288, EACH_6_LAYERS),
        Nest(("v",), (0, 24_576), (0, 61_440), 12_288, EACH_6_LAYERS),
        Nest(("ssm",), (0, 36_864), (0, 1_122_304), 1_048_576, EACH_6_LAYERS),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 1024 tokens,
    a decode block one kernel block of 1920 tokens.
    """
    token, count = cuts(first, end, 1024, 1920)
    p_block, p_token = divmod(token, 1024)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 1920)
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
        Read(0, "attention", "attention", ATTENTION_LAYERS, ATTENTION_HOLDS, ATTENTION_TABLE),
        Read(0, "delta.0", "delta", tuple(range(0, 25, 4)), DELTA_HOLDS_0, DELTA_TABLE_0, (7, 7)),
        Read(1, "delta.0", "delta", tuple(range(0, 25, 4)), DELTA_HOLDS_1, DELTA_TABLE_1, (7, 7)),
        Read(0, "delta.1", "delta", tuple(range(1, 26, 4)), DELTA_HOLDS_0, DELTA_TABLE_0, (14, 14)),
        Read(1, "delta.1", "delta", tuple(range(1, 26, 4)), DELTA_HOLDS_1, DELTA_TABLE_1, (14, 14)),
        Read(0, "delta.2", "delta", tuple(range(2, 23, 4)), DELTA_HOLDS_0, DELTA_TABLE_2, (21, 21)),
        Read(1, "delta.2", "delta", tuple(range(2, 23, 4)), DELTA_HOLDS_1, DELTA_TABLE_3, (21, 21)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((),)

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="Kimi Linear 48B-A3B",
    model="kimi-linear-48b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("attention", "attention", "attention", 0, attention),
        Pair("delta.0", "delta.0", "delta.0", 0, delta_0),
        Pair("delta.1", "delta.1", "delta.1", 0, delta_1),
        Pair("delta.2", "delta.2", "delta.2", 0, delta_2),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
