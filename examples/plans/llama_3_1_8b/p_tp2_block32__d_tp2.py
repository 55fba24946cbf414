"""Llama 3.1 8B: prefill tp=2,block=32 -> decode tp=2.

Emitted by kvplan from llama-3.1-8b, do not edit:
    kvplan compile llama-3.1-8b --prefill tp=2,block=32 --decode tp=2

attention, a page of the first worker that has one:
    prefill  |     head 0    |     head 1    |     head 2    |     head 3    |      65,536 B
             32 tokens; a plane for each of 32 layers
             4 heads, 16,384 B each: [32 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      32,768 B
             16 tokens; a plane for each of 32 layers
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-1, attention: 1 read, 128 spans a run of tokens; 8,192 requests and 67,108,864 B per 1,024
        tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention.
Decode: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 32 layers x 4,096 B a token, each from its own
(layer, head, token, dim).
"""

from __future__ import annotations

from kvplan.plan.types import Blocks, Group, Loop, Nest, Pair, Plan, Planes, Read, Runs, Side, Table, View, Worker, cuts

MODEL_DIGEST = "e82edc6ce7f867ee14dce2f0a8baed9e"
PREFILL_DIGEST = "78e760fbd99db321ea3f572ee818bffb"
DECODE_DIGEST = "eb9cf4a70ac255840f0f902bb5574627"
PLAN_DIGEST = "2aa6bfa02c0a7844c792ca90e0545da6"
FUNCTIONS_DIGEST = "09b3f49d751273f9d59cc32cfdf0e77e"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 4, 16_384), ("token", 32, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 4, 16_384), ("token", 32, 512), ("dim", 128, 2))),
)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", tuple(range(32)), 1),)
PREFILL_PLANES = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 65_536, 65_536, PREFILL_ATTENTION_VIEWS),)
DECODE_PLANES = (Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 32_768, 32_768, DECODE_ATTENTION_VIEWS),)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=2,block=32",
    digest=PREFILL_DIGEST,
    groups=(Group("attention", "tokens", tokens=32, kernel=32, ratio=1, arena=0),),
    workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 8)),)),
    ),
)

DECODE = Side(
    key="tp=2",
    digest=DECODE_DIGEST,
    groups=(Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),),
    workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)),)),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_32_LAYERS_4_HEADS = (Loop("layer", 32, (1, 0), (1, 0)), Loop("head", 4, (0, 16_384), (0, 8192)))
ATTENTION_TABLE = Table(token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_32_LAYERS_4_HEADS, (512, 512)),))


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 32 tokens,
    a decode block one kernel block of 16 tokens.
    """
    token, count = cuts(first, end, 16)
    p_block, p_token = divmod(token, 32)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 16)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (Read(0, "attention", "attention", tuple(range(32)), (("head", (0, 4)),), ATTENTION_TABLE),),
    # decode worker 1
    (Read(1, "attention", "attention", tuple(range(32)), (("head", (4, 8)),), ATTENTION_TABLE),),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), ())

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
    pairs=(Pair("attention", "attention", "attention", 0, attention),),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
