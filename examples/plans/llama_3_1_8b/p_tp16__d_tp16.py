"""Llama 3.1 8B: prefill tp=16 -> decode tp=16.

Emitted by kvplan from llama-3.1-8b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile llama-3.1-8b --prefill tp=16 --decode tp=16 --elect spread

A page of cache attention on worker 0:
    both     |  token 0  |  token 1   |  token 2   |     …      |  token 15  |       8,192 B
             16 tokens; a KV cache tensor for each of 32 layers
             1 head, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-15, attention: 16,777,216 B in 2,048 descriptors; 1 read, 32 spans of all layers for each of 64
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
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, groups="attention", layers=tuple(range(32)), holds=(("head", (0, 1)),), table=ATTENTION),),
        # decode worker 1
        (Read(worker=1, groups="attention", layers=tuple(range(32)), holds=(("head", (0, 1)),), table=ATTENTION),),
        # decode worker 2
        (Read(worker=2, groups="attention", layers=tuple(range(32)), holds=(("head", (1, 2)),), table=ATTENTION),),
        # decode worker 3
        (Read(worker=3, groups="attention", layers=tuple(range(32)), holds=(("head", (1, 2)),), table=ATTENTION),),
        # decode worker 4
        (Read(worker=4, groups="attention", layers=tuple(range(32)), holds=(("head", (2, 3)),), table=ATTENTION),),
        # decode worker 5
        (Read(worker=5, groups="attention", layers=tuple(range(32)), holds=(("head", (2, 3)),), table=ATTENTION),),
        # decode worker 6
        (Read(worker=6, groups="attention", layers=tuple(range(32)), holds=(("head", (3, 4)),), table=ATTENTION),),
        # decode worker 7
        (Read(worker=7, groups="attention", layers=tuple(range(32)), holds=(("head", (3, 4)),), table=ATTENTION),),
        # decode worker 8
        (Read(worker=8, groups="attention", layers=tuple(range(32)), holds=(("head", (4, 5)),), table=ATTENTION),),
        # decode worker 9
        (Read(worker=9, groups="attention", layers=tuple(range(32)), holds=(("head", (4, 5)),), table=ATTENTION),),
        # decode worker 10
        (Read(worker=10, groups="attention", layers=tuple(range(32)), holds=(("head", (5, 6)),), table=ATTENTION),),
        # decode worker 11
        (Read(worker=11, groups="attention", layers=tuple(range(32)), holds=(("head", (5, 6)),), table=ATTENTION),),
        # decode worker 12
        (Read(worker=12, groups="attention", layers=tuple(range(32)), holds=(("head", (6, 7)),), table=ATTENTION),),
        # decode worker 13
        (Read(worker=13, groups="attention", layers=tuple(range(32)), holds=(("head", (6, 7)),), table=ATTENTION),),
        # decode worker 14
        (Read(worker=14, groups="attention", layers=tuple(range(32)), holds=(("head", (7, 8)),), table=ATTENTION),),
        # decode worker 15
        (Read(worker=15, groups="attention", layers=tuple(range(32)), holds=(("head", (7, 8)),), table=ATTENTION),),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_32_LAYERS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=8192, loops=EACH_32_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_32_LAYERS, token_step=(512, 512)),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
GROUP_PAIRS = (GroupPair("attention", page_rows=16),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="tp=16", digest="258b442b34487544a5dd7484382b9a92", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(PLANES, holds=(("attention", "head", (7, 8)),)),
        Worker(PLANES, holds=(("attention", "head", (7, 8)),)),
    ))

def decode() -> Side:
    return Side(key="tp=16", digest="258b442b34487544a5dd7484382b9a92", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(PLANES, holds=(("attention", "head", (7, 8)),)),
        Worker(PLANES, holds=(("attention", "head", (7, 8)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=8192, views=(
    View("k", "bf16", axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=3, title="Llama 3.1 8B", model="llama-3.1-8b", model_digest="e82edc6ce7f867ee14dce2f0a8baed9e",
            digest="5ee2bd32817724252798cd74331c6a87", options=(("elect", "spread"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
