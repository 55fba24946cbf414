"""Kimi K2 with an EAGLE-3 draft: prefill tp=2,draft_tokens=3 -> decode tp=4,draft_tokens=3.

Emitted by kvplan from kimi-k2-eagle3, do not edit:
    kvplan compile kimi-k2-eagle3 --prefill tp=2,draft_tokens=3 --decode tp=4,draft_tokens=3

attention, a page of the first worker that has one:
    prefill  |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 61 layers

draft, a page of the first worker that has one:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 31   |     262,144 B
             16 tokens; a plane for each of 1 layer
             32 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |  0  |  1  |  2  |  …  |  15 |                                       131,072 B
             16 tokens; a plane for each of 1 layer
             16 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-3, attention+draft: 2 reads, 62 spans a kernel block; 3,968 requests and 80,347,136 B per 1,024
        tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, draft.
Decode: not probed on vllm, whose file alone says how a page is filled: attention, draft.
Proved for every decode worker, each byte written once. attention: 61 layers x 1,152 B a token, each from its own
(layer, token, dim, turn); draft: 1 layers x 32,768 B a token, each from its own (layer, head, token, dim).
"""

from __future__ import annotations

from kvplan.plan.types import Blocks, Group, Loop, Nest, Pair, Plan, Planes, Read, Runs, Side, Table, View, Worker, cuts

MODEL_DIGEST = "4fcf35752c95d41307aac820ea4fb506"
PREFILL_DIGEST = "11d2782526ec369e01e3a85c0d02102c"
DECODE_DIGEST = "1046d6b341c878a75f84e227ae3de30e"
PLAN_DIGEST = "edfed1dab2efde9f189a2c353d70733f"
FUNCTIONS_DIGEST = "015eb5977a2d0c128fc45016750e6530"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
ATTENTION_VIEWS = (
    View("latent", "bf16", 0, (("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", 1024, (("token", 16, 1152), ("turn", 64, 2))),
)
PREFILL_DRAFT_VIEWS = (
    View("k", "bf16", 0, (("head", 32, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 32, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
DECODE_DRAFT_VIEWS = (
    View("k", "bf16", 0, (("head", 16, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 16, 8192), ("token", 16, 512), ("dim", 128, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", tuple(range(61)), 1),)
DRAFT_LOOPS = (("layer", (61,), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention+draft", None, 0, ATTENTION_LOOPS, 18_432, 18_432, ATTENTION_VIEWS),
    Planes("draft", "attention+draft", None, 61, DRAFT_LOOPS, 262_144, 262_144, PREFILL_DRAFT_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention+draft", None, 0, ATTENTION_LOOPS, 18_432, 18_432, ATTENTION_VIEWS),
    Planes("draft", "attention+draft", None, 61, DRAFT_LOOPS, 131_072, 131_072, DECODE_DRAFT_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=2,draft_tokens=3",
    digest=PREFILL_DIGEST,
    groups=(Group("attention+draft", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(
        Worker(PREFILL_PLANES, holds=(("draft", "head", (0, 32)),)),
        Worker(PREFILL_PLANES, holds=(("draft", "head", (32, 64)),)),
    ),
)

DECODE = Side(
    key="tp=4,draft_tokens=3",
    digest=DECODE_DIGEST,
    groups=(Group("attention+draft", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(
        Worker(DECODE_PLANES, holds=(("draft", "head", (0, 16)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (16, 32)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (32, 48)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (48, 64)),)),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_61_LAYERS = (Loop("layer", 61, (1, 0), (1, 0)),)
EACH_16_HEADS = (Loop("head", 16, (0, 8192), (0, 8192)),)
ATTENTION_TABLE = Table(
    page=(Nest(("latent", "rope"), (0, 0), (0, 0), 18_432, EACH_61_LAYERS),),
    token=(Nest(("latent", "rope"), (0, 0), (0, 0), 1152, EACH_61_LAYERS, (1152, 1152)),),
)
DRAFT_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 131_072),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_16_HEADS, (512, 512)),),
)
DRAFT_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 131_072), (0, 0), 131_072),),
    token=(Nest(("k", "v"), (0, 131_072), (0, 0), 512, EACH_16_HEADS, (512, 512)),),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention_draft(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
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
        Read(0, "attention+draft", "attention", tuple(range(61)), (), ATTENTION_TABLE),
        Read(0, "attention+draft", "draft", (61,), (("head", (0, 16)),), DRAFT_TABLE_0, (61, 61)),
    ),
    # decode worker 1
    (
        Read(0, "attention+draft", "attention", tuple(range(61)), (), ATTENTION_TABLE),
        Read(0, "attention+draft", "draft", (61,), (("head", (16, 32)),), DRAFT_TABLE_1, (61, 61)),
    ),
    # decode worker 2
    (
        Read(1, "attention+draft", "attention", tuple(range(61)), (), ATTENTION_TABLE),
        Read(1, "attention+draft", "draft", (61,), (("head", (32, 48)),), DRAFT_TABLE_0, (61, 61)),
    ),
    # decode worker 3
    (
        Read(1, "attention+draft", "attention", tuple(range(61)), (), ATTENTION_TABLE),
        Read(1, "attention+draft", "draft", (61,), (("head", (48, 64)),), DRAFT_TABLE_1, (61, 61)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), (), (), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="Kimi K2 with an EAGLE-3 draft",
    model="kimi-k2-eagle3",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(Pair("attention+draft", "attention+draft", "attention+draft", 16, attention_draft),),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
