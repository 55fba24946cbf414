r"""Llama 3.1 8B: prefill engine=custom,tp=6 -> decode engine=custom,tp=4,order=shuffled,copies=round_robin.

Emitted by kvplan from llama-3.1-8b, do not edit:
    kvplan compile llama-3.1-8b \
        --prefill engine=custom,tp=6 \
        --decode engine=custom,tp=4,order=shuffled,copies=round_robin

attention, a page of the first worker that has one:
    prefill  |  0  |  1  |  2  |  …  |  15 |                                         8,192 B; on others 16,384 B
             16 tokens; a plane for each of 32 layers
             1 head, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |               k               |               v               |      16,384 B
             16 tokens; a plane for each of 32 layers
             k 8,192 B (2 head x 16 dim/8 x 16 token x 8 dim x bf16)
             v 8,192 B (2 head x 2 token/8 x 128 dim x 8 token x bf16)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0, 2, attention: 2 reads, 147,456 spans a kernel block; 9,437,184 requests and 33,554,432 B per
        1,024 tokens
    decode workers 1, 3, attention: 1 read, 147,456 spans a kernel block; 9,437,184 requests and 33,554,432 B per
        1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on custom, whose file alone says how a page is filled: attention.
Decode: not probed on custom, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 32 layers x 4,096 B a token, each from its own
(layer, head, token, dim).
"""

from __future__ import annotations

from kvplan.plan.types import Blocks, Group, Loop, Nest, Pair, Plan, Planes, Read, Runs, Side, Table, View, Worker, cuts

