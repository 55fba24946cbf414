"""DeepSeek-V3: prefill tp=8 -> decode tp=1.

Emitted by kvplan from deepseek-v3, do not edit:
    kvplan compile deepseek-v3 --prefill tp=8 --decode tp=1

attention, a page of the first worker that has one:
    prefill  |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 61 layers

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode worker 0, attention: 1 read, 61 spans a kernel block; 3,904 requests and 71,958,528 B per 1,024 tokens

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
DECODE_DIGEST = "f2a3b477a4afd3469a8c9f675d1a7ce9"
PLAN_DIGEST = "902eedde2250a294efbe9fa54a784945"
FUNCTIONS_DIGEST = "9d8ce52ad8986bac8812bebfb4c1a4d2"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
ATTENTION_VIEWS = (
    View("latent", "bf16", 0, (("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", 1024, (("token", 16, 1152), ("turn", 64, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", tuple(range(61)), 1),)
PLANES = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 18_432, 18_432, ATTENTION_VIEWS),)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=8",
    digest=PREFILL_DIGEST,
    groups=(Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
    ),
)

DECODE = Side(
    key="tp=1",
    digest=DECODE_DIGEST,
    groups=(Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(Worker(PLANES),),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_61_LAYERS = (Loop("layer", 61, (1, 0), (1, 0)),)
ATTENTION_TABLE = Table(
    page=(Nest(("latent", "rope"), (0, 0), (0, 0), 18_432, EACH_61_LAYERS),),
    token=(Nest(("latent", "rope"), (0, 0), (0, 0), 1152, EACH_61_LAYERS, (1152, 1152)),),
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
    (Read(0, "attention", "attention", tuple(range(61)), (), ATTENTION_TABLE),),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = (tuple(range(1, 8)),)

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
