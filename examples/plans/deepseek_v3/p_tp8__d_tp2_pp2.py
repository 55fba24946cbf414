"""DeepSeek-V3: prefill tp=8 -> decode tp=2,pp=2.

Emitted by kvplan from deepseek-v3, do not edit:
    kvplan compile deepseek-v3 --prefill tp=8 --decode tp=2,pp=2

attention, a page of the first worker that has one:
    prefill  |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 31 layers

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, attention: 1 read, 31 spans a kernel block; 1,984 requests and 36,569,088 B per 1,024 tokens
    decode workers 2-3, attention: 1 read, 30 spans a kernel block; 1,920 requests and 35,389,440 B per 1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: draft is not stored (when draft_tokens > 0).
Prefill: not probed on vllm, whose file alone says how a page is filled: attention.
Decode: draft is not stored (when draft_tokens > 0).
Decode: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 61 layers x 1,152 B a token, each from its own
(layer, token, dim, turn).
"""

from __future__ import annotations

from kvplan.plan.types import Blocks, Group, Loop, Nest, Pair, Plan, Planes, Read, Runs, Side, Table, View, Worker, cuts

MODEL_DIGEST = "274f4f09cbd5aa1458294b67f412a7fc"
PREFILL_DIGEST = "c02fb28f65404c68a36e02fc43966b14"
DECODE_DIGEST = "7f27aa3be9bc2ddc58ba0d8a4d6c63bf"
PLAN_DIGEST = "3028b1449046c1b67f39b0867858adac"
FUNCTIONS_DIGEST = "9d8ce52ad8986bac8812bebfb4c1a4d2"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
ATTENTION_VIEWS = (
    View("latent", "bf16", 0, (("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", 1024, (("token", 16, 1152), ("turn", 64, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS_0 = (("layer", tuple(range(61)), 1),)
ATTENTION_LOOPS_1 = (("layer", tuple(range(31)), 1),)
ATTENTION_LOOPS_2 = (("layer", tuple(range(31, 61)), 1),)
PREFILL_PLANES = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS_0, 18_432, 18_432, ATTENTION_VIEWS),)
DECODE_PLANES_0 = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS_1, 18_432, 18_432, ATTENTION_VIEWS),)
DECODE_PLANES_1 = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS_2, 18_432, 18_432, ATTENTION_VIEWS),)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=8",
    digest=PREFILL_DIGEST,
    groups=(Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
    ),
)

DECODE = Side(
    key="tp=2,pp=2",
    digest=DECODE_DIGEST,
    groups=(Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(Worker(DECODE_PLANES_0), Worker(DECODE_PLANES_0), Worker(DECODE_PLANES_1), Worker(DECODE_PLANES_1)),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_31_LAYERS = (Loop("layer", 31, (1, 0), (1, 0)),)
EACH_30_LAYERS = (Loop("layer", 30, (1, 0), (1, 0)),)
ATTENTION_TABLE_0 = Table(
    page=(Nest(("latent", "rope"), (0, 0), (0, 0), 18_432, EACH_31_LAYERS),),
    token=(Nest(("latent", "rope"), (0, 0), (0, 0), 1152, EACH_31_LAYERS, (1152, 1152)),),
)
ATTENTION_TABLE_1 = Table(
    page=(Nest(("latent", "rope"), (31, 0), (0, 0), 18_432, EACH_30_LAYERS),),
    token=(Nest(("latent", "rope"), (31, 0), (0, 0), 1152, EACH_30_LAYERS, (1152, 1152)),),
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
    (Read(0, "attention", "attention", tuple(range(31)), (), ATTENTION_TABLE_0),),
    # decode worker 1
    (Read(2, "attention", "attention", tuple(range(31)), (), ATTENTION_TABLE_0),),
    # decode worker 2
    (Read(4, "attention", "attention", tuple(range(31, 61)), (), ATTENTION_TABLE_1),),
    # decode worker 3
    (Read(6, "attention", "attention", tuple(range(31, 61)), (), ATTENTION_TABLE_1),),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((1,), (3,), (5,), (7,))

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
    pairs=(Pair("attention", "attention", "attention", 16, attention),),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