MODEL_DIGEST = "e82edc6ce7f867ee14dce2f0a8baed9e"
PREFILL_DIGEST = "73cac5de1e3697fc2076ae0b7be2da92"
DECODE_DIGEST = "3ea8c9659057d3e3dac5a0a9c381ab77"
PLAN_DIGEST = "7c4fd6e63fad05fead38cdab62be0332"
FUNCTIONS_DIGEST = "9d8ce52ad8986bac8812bebfb4c1a4d2"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS_0 = (
    View("k", "bf16", 0, (("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
PREFILL_ATTENTION_VIEWS_1 = (
    View("k", "bf16", 0, (("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 4096), ("dim/8", 16, 256), ("token", 16, 16), ("dim", 8, 2))),
    View("v", "bf16", 8192, (("head", 2, 4096), ("token/8", 2, 2048), ("dim", 128, 16), ("token", 8, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", tuple(range(32)), 1),)
PREFILL_PLANES_0 = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 8192, 8192, PREFILL_ATTENTION_VIEWS_0),)
PREFILL_PLANES_1 = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 16_384, 16_384, PREFILL_ATTENTION_VIEWS_1),
)
DECODE_PLANES = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 16_384, 16_384, DECODE_ATTENTION_VIEWS),)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="engine=custom,tp=6",
    digest=PREFILL_DIGEST,
    groups=(Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(
        Worker(PREFILL_PLANES_0, holds=(("attention", "head", (0, 1)),)),
        Worker(PREFILL_PLANES_0, holds=(("attention", "head", (1, 2)),)),
        Worker(PREFILL_PLANES_1, holds=(("attention", "head", (2, 4)),)),
        Worker(PREFILL_PLANES_0, holds=(("attention", "head", (4, 5)),)),
        Worker(PREFILL_PLANES_0, holds=(("attention", "head", (5, 6)),)),
        Worker(PREFILL_PLANES_1, holds=(("attention", "head", (6, 8)),)),
    ),
)

DECODE = Side(
    key="engine=custom,tp=4,order=shuffled,copies=round_robin",
    digest=DECODE_DIGEST,
    groups=(Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 2)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (2, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 6)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (6, 8)),)),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
# Hops, where tokens lie in tiles, are (rows, prefill bytes, decode bytes): every so many rows of a page it is that much
# further to the next one.
EACH_32_LAYERS_16_DIMS_16_TOKENS = (
    Loop("layer", 32, (1, 0), (1, 0)),
    Loop("dim", 16, (0, 16), (0, 256)),
    Loop("token", 16, (0, 512), (0, 16)),
)
EACH_32_LAYERS_2_TOKENS_128_DIMS_8_TOKENS = (
    Loop("layer", 32, (1, 0), (1, 0)),
    Loop("token", 2, (0, 4096), (0, 2048)),
    Loop("dim", 128, (0, 2), (0, 16)),
    Loop("token", 8, (0, 512), (0, 2)),
)
EACH_32_LAYERS_16_DIMS = (Loop("layer", 32, (1, 0), (1, 0)), Loop("dim", 16, (0, 16), (0, 256)))
EACH_32_LAYERS_128_DIMS = (Loop("layer", 32, (1, 0), (1, 0)), Loop("dim", 128, (0, 2), (0, 16)))
EACH_32_LAYERS_2_HEADS_16_DIMS_16_TOKENS = (
    Loop("layer", 32, (1, 0), (1, 0)),
    Loop("head", 2, (0, 8192), (0, 4096)),
    Loop("dim", 16, (0, 16), (0, 256)),
    Loop("token", 16, (0, 512), (0, 16)),
)
EACH_32_LAYERS_2_HEADS_2_TOKENS_128_DIMS_8_TOKENS = (
    Loop("layer", 32, (1, 0), (1, 0)),
    Loop("head", 2, (0, 8192), (0, 4096)),
    Loop("token", 2, (0, 4096), (0, 2048)),
    Loop("dim", 128, (0, 2), (0, 16)),
    Loop("token", 8, (0, 512), (0, 2)),
)
EACH_32_LAYERS_2_HEADS_16_DIMS = (
    Loop("layer", 32, (1, 0), (1, 0)),
    Loop("head", 2, (0, 8192), (0, 4096)),
    Loop("dim", 16, (0, 16), (0, 256)),
)
EACH_32_LAYERS_2_HEADS_128_DIMS = (
    Loop("layer", 32, (1, 0), (1, 0)),
    Loop("head", 2, (0, 8192), (0, 4096)),
    Loop("dim", 128, (0, 2), (0, 16)),
)
ATTENTION_TABLE_0 = Table(
    page=(
        Nest(("k",), (0, 0), (0, 0), 16, EACH_32_LAYERS_16_DIMS_16_TOKENS),
        Nest(("v",), (0, 256), (0, 8192), 2, EACH_32_LAYERS_2_TOKENS_128_DIMS_8_TOKENS),
    ),
    token=(
        Nest(("k",), (0, 0), (0, 0), 16, EACH_32_LAYERS_16_DIMS, (512, 16)),
        Nest(("v",), (0, 256), (0, 8192), 2, EACH_32_LAYERS_128_DIMS, (512, 2), ((8, 0, 2032),)),
    ),
)
ATTENTION_TABLE_1 = Table(
    page=(
        Nest(("k",), (0, 0), (0, 4096), 16, EACH_32_LAYERS_16_DIMS_16_TOKENS),
        Nest(("v",), (0, 256), (0, 12_288), 2, EACH_32_LAYERS_2_TOKENS_128_DIMS_8_TOKENS),
    ),
    token=(
        Nest(("k",), (0, 0), (0, 4096), 16, EACH_32_LAYERS_16_DIMS, (512, 16)),
        Nest(("v",), (0, 256), (0, 12_288), 2, EACH_32_LAYERS_128_DIMS, (512, 2), ((8, 0, 2032),)),
    ),
)
ATTENTION_TABLE_2 = Table(
    page=(
        Nest(("k",), (0, 0), (0, 0), 16, EACH_32_LAYERS_2_HEADS_16_DIMS_16_TOKENS),
        Nest(("v",), (0, 256), (0, 8192), 2, EACH_32_LAYERS_2_HEADS_2_TOKENS_128_DIMS_8_TOKENS),
    ),
    token=(
        Nest(("k",), (0, 0), (0, 0), 16, EACH_32_LAYERS_2_HEADS_16_DIMS, (512, 16)),
        Nest(("v",), (0, 256), (0, 8192), 2, EACH_32_LAYERS_2_HEADS_128_DIMS, (512, 2), ((8, 0, 2032),)),
    ),
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


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", tuple(range(32)), (("head", (0, 1)),), ATTENTION_TABLE_0),
        Read(1, "attention", "attention", tuple(range(32)), (("head", (1, 2)),), ATTENTION_TABLE_1),
    ),
    # decode worker 1
    (Read(2, "attention", "attention", tuple(range(32)), (("head", (2, 4)),), ATTENTION_TABLE_2),),
    # decode worker 2
    (
        Read(3, "attention", "attention", tuple(range(32)), (("head", (4, 5)),), ATTENTION_TABLE_0),
        Read(4, "attention", "attention", tuple(range(32)), (("head", (5, 6)),), ATTENTION_TABLE_1),
    ),
    # decode worker 3
    (Read(5, "attention", "attention", tuple(range(32)), (("head", (6, 8)),), ATTENTION_TABLE_2),),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), (), (), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="Llama 3.1 8B",
    model="llama-3.1-8b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(Pair("attention", "attention", "attention", 16, attention),),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
