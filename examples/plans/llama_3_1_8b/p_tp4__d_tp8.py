"""Llama 3.1 8B: prefill tp=4 -> decode tp=8.

Emitted by kvplan from llama-3.1-8b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile llama-3.1-8b --prefill tp=4 --decode tp=8

A page of cache attention on worker 0:
    prefill  |             head 0            |             head 1            |      16,384 B
             16 tokens; a KV cache tensor for each of 32 layers
             2 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |  0  |  1  |  2  |  …  |  15 |                                         8,192 B, by token
             16 tokens; a KV cache tensor for each of 32 layers
             1 head, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-7, attention: 16,777,216 B in 2,048 descriptors; 1 read, 32 spans of all layers for each of 64
        blocks

Layers: 32 (all store attention).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
Both sides: the page layout of cache attention comes from vllm's engine file; not yet verified on a running engine:
    the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 32
    layers x 4,096 B per token, coordinates (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `pair` is one of PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill, decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, pair="attention", layers=tuple(range(32)), holds=(("head", (0, 1)),), table=ATTENTION),),
        # decode worker 1
        (Read(worker=0, pair="attention", layers=tuple(range(32)), holds=(("head", (1, 2)),), table=ATTENTION,
              offset=(8192, 0)),),
        # decode worker 2
        (Read(worker=1, pair="attention", layers=tuple(range(32)), holds=(("head", (2, 3)),), table=ATTENTION),),
        # decode worker 3
        (Read(worker=1, pair="attention", layers=tuple(range(32)), holds=(("head", (3, 4)),), table=ATTENTION,
              offset=(8192, 0)),),
        # decode worker 4
        (Read(worker=2, pair="attention", layers=tuple(range(32)), holds=(("head", (4, 5)),), table=ATTENTION),),
        # decode worker 5
        (Read(worker=2, pair="attention", layers=tuple(range(32)), holds=(("head", (5, 6)),), table=ATTENTION,
              offset=(8192, 0)),),
        # decode worker 6
        (Read(worker=3, pair="attention", layers=tuple(range(32)), holds=(("head", (6, 7)),), table=ATTENTION),),
        # decode worker 7
        (Read(worker=3, pair="attention", layers=tuple(range(32)), holds=(("head", (7, 8)),), table=ATTENTION,
              offset=(8192, 0)),),
    )

# What a read copies for one block (`page` of a Table), or for each token of a run (`token`). A Nest is a span of
# `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token` of a Nest is the step from one token to the next on each side; if both steps equal `bytes`,
# all tokens of a run are one span.
EACH_32_LAYERS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    page=(Nest(("k", "v"), bytes=8192, loops=EACH_32_LAYERS),),
    token=(Nest(("k", "v"), bytes=512, loops=EACH_32_LAYERS, token=(512, 512)),),
)

# Which groups of the two sides match: a Pair is one of each. Its `page` is the number of token rows in a page, if both
# sides have the same; without it, runs of tokens are copied.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
PAIRS = (Pair("attention", page=16),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="tp=4", digest="9aba382b15c7256f50f705fa85af2109", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 2)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (2, 4)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 6)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (6, 8)),)),
    ))

def decode() -> Side:
    return Side(key="tp=8", digest="98b4686a89ce70c455ea6bc63244ac05", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (7, 8)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). Pages are `stride` bytes apart; by default
# `page` bytes, the size of a page. `kvplan explain WORD` explains the name of an axis.
PREFILL_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page=16_384, views=(
    View("k", "bf16", axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page=8192, views=(
    View("k", "bf16", axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=2, title="Llama 3.1 8B", model="llama-3.1-8b", model_digest="e82edc6ce7f867ee14dce2f0a8baed9e",
            digest="44d7350e6b895e313c65a7f0c71ed099", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads())
