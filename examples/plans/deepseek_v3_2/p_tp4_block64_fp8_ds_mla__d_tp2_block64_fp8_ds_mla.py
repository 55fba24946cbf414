"""DeepSeek-V3.2: prefill tp=4,block=64,kv_dtype=fp8_ds_mla -> decode tp=2,block=64,kv_dtype=fp8_ds_mla.

Emitted by kvplan from deepseek-v3.2, do not edit:
    kvplan compile deepseek-v3.2 --prefill tp=4,block=64,kv_dtype=fp8_ds_mla --decode tp=2,block=64,kv_dtype=fp8_ds_mla

attention, a page of the first worker that has one:
    prefill  |  token 0  |  token 1   |  token 2   |     …      |  token 63  |      41,984 B
             64 tokens; a plane for each of 61 layers
             64 tokens, 656 B each: latent 512 B (512 dim x fp8) | scale 16 B (4 tile x f32) | rope 128 B (64 turn x
               bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 63  |      41,984 B
             64 tokens; a plane for each of 61 layers

indexer, a page of the first worker that has one:
    prefill  |                              k                              |s|       8,448 B
             64 tokens; a plane for each of 61 layers
             k 8,192 B (64 token x 128 dim x fp8)
             scale 256 B (64 token x 1 tile x f32)
    decode   |                              k                              |s|       8,448 B
             64 tokens; a plane for each of 61 layers

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, attention+indexer: 2 reads, 122 spans a kernel block; 1,952 requests and 49,221,632 B per
        1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: draft is not stored (when draft_tokens > 0).
Prefill: draft-indexer is not stored (when draft_tokens > 0).
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, indexer.
Decode: draft is not stored (when draft_tokens > 0).
Decode: draft-indexer is not stored (when draft_tokens > 0).
Decode: not probed on vllm, whose file alone says how a page is filled: attention, indexer.
Proved for every decode worker, each byte written once. attention: 61 layers x 656 B a token, each from its own
(layer, token, dim, tile, turn); indexer: 61 layers x 132 B a token, each from its own (layer, token, dim, tile).
"""

from __future__ import annotations

from kvplan.plan.types import Blocks, Group, Loop, Nest, Pair, Plan, Planes, Read, Runs, Side, Table, View, Worker, cuts

MODEL_DIGEST = "380d851a9fe5e8fb7caaf6c5e57d49ae"
PREFILL_DIGEST = "efe0246a867f2dab9d473fb2ac3142a0"
DECODE_DIGEST = "9e2e7d7b3bbd6c3cbf13e7720c085d9d"
PLAN_DIGEST = "a77923385ea371eaa77692763569f921"
FUNCTIONS_DIGEST = "9ce69b94db2010f1de67bafd496d37e4"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
ATTENTION_VIEWS = (
    View("latent", "fp8", 0, (("token", 64, 656), ("dim", 512, 1))),
    View("scale", "f32", 512, (("token", 64, 656), ("tile", 4, 4))),
    View("rope", "bf16", 528, (("token", 64, 656), ("turn", 64, 2))),
)
INDEXER_VIEWS = (
    View("k", "fp8", 0, (("token", 64, 128), ("dim", 128, 1))),
    View("scale", "f32", 8192, (("token", 64, 4), ("tile", 1, 4))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
LOOPS = (("layer", tuple(range(61)), 1),)
PLANES = (
    Planes("attention", "attention+indexer", None, 0, LOOPS, 41_984, 41_984, ATTENTION_VIEWS),
    Planes("indexer", "attention+indexer", None, 61, LOOPS, 8448, 8448, INDEXER_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=4,block=64,kv_dtype=fp8_ds_mla",
    digest=PREFILL_DIGEST,
    groups=(Group("attention+indexer", "tokens", tokens=64, kernel=64, ratio=1, arena=0),),
    workers=(Worker(PLANES), Worker(PLANES), Worker(PLANES), Worker(PLANES)),
)

DECODE = Side(
    key="tp=2,block=64,kv_dtype=fp8_ds_mla",
    digest=DECODE_DIGEST,
    groups=(Group("attention+indexer", "tokens", tokens=64, kernel=64, ratio=1, arena=0),),
    workers=(Worker(PLANES), Worker(PLANES)),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_61_LAYERS = (Loop("layer", 61, (1, 0), (1, 0)),)
ATTENTION_TABLE = Table(
    page=(Nest(("latent", "scale", "rope"), (0, 0), (0, 0), 41_984, EACH_61_LAYERS),),
    token=(Nest(("latent", "scale", "rope"), (0, 0), (0, 0), 656, EACH_61_LAYERS, (656, 656)),),
)
INDEXER_TABLE = Table(
    page=(Nest(("k", "scale"), (0, 0), (0, 0), 8448, EACH_61_LAYERS),),
    token=(
        Nest(("k",), (0, 0), (0, 0), 128, EACH_61_LAYERS, (128, 128)),
        Nest(("scale",), (0, 8192), (0, 8192), 4, EACH_61_LAYERS, (4, 4)),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention_indexer(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 64 tokens on both sides.
    """
    token, count = cuts(first, end, 64)
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
        Read(0, "attention+indexer", "attention", tuple(range(61)), (), ATTENTION_TABLE),
        Read(0, "attention+indexer", "indexer", tuple(range(61)), (), INDEXER_TABLE, (61, 61)),
    ),
    # decode worker 1
    (
        Read(2, "attention+indexer", "attention", tuple(range(61)), (), ATTENTION_TABLE),
        Read(2, "attention+indexer", "indexer", tuple(range(61)), (), INDEXER_TABLE, (61, 61)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((1,), (3,))

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="DeepSeek-V3.2",
    model="deepseek-v3.2",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(Pair("attention+indexer", "attention+indexer", "attention+indexer", 64, attention_indexer),),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
