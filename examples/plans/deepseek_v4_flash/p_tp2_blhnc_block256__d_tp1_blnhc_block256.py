"""DeepSeek-V4-Flash: prefill tp=2,order=BLHNC,block=256 -> decode tp=1,order=BLNHC,block=256.

Emitted by kvplan from deepseek-v4-flash, do not edit:
    kvplan compile deepseek-v4-flash --prefill tp=2,order=BLHNC,block=256 --decode tp=1,order=BLNHC,block=256

few, a page of the first worker that has one:
    prefill  |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 20  |     786,240 B, next 1,002,240 B on
             256 tokens in rows of 4; one plane
             21 layers, 37,440 B each: [64 rows, 576 B each: latent 448 B (448 dim x fp8) | rope 128 B (64 turn x
               bf16)] | exponent 448 B (64 row x 7 tile x u8), 64 rows of 7 B, 8 B apart | padding 64 B
    decode   |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 20  |     786,240 B, next 1,002,240 B on
             256 tokens in rows of 4; one plane

indexer, a page of the first worker that has one:
    prefill  |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 20  |     181,440 B, next 1,002,240 B on
             256 tokens in rows of 4; one plane
             21 layers, 8,640 B each: k 8,192 B (64 row x 128 dim x fp8) | scale 256 B (64 row x 1 tile x f32) |
               padding 192 B
    decode   |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 20  |     181,440 B, next 1,002,240 B on
             256 tokens in rows of 4; one plane

many, a page of the first worker that has one:
    prefill  |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 19  |      34,560 B, next 1,002,240 B on
             256 tokens in rows of 128; one plane
             20 layers, 1,728 B each: [2 rows, 576 B each: latent 448 B (448 dim x fp8) | rope 128 B (64 turn x
               bf16)] | exponent 14 B (2 row x 7 tile x u8), 2 rows of 7 B, 8 B apart | padding 560 B
    decode   |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 19  |      34,560 B, next 1,002,240 B on
             256 tokens in rows of 128; one plane

few-compressor, a page of the first worker that has one:
    prefill  |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 20  |     689,472 B, next 1,002,240 B on
             4 tokens; one plane
             21 layers, 32,832 B each: [4 tokens, 8,192 B each: kv 4,096 B (2 pool x 512 dim x f32) | score 4,096 B
               (2 pool x 512 dim x f32)] | padding 64 B
    decode   |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 20  |     689,472 B, next 1,002,240 B on
             4 tokens; one plane

indexer-compressor, a page of the first worker that has one:
    prefill  |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 20  |     181,440 B, next 1,002,240 B on
             4 tokens; one plane
             21 layers, 8,640 B each: [4 tokens, 2,048 B each: kv 1,024 B (2 pool x 128 dim x f32) | score 1,024 B
               (2 pool x 128 dim x f32)] | padding 448 B
    decode   |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 20  |     181,440 B, next 1,002,240 B on
             4 tokens; one plane

many-compressor, a page of the first worker that has one:
    prefill  |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 19  |     656,640 B, next 1,002,240 B on
             8 tokens; one plane
             20 layers, 32,832 B each: [8 tokens, 4,096 B each: kv 2,048 B (1 pool x 512 dim x f32) | score 2,048 B
               (1 pool x 512 dim x f32)] | padding 64 B
    decode   |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 19  |     656,640 B, next 1,002,240 B on
             8 tokens; one plane

window, a page of the first worker that has one:
    prefill  |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 21  |
             823,680 B, next 1,002,240 B on; on others 786,240 B
             64 tokens; one plane of window.0, one of 2 groups
             22 layers, 37,440 B each: [64 tokens, 576 B each: latent 448 B (448 dim x fp8) | rope 128 B (64 turn x
               bf16)] | exponent 448 B (64 token x 7 tile x u8), 64 tokens of 7 B, 8 B apart | padding 64 B
    decode   |  layer 0  |  layer 1   |  layer 2   |     …      |  layer 21  |
             823,680 B, next 1,002,240 B on; on others 786,240 B
             64 tokens; one plane of window.0, one of 2 groups

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode worker 0, few+indexer+many:few+indexer: 2 reads, 2 spans a kernel block; 8 requests and 3,869,692 B per
        1,024 tokens
    decode worker 0, few+indexer+many:many: 1 read, 1 span a kernel block; 4 requests and 135,996 B per 1,024 tokens
    decode worker 0, few-compressor+indexer-compressor: 2 reads, 2 spans a kernel block; 44 requests and 1,515,520 B
        per 1,024 tokens
    decode worker 0, many-compressor: 1 read, 1 span a kernel block; 35 requests and 10,422,080 B per 1,024 tokens
    decode worker 0, window.0: 1 read, 1 span a kernel block; 1,409 requests and 1,631,653 B per 1,024 tokens
    decode worker 0, window.1: 1 read, 1 span a kernel block; 1,345 requests and 1,557,484 B per 1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
few+indexer+many:few+indexer: a row per 4 tokens, moved whole with the last of them.
few+indexer+many:many: a row per 128 tokens, moved whole with the last of them.
few-compressor+indexer-compressor: only the last 7 tokens.
many-compressor, window.0, window.1, each: only the last 127 tokens.
Prefill: draft is not stored (when draft_tokens > 0).
Prefill: not probed on vllm, whose file alone says how a page is filled: few, few-compressor, indexer,
indexer-compressor, many, many-compressor, window.
Decode: draft is not stored (when draft_tokens > 0).
Decode: not probed on vllm, whose file alone says how a page is filled: few, few-compressor, indexer,
indexer-compressor, many, many-compressor, window.
Proved for every decode worker, each byte written once. few: 21 layers x 583 B a row of 4 tokens, each from its own
(layer, row, dim, turn, tile); few-compressor: 21 layers x 8,192 B a token, each from its own (layer, token, pool,
dim); indexer: 21 layers x 132 B a row of 4 tokens, each from its own (layer, row, dim, tile); indexer-compressor:
21 layers x 2,048 B a token, each from its own (layer, token, pool, dim); many: 20 layers x 583 B a row of 128
tokens, each from its own (layer, row, dim, turn, tile); many-compressor: 20 layers x 4,096 B a token, each from its
own (layer, token, pool, dim); window: 43 layers x 583 B a token, each from its own (layer, token, dim, turn, tile).
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

MODEL_DIGEST = "e36229f394f499851c62a53435300d59"
PREFILL_DIGEST = "4d8dc96ab0d9b6ad82940cca1e5ba641"
DECODE_DIGEST = "a1f98b89e8f3e032bcd017819f2f5cad"
PLAN_DIGEST = "838ba06fbd1dcc319d3bb13e6eef9a17"
FUNCTIONS_DIGEST = "e97b81b197fa58694b39a03b348cb31c"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
VIEWS = (
    View("latent", "fp8", 0, (("layer", 21, 37_440), ("token", 64, 576), ("dim", 448, 1))),
    View("rope", "bf16", 448, (("layer", 21, 37_440), ("token", 64, 576), ("turn", 64, 2))),
    View("exponent", "u8", 36_864, (("layer", 21, 37_440), ("token", 64, 8), ("tile", 7, 1))),
)
INDEXER_VIEWS = (
    View("k", "fp8", 0, (("layer", 21, 8640), ("token", 64, 128), ("dim", 128, 1))),
    View("scale", "f32", 8192, (("layer", 21, 8640), ("token", 64, 4), ("tile", 1, 4))),
)
MANY_VIEWS = (
    View("latent", "fp8", 0, (("layer", 20, 1728), ("token", 2, 576), ("dim", 448, 1))),
    View("rope", "bf16", 448, (("layer", 20, 1728), ("token", 2, 576), ("turn", 64, 2))),
    View("exponent", "u8", 1152, (("layer", 20, 1728), ("token", 2, 8), ("tile", 7, 1))),
)
FEW_COMPRESSOR_VIEWS = (
    View("kv", "f32", 0, (("layer", 21, 32_832), ("token", 4, 8192), ("pool", 2, 2048), ("dim", 512, 4))),
    View("score", "f32", 4096, (("layer", 21, 32_832), ("token", 4, 8192), ("pool", 2, 2048), ("dim", 512, 4))),
)
INDEXER_COMPRESSOR_VIEWS = (
    View("kv", "f32", 0, (("layer", 21, 8640), ("token", 4, 2048), ("pool", 2, 512), ("dim", 128, 4))),
    View("score", "f32", 1024, (("layer", 21, 8640), ("token", 4, 2048), ("pool", 2, 512), ("dim", 128, 4))),
)
MANY_COMPRESSOR_VIEWS = (
    View("kv", "f32", 0, (("layer", 20, 32_832), ("token", 8, 4096), ("pool", 1, 2048), ("dim", 512, 4))),
    View("score", "f32", 2048, (("layer", 20, 32_832), ("token", 8, 4096), ("pool", 1, 2048), ("dim", 512, 4))),
)
WINDOW_VIEWS = (
    View("latent", "fp8", 0, (("layer", 22, 37_440), ("token", 64, 576), ("dim", 448, 1))),
    View("rope", "bf16", 448, (("layer", 22, 37_440), ("token", 64, 576), ("turn", 64, 2))),
    View("exponent", "u8", 36_864, (("layer", 22, 37_440), ("token", 64, 8), ("tile", 7, 1))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
PLANES = (
    Planes("few", "few+indexer+many", None, 0, (), 786_240, 1_002_240, VIEWS, tuple(range(2, 43, 2))),
    Planes("indexer", "few+indexer+many", None, 1, (), 181_440, 1_002_240, INDEXER_VIEWS, tuple(range(2, 43, 2))),
    Planes("many", "few+indexer+many", None, 2, (), 34_560, 1_002_240, MANY_VIEWS, tuple(range(3, 42, 2))),
    Planes(
        "few-compressor",
        "few-compressor+indexer-compressor",
        None,
        3,
        (),
        689_472,
        1_002_240,
        FEW_COMPRESSOR_VIEWS,
        tuple(range(2, 43, 2)),
    ),
    Planes(
        "indexer-compressor",
        "few-compressor+indexer-compressor",
        None,
        4,
        (),
        181_440,
        1_002_240,
        INDEXER_COMPRESSOR_VIEWS,
        tuple(range(2, 43, 2)),
    ),
    Planes(
        "many-compressor",
        "many-compressor",
        None,
        5,
        (),
        656_640,
        1_002_240,
        MANY_COMPRESSOR_VIEWS,
        tuple(range(3, 42, 2)),
    ),
    Planes("window", "window.0", None, 6, (), 823_680, 1_002_240, WINDOW_VIEWS, tuple(range(0, 43, 2))),
    Planes("window", "window.1", None, 7, (), 786_240, 1_002_240, VIEWS, tuple(range(1, 42, 2))),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=2,order=BLHNC,block=256",
    digest=PREFILL_DIGEST,
    groups=(
        Group("few+indexer+many", "tokens", tokens=256, kernel=256, ratio=1, arena=0),
        Group("few-compressor+indexer-compressor", "tokens", tokens=4, kernel=4, ratio=1, arena=0),
        Group("many-compressor", "tokens", tokens=8, kernel=8, ratio=1, arena=0),
        Group("window.0", "tokens", tokens=64, kernel=64, ratio=1, arena=0),
        Group("window.1", "tokens", tokens=64, kernel=64, ratio=1, arena=0),
    ),
    workers=(Worker(PLANES), Worker(PLANES)),
)

DECODE = Side(
    key="tp=1,order=BLNHC,block=256",
    digest=DECODE_DIGEST,
    groups=(
        Group("few+indexer+many", "tokens", tokens=256, kernel=256, ratio=1, arena=0),
        Group("few-compressor+indexer-compressor", "tokens", tokens=4, kernel=4, ratio=1, arena=0),
        Group("many-compressor", "tokens", tokens=8, kernel=8, ratio=1, arena=0),
        Group("window.0", "tokens", tokens=64, kernel=64, ratio=1, arena=0),
        Group("window.1", "tokens", tokens=64, kernel=64, ratio=1, arena=0),
    ),
    workers=(Worker(PLANES),),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_21_LAYERS_0 = (Loop("layer", 21, (0, 37_440), (0, 37_440)),)
EACH_21_LAYERS_1 = (Loop("layer", 21, (0, 8640), (0, 8640)),)
EACH_21_LAYERS_2 = (Loop("layer", 21, (0, 32_832), (0, 32_832)),)
EACH_20_LAYERS_0 = (Loop("layer", 20, (0, 1728), (0, 1728)),)
EACH_20_LAYERS_1 = (Loop("layer", 20, (0, 32_832), (0, 32_832)),)
EACH_22_LAYERS = (Loop("layer", 22, (0, 37_440), (0, 37_440)),)
HOLDS = ()
TABLE = Table(
    page=(Nest(("latent", "rope", "exponent"), (0, 0), (0, 0), 786_175),),
    token=(
        Nest(("latent", "rope"), (0, 0), (0, 0), 576, EACH_21_LAYERS_0, (576, 576)),
        Nest(("exponent",), (0, 36_864), (0, 36_864), 7, EACH_21_LAYERS_0, (8, 8)),
    ),
)
INDEXER_TABLE = Table(
    page=(Nest(("k", "scale"), (0, 0), (0, 0), 181_248),),
    token=(
        Nest(("k",), (0, 0), (0, 0), 128, EACH_21_LAYERS_1, (128, 128)),
        Nest(("scale",), (0, 8192), (0, 8192), 4, EACH_21_LAYERS_1, (4, 4)),
    ),
)
MANY_TABLE = Table(
    page=(Nest(("latent", "rope", "exponent"), (0, 0), (0, 0), 33_999),),
    token=(
        Nest(("latent", "rope"), (0, 0), (0, 0), 576, EACH_20_LAYERS_0, (576, 576)),
        Nest(("exponent",), (0, 1152), (0, 1152), 7, EACH_20_LAYERS_0, (8, 8)),
    ),
)
FEW_COMPRESSOR_TABLE = Table(
    page=(Nest(("kv", "score"), (0, 0), (0, 0), 689_408),),
    token=(Nest(("kv", "score"), (0, 0), (0, 0), 8192, EACH_21_LAYERS_2, (8192, 8192)),),
)
INDEXER_COMPRESSOR_TABLE = Table(
    page=(Nest(("kv", "score"), (0, 0), (0, 0), 180_992),),
    token=(Nest(("kv", "score"), (0, 0), (0, 0), 2048, EACH_21_LAYERS_1, (2048, 2048)),),
)
MANY_COMPRESSOR_TABLE = Table(
    page=(Nest(("kv", "score"), (0, 0), (0, 0), 656_576),),
    token=(Nest(("kv", "score"), (0, 0), (0, 0), 4096, EACH_20_LAYERS_1, (4096, 4096)),),
)
WINDOW_TABLE = Table(
    page=(Nest(("latent", "rope", "exponent"), (0, 0), (0, 0), 823_615),),
    token=(
        Nest(("latent", "rope"), (0, 0), (0, 0), 576, EACH_22_LAYERS, (576, 576)),
        Nest(("exponent",), (0, 36_864), (0, 36_864), 7, EACH_22_LAYERS, (8, 8)),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def few_indexer_many__few_indexer(
    first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int
) -> Runs:
    """Runs of rows of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 256 tokens on both sides.
    A row is of 4 tokens, and moves with the last of them.
    """
    first, end = first // 4, end // 4
    token, count = cuts(first, end, 64)
    p_block, p_token = divmod(token, 64)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 64)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def few_indexer_many__many(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of rows of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 256 tokens on both sides.
    A row is of 128 tokens, and moves with the last of them.
    """
    first, end = first // 128, end // 128
    token, count = cuts(first, end, 2)
    p_block, p_token = divmod(token, 2)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 2)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def few_compressor_indexer_compressor(
    first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int
) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 4 tokens on both sides.
    Needed are the last 7 of all tokens before end.
    """
    low = max(first, end - 7)
    token, count = cuts(low, end, 4)
    p_block, p_token = divmod(token, 4)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 4)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def many_compressor(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 8 tokens on both sides.
    Needed are the last 127 of all tokens before end.
    """
    low = max(first, end - 127)
    token, count = cuts(low, end, 8)
    p_block, p_token = divmod(token, 8)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 8)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def window_0(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 64 tokens on both sides.
    Needed are the last 127 of all tokens before end.
    """
    low = max(first, end - 127)
    token, count = cuts(low, end, 64)
    p_block, p_token = divmod(token, 64)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 64)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def window_1(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 64 tokens on both sides.
    Needed are the last 127 of all tokens before end.
    """
    low = max(first, end - 127)
    token, count = cuts(low, end, 64)
    p_block, p_token = divmod(token, 64)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 64)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "few+indexer+many:few+indexer", "few", tuple(range(2, 43, 2)), HOLDS, TABLE),
        Read(0, "few+indexer+many:few+indexer", "indexer", tuple(range(2, 43, 2)), HOLDS, INDEXER_TABLE, (1, 1)),
        Read(0, "few+indexer+many:many", "many", tuple(range(3, 42, 2)), HOLDS, MANY_TABLE, (2, 2)),
        Read(
            0,
            "few-compressor+indexer-compressor",
            "few-compressor",
            tuple(range(2, 43, 2)),
            HOLDS,
            FEW_COMPRESSOR_TABLE,
            (3, 3),
        ),
        Read(
            0,
            "few-compressor+indexer-compressor",
            "indexer-compressor",
            tuple(range(2, 43, 2)),
            HOLDS,
            INDEXER_COMPRESSOR_TABLE,
            (4, 4),
        ),
        Read(0, "many-compressor", "many-compressor", tuple(range(3, 42, 2)), HOLDS, MANY_COMPRESSOR_TABLE, (5, 5)),
        Read(0, "window.0", "window", tuple(range(0, 43, 2)), HOLDS, WINDOW_TABLE, (6, 6)),
        Read(0, "window.1", "window", tuple(range(1, 42, 2)), HOLDS, TABLE, (7, 7)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((1,),)

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
# Needs: which tokens are read, the last `keep`, those from the last multiple of `chunk` on, the first `sink`.
PLAN = Plan(
    format=1,
    title="DeepSeek-V4-Flash",
    model="deepseek-v4-flash",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair(
            "few+indexer+many:few+indexer",
            "few+indexer+many",
            "few+indexer+many",
            64,
            few_indexer_many__few_indexer,
            rows=4,
        ),
        Pair("few+indexer+many:many", "few+indexer+many", "few+indexer+many", 2, few_indexer_many__many, rows=128),
        Pair(
            "few-compressor+indexer-compressor",
            "few-compressor+indexer-compressor",
            "few-compressor+indexer-compressor",
            4,
            few_compressor_indexer_compressor,
            needs=Needs(keep=7),
        ),
        Pair("many-compressor", "many-compressor", "many-compressor", 8, many_compressor, needs=Needs(keep=127)),
        Pair("window.0", "window.0", "window.0", 64, window_0, needs=Needs(keep=127)),
        Pair("window.1", "window.1", "window.1", 64, window_1, needs=Needs(keep=127)),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
