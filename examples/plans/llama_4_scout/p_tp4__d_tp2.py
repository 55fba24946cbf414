"""Llama 4 Scout 17B-16E: prefill tp=4,block=32 -> decode tp=2.

Emitted by kvplan from llama-4-scout, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile llama-4-scout --prefill tp=4,block=32 --decode tp=2

A page of cache full on worker 0:
    prefill  |             head 0            |             head 1            |      32,768 B
             32 tokens; a KV cache tensor for each of 12 layers
             2 heads, 16,384 B each: [32 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |     head 0    |     head 1    |     head 2    |     head 3    |      32,768 B
             16 tokens; a KV cache tensor for each of 12 layers
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
A page of cache local on worker 0:
    prefill  |             head 0            |             head 1            |      32,768 B
             32 tokens; a KV cache tensor for each of 12 layers of local.0, one of 3 groups of local
             2 heads, 16,384 B each: [32 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |     head 0    |     head 1    |     head 2    |     head 3    |      32,768 B
             16 tokens; a KV cache tensor for each of 12 layers of local.0, one of 3 groups of local
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, full, local.0, local.1, local.2, each: 25,165,824 B in 3,072 descriptors; 2 reads, together
        48 spans of all layers for each of 64 runs of tokens

Layers: 48 (12 store full, 36 store local).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
local.0, local.1, local.2, each: only those from the last multiple of 8,192 on.
Shared memory: on both sides full, local.0, local.1 and local.2. A block is of one of these groups at a time.
Both sides: the page layout of caches full and local comes from vllm's engine file; not yet verified on a running
    engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. full: 12
    layers x 4,096 B per token, coordinates (layer, head, token, dim); local: 36 layers x 4,096 B per token,
    coordinates (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Needs, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="full", layers=tuple(range(3, 48, 4)), holds=(("head", (0, 2)),),
                 table=FULL_AND_LOCAL),
            Read(worker=1, groups="full", layers=tuple(range(3, 48, 4)), holds=(("head", (2, 4)),),
                 table=FULL_AND_LOCAL, offset=(0, 16_384)),
            *(Read(worker=0, groups=name, cache="local", layers=layers, holds=(("head", (0, 2)),),
                   table=FULL_AND_LOCAL, first=(plane, plane)) for name, layers, plane in LOCAL_GROUPS),
            *(Read(worker=1, groups=name, cache="local", layers=layers, holds=(("head", (2, 4)),),
                   table=FULL_AND_LOCAL, offset=(0, 16_384), first=(plane, plane))
              for name, layers, plane in LOCAL_GROUPS),
        ),
        (  # decode worker 1
            Read(worker=2, groups="full", layers=tuple(range(3, 48, 4)), holds=(("head", (4, 6)),),
                 table=FULL_AND_LOCAL),
            Read(worker=3, groups="full", layers=tuple(range(3, 48, 4)), holds=(("head", (6, 8)),),
                 table=FULL_AND_LOCAL, offset=(0, 16_384)),
            *(Read(worker=2, groups=name, cache="local", layers=layers, holds=(("head", (4, 6)),),
                   table=FULL_AND_LOCAL, first=(plane, plane)) for name, layers, plane in LOCAL_GROUPS),
            *(Read(worker=3, groups=name, cache="local", layers=layers, holds=(("head", (6, 8)),),
                   table=FULL_AND_LOCAL, offset=(0, 16_384), first=(plane, plane))
              for name, layers, plane in LOCAL_GROUPS),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
LOCAL_GROUPS = (
    ("local.0", (0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44), 12),
    ("local.1", (1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45), 24),
    ("local.2", (2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46), 36),
)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_12_LAYERS_2_HEADS = (Loop("layer", count=12, prefill=(1, 0), decode=(1, 0)),
                          Loop("head", count=2, prefill=(0, 16_384), decode=(0, 8192)))
FULL_AND_LOCAL = Table(per_token=(Nest(("k", "v"), bytes=512, loops=EACH_12_LAYERS_2_HEADS, token_step=(512, 512)),))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# full: token t at t % 32 of block t // 32 of prefill, at t % 16 of block t // 16 of decode; runs end at multiples of
#   16.
# local.0, local.1, local.2: token t at t % 32 of block t // 32 of prefill, at t % 16 of block t // 16 of decode, from
#   end // 8192 * 8192 on; runs end at multiples of 16.
GROUP_PAIRS = (
    GroupPair("full"),
    *(GroupPair(name, needs=Needs(chunk=8192)) for name in ("local.0", "local.1", "local.2")),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=4,block=32", digest="234d2ac6b597a25a68ce3e52a04f412b", groups=(
        *(Group(name, "tokens", tokens=32, kernel=32) for name in ("full", "local.0", "local.1", "local.2")),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("full", "head", (0, 2)), ("local", "head", (0, 2)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (2, 4)), ("local", "head", (2, 4)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (4, 6)), ("local", "head", (4, 6)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (6, 8)), ("local", "head", (6, 8)))),
    ), needs=(("local", Needs(chunk=8192)),))

def decode() -> Side:
    return Side(key="tp=2", digest="eda7d21cbfd78f5ef995c9c56e33fae0", groups=(
        *(Group(name, "tokens", tokens=16, kernel=16) for name in ("full", "local.0", "local.1", "local.2")),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 4)), ("local", "head", (0, 4)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (4, 8)), ("local", "head", (4, 8)))),
    ), needs=(("local", Needs(chunk=8192)),))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_FULL_AND_LOCAL_VIEWS = (
    View("k", "bf16", axes=(("head", 2, 16_384), ("token", 32, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 2, 16_384), ("token", 32, 512), ("dim", 128, 2))),
)
DECODE_FULL_AND_LOCAL_VIEWS = (
    View("k", "bf16", axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
PREFILL_PLANES = (
    Planes("full", loops=(("layer", tuple(range(3, 48, 4)), 1),), page_bytes=32_768,
           views=PREFILL_FULL_AND_LOCAL_VIEWS),
    *(Planes("local", name, first=plane, loops=(("layer", layers, 1),), page_bytes=32_768,
             views=PREFILL_FULL_AND_LOCAL_VIEWS) for name, layers, plane in LOCAL_GROUPS),
)
DECODE_PLANES = (
    Planes("full", loops=(("layer", tuple(range(3, 48, 4)), 1),), page_bytes=32_768, views=DECODE_FULL_AND_LOCAL_VIEWS),
    *(Planes("local", name, first=plane, loops=(("layer", layers, 1),), page_bytes=32_768,
             views=DECODE_FULL_AND_LOCAL_VIEWS) for name, layers, plane in LOCAL_GROUPS),
)

PLAN = Plan(format=3, title="Llama 4 Scout 17B-16E", model="llama-4-scout",
            model_digest="22375e0f22670dc97cba1aad16744c24", digest="9a330acd647461bbbf228421b397e2e7",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
