"""Llama 3.1 8B: prefill tp=4 -> decode tp=2,order=LBNHC.

Emitted by kvplan from llama-3.1-8b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile llama-3.1-8b --prefill tp=4 --decode tp=2,order=LBNHC --strategy auto

A page of cache attention on worker 0:
    prefill  |     head 0    |     head 1    |                                      16,384 B
             16 tokens; a KV cache tensor for each of 32 layers
             2 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      32,768 B
             16 tokens; a KV cache tensor for each of 32 layers
             16 tokens, 2,048 B each: [4 heads, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 67,108,864 B in 131,072 descriptors; 2 reads, together 2,048 spans of all layers
        for each of 64 blocks; with unpack 67,108,864 B in 4,096 descriptors, predicted to take 27.15 ms instead of
        132.19 ms

Layers: 32 (all store attention).
Strategy: auto on xeon-2-cores-shared-memory: with `unpack`, ranges of prefill pages are moved whole and decode
    copies them into place; all other spans are copied straight to their place. Exactly the tokens that decode needs
    are written.
Both sides: the page layout of cache attention comes from vllm's engine file; not yet verified on a running engine:
    the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 32
    layers x 4,096 B per token, coordinates (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, PageRange, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=tuple(range(32)), holds=(("head", (0, 2)),), table=ATTENTION),
            Read(worker=1, groups="attention", layers=tuple(range(32)), holds=(("head", (2, 4)),), table=ATTENTION,
                 offset=(0, 1024)),
        ),
        (  # decode worker 1
            Read(worker=2, groups="attention", layers=tuple(range(32)), holds=(("head", (4, 6)),), table=ATTENTION),
            Read(worker=3, groups="attention", layers=tuple(range(32)), holds=(("head", (6, 8)),), table=ATTENTION,
                 offset=(0, 1024)),
        ),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side. A staged read moves ranges of pages
# whole: of prefill pages, from which decode copies (`unpack`), or of decode pages, into which prefill copies (`pack`).
EACH_32_LAYERS_16_TOKENS_2_HEADS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                                    Loop("token", count=16, prefill=(0, 512), decode=(0, 2048)),
                                    Loop("head", count=2, prefill=(0, 8192), decode=(0, 512)))
EACH_32_LAYERS_2_HEADS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                          Loop("head", count=2, prefill=(0, 8192), decode=(0, 512)))
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=512, loops=EACH_32_LAYERS_16_TOKENS_2_HEADS),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_32_LAYERS_2_HEADS, token_step=(512, 2048)),),
    unpack=(PageRange(bytes=16_384, planes=32),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
GROUP_PAIRS = (GroupPair("attention", page_rows=16),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="tp=4", digest="d3446f3f589e362ba3b91d6172e951bb", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 2)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (2, 4)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 6)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (6, 8)),)),
    ))

def decode() -> Side:
    return Side(key="tp=2,order=LBNHC", digest="adda063a4e49907f21df7eedc8158370", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=16_384, views=(
    View("k", "bf16", axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=32_768, views=(
    View("k", "bf16", axes=(("token", 16, 2048), ("head", 4, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("token", 16, 2048), ("head", 4, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=3, title="Llama 3.1 8B", model="llama-3.1-8b", model_digest="e82edc6ce7f867ee14dce2f0a8baed9e",
            digest="9b22f6739ca3c54f0159f071ce878c96", options=(("elect", "one"), ("strategy", "auto")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
