"""DeepSeek-V3: prefill engine=custom,tp=3,dcp=3,interleave=24 -> decode tp=2,block=32.

Emitted by kvplan from deepseek-v3, do not edit:
    kvplan compile deepseek-v3 --prefill engine=custom,tp=3,dcp=3,interleave=24 --decode tp=2,block=32

attention, a page of the first worker that has one:
    prefill  |  0  |  1  |  2  |  …  |  15 |                                        18,432 B
             16 tokens; 3 shards take turns of 24; a plane for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 31  |      36,864 B
             32 tokens; a plane for each of 61 layers
             32 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, attention: 3 reads, 61 spans a run of tokens; 5,612 requests and 71,958,528 B per 1,024
        tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: interleave=24 given; derived 16.
Prefill: draft is not stored (when draft_tokens > 0).
Prefill: not probed on custom, whose file alone says how a page is filled: attention.
Decode: draft is not stored (when draft_tokens > 0).
Decode: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 61 layers x 1,152 B a token, each from its own
(layer, token, dim, turn).
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
    turns,
)

MODEL_DIGEST = "274f4f09cbd5aa1458294b67f412a7fc"
PREFILL_DIGEST = "60bb1e99e2e7c52f0efdb3c10c297388"
DECODE_DIGEST = "e7dbb94e78a3c3d82a462f35a9ad6d74"
PLAN_DIGEST = "3065afa5c87bcbed1e5a879ad17c7afe"
FUNCTIONS_DIGEST = "a064b5b26ce831324d9cc92f861649ed"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("latent", "bf16", 0, (("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", 1024, (("token", 16, 1152), ("turn", 64, 2))),
)
DECODE_ATTENTION_VIEWS = (
    View("latent", "bf16", 0, (("token", 32, 1152), ("dim", 512, 2))),
    View("rope", "bf16", 1024, (("token", 32, 1152), ("turn", 64, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", tuple(range(61)), 1),)
PREFILL_PLANES = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 18_432, 18_432, PREFILL_ATTENTION_VIEWS),)
DECODE_PLANES = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 36_864, 36_864, DECODE_ATTENTION_VIEWS),)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="engine=custom,tp=3,dcp=3,interleave=24",
    digest=PREFILL_DIGEST,
    groups=(Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0, shards=3, chunk=24),),
    workers=(Worker(PREFILL_PLANES), Worker(PREFILL_PLANES, shard=1), Worker(PREFILL_PLANES, shard=2)),
)

DECODE = Side(
    key="tp=2,block=32",
    digest=DECODE_DIGEST,
    groups=(Group("attention", "tokens", tokens=32, kernel=32, ratio=1, arena=0),),
    workers=(Worker(DECODE_PLANES), Worker(DECODE_PLANES)),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_61_LAYERS = (Loop("layer", 61, (1, 0), (1, 0)),)
ATTENTION_TABLE = Table(token=(Nest(("latent", "rope"), (0, 0), (0, 0), 1152, EACH_61_LAYERS, (1152, 1152)),))


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 16 tokens on each of 3 shards, which take turns of 24,
    a decode block one kernel block of 32 tokens.
    """
    token, count = cuts(first, end, 24, 32, turns(first, end, 16, 24, 3, p_shard))
    keep = token // 24 % 3 == p_shard
    token, count = token[keep], count[keep]
    p_token = token // 72 * 24 + token % 24
    p_block, p_token = divmod(p_token, 16)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 32)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
WORKER_READS = (
    Read(0, "attention", "attention", tuple(range(61)), (), ATTENTION_TABLE),
    Read(1, "attention", "attention", tuple(range(61)), (), ATTENTION_TABLE),
    Read(2, "attention", "attention", tuple(range(61)), (), ATTENTION_TABLE),
)
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    WORKER_READS,
    # decode worker 1
    WORKER_READS,
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="DeepSeek-V3",
    model="deepseek-v3",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(Pair("attention", "attention", "attention", 0, attention),),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
