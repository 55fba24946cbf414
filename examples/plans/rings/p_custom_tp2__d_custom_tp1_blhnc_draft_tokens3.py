r"""Rings beside full attention: prefill engine=custom,tp=2 -> decode engine=custom,tp=1,order=BLHNC,draft_tokens=3.

Emitted by kvplan from rings, do not edit:
    kvplan compile rings \
        --prefill engine=custom,tp=2 \
        --decode engine=custom,tp=1,order=BLHNC,draft_tokens=3 \
        --layouts LAYOUTS

attention, a page of the first worker that has one:
    prefill  | 0 | 1 | 2 | 3 |                                                      16,384 B
             16 tokens; a plane for each of 2 layers
             4 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v 128 B (64 dim x bf16)]
    decode   |            layer 0            |            layer 1            |      65,536 B
             16 tokens; one plane
             2 layers, 32,768 B each: [8 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v
               128 B (64 dim x bf16)]]

keys, a page of the first worker that has one:
    prefill  |       k       |                                                         512 B
             4 tokens; a ring of 4 tokens; a plane for each of 2 layers
             k 512 B (4 token x 64 dim x bf16)
    decode   |                               k                               |       2,048 B
             8 tokens; a ring of 8 tokens; one plane
             k 2,048 B (2 layer x 8 token x 64 dim x bf16)

scores, a page of the first worker that has one:
    prefill  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |                                       4,096 B
             8 tokens; a ring of 8 tokens; a plane for each of 2 layers
             8 tokens, 512 B each: kv 256 B (64 dim x f32) | score 256 B (64 dim x f32)
    decode   |            layer 0            |            layer 1            |       8,192 B
             8 tokens; a ring of 8 tokens; one plane
             2 layers, 4,096 B each: [8 tokens, 512 B each: kv 256 B (64 dim x f32) | score 256 B (64 dim x f32)]

tail, a page of the first worker that has one:
    prefill  |   k   |  gate |                                                       1,024 B
             4 tokens; a ring of 4 tokens; a plane for each of 2 layers
             k 512 B (4 token x 64 dim x bf16)
             gate 512 B (4 token x 64 dim x bf16)
    decode   |            layer 0            |            layer 1            |       4,096 B
             8 tokens; a ring of 8 tokens; one plane
             2 layers, 2,048 B each: k 1,024 B (8 token x 64 dim x bf16) | gate 1,024 B (8 token x 64 dim x bf16)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode worker 0, attention: 2 reads, 4 spans a kernel block; 256 requests and 4,194,304 B per 1,024 tokens
    decode worker 0, keys: 1 read, 2 spans a run of tokens; 0 requests and 0 B per 1,024 tokens
    decode worker 0, scores: 1 read, 2 spans a kernel block; 0 requests and 0 B per 1,024 tokens
    decode worker 0, tail: 1 read, 4 spans a run of tokens; 0 requests and 0 B per 1,024 tokens

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
keys, tail, each: only those from the last multiple of 4 on.
scores: only those from the last multiple of 2 on.
Prefill: not probed on custom, whose file alone says how a page is filled: attention, keys, scores, tail.
Decode: not probed on custom, whose file alone says how a page is filled: attention, keys, scores, tail.
Proved for every decode worker, each byte written once. attention: 2 layers x 2,048 B a token, each from its own
(layer, head, token, dim); keys: 2 layers x 128 B a token, each from its own (layer, token, dim); scores: 2 layers x
512 B a token, each from its own (layer, token, dim); tail: 2 layers x 256 B a token, each from its own (layer,
token, dim).
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

MODEL_DIGEST = "b0fb19dd573c7ae9ee94b5c2e31fd885"
PREFILL_DIGEST = "a82ac0acae83d85e1153954a6ab2fbab"
DECODE_DIGEST = "b745749cc5865ab791b9b00d96becbd6"
PLAN_DIGEST = "0b92266299b600da21b39550e49246d5"
FUNCTIONS_DIGEST = "61e5c3e497c2d768244d9baa1c6ad578"

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "bf16", 128, (("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
PREFILL_KEYS_VIEWS = (View("k", "bf16", 0, (("token", 4, 128), ("dim", 64, 2))),)
PREFILL_SCORES_VIEWS = (
    View("kv", "f32", 0, (("token", 8, 512), ("dim", 64, 4))),
    View("score", "f32", 256, (("token", 8, 512), ("dim", 64, 4))),
)
PREFILL_TAIL_VIEWS = (
    View("k", "bf16", 0, (("token", 4, 128), ("dim", 64, 2))),
    View("gate", "bf16", 512, (("token", 4, 128), ("dim", 64, 2))),
)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("layer", 2, 32_768), ("head", 8, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "bf16", 128, (("layer", 2, 32_768), ("head", 8, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
DECODE_KEYS_VIEWS = (View("k", "bf16", 0, (("layer", 2, 1024), ("token", 8, 128), ("dim", 64, 2))),)
DECODE_SCORES_VIEWS = (
    View("kv", "f32", 0, (("layer", 2, 4096), ("token", 8, 512), ("dim", 64, 4))),
    View("score", "f32", 256, (("layer", 2, 4096), ("token", 8, 512), ("dim", 64, 4))),
)
DECODE_TAIL_VIEWS = (
    View("k", "bf16", 0, (("layer", 2, 2048), ("token", 8, 128), ("dim", 64, 2))),
    View("gate", "bf16", 1024, (("layer", 2, 2048), ("token", 8, 128), ("dim", 64, 2))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", (0, 2), 1),)
LOOPS = (("layer", (1, 3), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 16_384, 16_384, PREFILL_ATTENTION_VIEWS),
    Planes("keys", "keys", None, 2, LOOPS, 512, 512, PREFILL_KEYS_VIEWS),
    Planes("scores", "scores", None, 4, LOOPS, 4096, 4096, PREFILL_SCORES_VIEWS),
    Planes("tail", "tail", None, 6, LOOPS, 1024, 1024, PREFILL_TAIL_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, (), 65_536, 65_536, DECODE_ATTENTION_VIEWS, (0, 2)),
    Planes("keys", "keys", None, 1, (), 2048, 2048, DECODE_KEYS_VIEWS, (1, 3)),
    Planes("scores", "scores", None, 2, (), 8192, 8192, DECODE_SCORES_VIEWS, (1, 3)),
    Planes("tail", "tail", None, 3, (), 4096, 4096, DECODE_TAIL_VIEWS, (1, 3)),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="engine=custom,tp=2",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("keys", "tokens", tokens=4, kernel=4, ratio=1, arena=1, ring=4),
        Group("scores", "tokens", tokens=8, kernel=8, ratio=1, arena=2, ring=8),
        Group("tail", "tokens", tokens=4, kernel=4, ratio=1, arena=3, ring=4),
    ),
    workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 8)),)),
    ),
)

DECODE = Side(
    key="engine=custom,tp=1,order=BLHNC,draft_tokens=3",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("keys", "tokens", tokens=8, kernel=8, ratio=1, arena=1, ring=8),
        Group("scores", "tokens", tokens=8, kernel=8, ratio=1, arena=2, ring=8),
        Group("tail", "tokens", tokens=8, kernel=8, ratio=1, arena=3, ring=8),
    ),
    workers=(Worker(DECODE_PLANES, holds=(("attention", "head", (0, 8)),)),),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_2_LAYERS_0 = (Loop("layer", 2, (1, 0), (0, 32_768)),)
EACH_2_LAYERS_1 = (Loop("layer", 2, (1, 0), (0, 1024)),)
EACH_2_LAYERS_2 = (Loop("layer", 2, (1, 0), (0, 4096)),)
EACH_2_LAYERS_3 = (Loop("layer", 2, (1, 0), (0, 2048)),)
EACH_2_LAYERS_4_HEADS = (Loop("layer", 2, (1, 0), (0, 32_768)), Loop("head", 4, (0, 4096), (0, 4096)))
ATTENTION_TABLE_0 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 0), 16_384, EACH_2_LAYERS_0),),
    token=(Nest(("k", "v"), (0, 0), (0, 0), 256, EACH_2_LAYERS_4_HEADS, (256, 256)),),
)
ATTENTION_TABLE_1 = Table(
    page=(Nest(("k", "v"), (0, 0), (0, 16_384), 16_384, EACH_2_LAYERS_0),),
    token=(Nest(("k", "v"), (0, 0), (0, 16_384), 256, EACH_2_LAYERS_4_HEADS, (256, 256)),),
)
KEYS_TABLE = Table(token=(Nest(("k",), (0, 0), (0, 0), 128, EACH_2_LAYERS_1, (128, 128)),))
SCORES_TABLE = Table(
    page=(Nest(("kv", "score"), (0, 0), (0, 0), 4096, EACH_2_LAYERS_2),),
    token=(Nest(("kv", "score"), (0, 0), (0, 0), 512, EACH_2_LAYERS_2, (512, 512)),),
)
TAIL_TABLE = Table(
    token=(
        Nest(("k",), (0, 0), (0, 0), 128, EACH_2_LAYERS_3, (128, 128)),
        Nest(("gate",), (0, 512), (0, 1024), 128, EACH_2_LAYERS_3, (128, 128)),
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


def keys(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 4 tokens in a ring of 4,
    a decode block one kernel block of 8 tokens in a ring of 8.
    Needed are those in the last chunk of 4 of all tokens before end.
    """
    low = max(first, end // 4 * 4)
    token, count = cuts(low, end, 4)
    p_block, p_token = divmod(token % 4, 4)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token % 8, 8)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def scores(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A block is one kernel block of 8 tokens in a ring of 8 on both sides.
    Needed are those in the last chunk of 2 of all tokens before end.
    """
    low = max(first, end // 2 * 2)
    token, count = cuts(low, end, 8)
    p_block, p_token = divmod(token % 8, 8)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token % 8, 8)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def tail(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 4 tokens in a ring of 4,
    a decode block one kernel block of 8 tokens in a ring of 8.
    Needed are those in the last chunk of 4 of all tokens before end.
    """
    low = max(first, end // 4 * 4)
    token, count = cuts(low, end, 4)
    p_block, p_token = divmod(token % 4, 4)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token % 8, 8)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", (0, 2), (("head", (0, 4)),), ATTENTION_TABLE_0),
        Read(1, "attention", "attention", (0, 2), (("head", (4, 8)),), ATTENTION_TABLE_1),
        Read(0, "keys", "keys", (1, 3), (), KEYS_TABLE, (2, 1)),
        Read(0, "scores", "scores", (1, 3), (), SCORES_TABLE, (4, 2)),
        Read(0, "tail", "tail", (1, 3), (), TAIL_TABLE, (6, 3)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((),)

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
# Needs: which tokens are read, the last `keep`, those from the last multiple of `chunk` on, the first `sink`.
PLAN = Plan(
    format=1,
    title="Rings beside full attention",
    model="rings",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("attention", "attention", "attention", 16, attention),
        Pair("keys", "keys", "keys", 0, keys, needs=Needs(chunk=4)),
        Pair("scores", "scores", "scores", 8, scores, needs=Needs(chunk=2)),
        Pair("tail", "tail", "tail", 0, tail, needs=Needs(chunk=4)),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
