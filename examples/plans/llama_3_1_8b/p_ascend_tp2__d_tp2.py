"""Llama 3.1 8B: prefill engine=ascend,tp=2,order=nz -> decode tp=2.

Emitted by kvplan from llama-3.1-8b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile llama-3.1-8b --prefill engine=ascend,tp=2,order=nz --decode tp=2

A page of cache attention on worker 0:
    prefill k |                               k                               |     131,072 B
             128 tokens; a KV cache tensor for each of 32 layers
             k 131,072 B (4 head x 8 dim/16 x 128 token x 16 dim x bf16)
    prefill v |                               v                               |     131,072 B
             128 tokens; a KV cache tensor for each of 32 layers
             v 131,072 B (4 head x 8 dim/16 x 128 token x 16 dim x bf16)
    decode   | 0 | 1 | 2 | 3 |                                                      32,768 B, by head
             16 tokens; a KV cache tensor for each of 32 layers
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 67,108,864 B in 2,097,152 descriptors; 1 read, 2,048 spans of all layers for each
        of 1,024 tokens

Layers: 32 (all store attention).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
Prefill: the page layout of cache attention comes from ascend's engine file; not yet verified on a running engine:
    the --probe of kvplan from-cache verifies it.
Decode: the page layout of cache attention comes from vllm's engine file; not yet verified on a running engine: the
    --probe of kvplan from-cache verifies it.
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
        (Read(worker=0, groups="attention", layers=tuple(range(32)), holds=(("head", (0, 4)),), table=ATTENTION),),
        # decode worker 1
        (Read(worker=1, groups="attention", layers=tuple(range(32)), holds=(("head", (4, 8)),), table=ATTENTION),),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side.
EACH_32_LAYERS_4_HEADS_8_DIMS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                                 Loop("head", count=4, prefill=(0, 32_768), decode=(0, 8192)),
                                 Loop("dim", count=8, prefill=(0, 4096), decode=(0, 32)))
ATTENTION = Table(per_token=(
    Nest(("k",), bytes=32, loops=EACH_32_LAYERS_4_HEADS_8_DIMS, token_step=(32, 512)),
    Nest(("v",), prefill=(32, 0), decode=(0, 256), bytes=32, loops=EACH_32_LAYERS_4_HEADS_8_DIMS, token_step=(32, 512)),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 128 of block t // 128 of prefill, at t % 16 of block t // 16 of decode; runs end at
#   multiples of 16.
GROUP_PAIRS = (GroupPair("attention"),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="engine=ascend,tp=2,order=nz", digest="14a179d5c704caa64465191538292da9", groups=(
        Group("attention", "tokens", tokens=128, kernel=128),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 8)),)),
    ))

def decode() -> Side:
    return Side(key="tp=2", digest="44c2396daeca14e29ed7ee8540592a2b", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
# `part`: an allocation of a cache that has several.
PREFILL_PLANES = (
    Planes(
        "attention", part="k", loops=(("layer", tuple(range(32)), 1),), page_bytes=131_072,
        views=(View("k", "bf16", axes=(("head", 4, 32_768), ("dim/16", 8, 4096), ("token", 128, 32), ("dim", 16, 2))),),
    ),
    Planes(
        "attention", part="v", first=32, loops=(("layer", tuple(range(32)), 1),), page_bytes=131_072,
        views=(View("v", "bf16", axes=(("head", 4, 32_768), ("dim/16", 8, 4096), ("token", 128, 32), ("dim", 16, 2))),),
    ),
)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=32_768, views=(
    View("k", "bf16", axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=3, title="Llama 3.1 8B", model="llama-3.1-8b", model_digest="e82edc6ce7f867ee14dce2f0a8baed9e",
            digest="d8e467f2f4fb86128e0bb13cd6b038cb", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
