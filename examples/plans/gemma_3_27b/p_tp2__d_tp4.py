"""Gemma 3 27B: prefill tp=2 -> decode tp=4.

Emitted by kvplan from gemma-3-27b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile gemma-3-27b --prefill tp=2 --decode tp=4

A page of cache full on worker 0:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|      65,536 B
             16 tokens; a KV cache tensor for each of 10 layers
             8 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      32,768 B
             16 tokens; a KV cache tensor for each of 10 layers
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
A page of cache sliding on worker 0:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|      65,536 B
             16 tokens; a KV cache tensor for each of 9 layers of sliding.0, one of 6 groups of sliding
             8 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      32,768 B
             16 tokens; a KV cache tensor for each of 9 layers of sliding.0, one of 6 groups of sliding
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-3, full: 20,971,520 B in 640 descriptors; 1 read, 10 spans of all layers for each of 64 blocks
    decode workers 0-3, sliding.0, sliding.1, sliding.2, sliding.3, each: 18,855,936 B in 603 descriptors; 1 read, 9
        spans of all layers for each of 63 whole blocks, and 36 for the rest
    decode workers 0-3, sliding.4, sliding.5, each: 16,760,832 B in 536 descriptors; 1 read, 8 spans of all layers
        for each of 63 whole blocks, and 32 for the rest

Layers: 62 (10 store full, 52 store sliding).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, sliding.5, each: only the last 1,023 tokens (a window of
    1,024 includes the next token).
Shared memory: on both sides full, sliding.0, sliding.1, sliding.2, sliding.3, sliding.4 and sliding.5. A block is
    of one of these groups at a time.
Both sides: the page layout of caches full and sliding comes from vllm's engine file; not yet verified on a running
    engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. full: 10
    layers x 8,192 B per token, coordinates (layer, head, token, dim); sliding: 52 layers x 8,192 B per token,
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
            Read(worker=0, groups="full", layers=tuple(range(5, 60, 6)), holds=(("head", (0, 4)),), table=FULL),
            *(Read(worker=0, groups=name, cache="sliding", layers=layers, holds=(("head", (0, 4)),),
                   table=SLIDING_OF_9_LAYERS, first=(plane, plane)) for name, layers, plane in SLIDING_GROUPS),
            Read(worker=0, groups="sliding.4", cache="sliding", layers=LAYERS_OF_SLIDING_4,
                 holds=(("head", (0, 4)),), table=SLIDING_OF_8_LAYERS, first=(46, 46)),
            Read(worker=0, groups="sliding.5", cache="sliding", layers=LAYERS_OF_SLIDING_5,
                 holds=(("head", (0, 4)),), table=SLIDING_OF_8_LAYERS, first=(54, 54)),
        ),
        (  # decode worker 1
            Read(worker=0, groups="full", layers=tuple(range(5, 60, 6)), holds=(("head", (4, 8)),), table=FULL,
                 offset=(32_768, 0)),
            *(Read(worker=0, groups=name, cache="sliding", layers=layers, holds=(("head", (4, 8)),),
                   table=SLIDING_OF_9_LAYERS, offset=(32_768, 0), first=(plane, plane))
              for name, layers, plane in SLIDING_GROUPS),
            Read(worker=0, groups="sliding.4", cache="sliding", layers=LAYERS_OF_SLIDING_4,
                 holds=(("head", (4, 8)),), table=SLIDING_OF_8_LAYERS, first=(46, 46), offset=(32_768, 0)),
            Read(worker=0, groups="sliding.5", cache="sliding", layers=LAYERS_OF_SLIDING_5,
                 holds=(("head", (4, 8)),), table=SLIDING_OF_8_LAYERS, first=(54, 54), offset=(32_768, 0)),
        ),
        (  # decode worker 2
            Read(worker=1, groups="full", layers=tuple(range(5, 60, 6)), holds=(("head", (8, 12)),), table=FULL),
            *(Read(worker=1, groups=name, cache="sliding", layers=layers, holds=(("head", (8, 12)),),
                   table=SLIDING_OF_9_LAYERS, first=(plane, plane)) for name, layers, plane in SLIDING_GROUPS),
            Read(worker=1, groups="sliding.4", cache="sliding", layers=LAYERS_OF_SLIDING_4,
                 holds=(("head", (8, 12)),), table=SLIDING_OF_8_LAYERS, first=(46, 46)),
            Read(worker=1, groups="sliding.5", cache="sliding", layers=LAYERS_OF_SLIDING_5,
                 holds=(("head", (8, 12)),), table=SLIDING_OF_8_LAYERS, first=(54, 54)),
        ),
        (  # decode worker 3
            Read(worker=1, groups="full", layers=tuple(range(5, 60, 6)), holds=(("head", (12, 16)),), table=FULL,
                 offset=(32_768, 0)),
            *(Read(worker=1, groups=name, cache="sliding", layers=layers, holds=(("head", (12, 16)),),
                   table=SLIDING_OF_9_LAYERS, offset=(32_768, 0), first=(plane, plane))
              for name, layers, plane in SLIDING_GROUPS),
            Read(worker=1, groups="sliding.4", cache="sliding", layers=LAYERS_OF_SLIDING_4,
                 holds=(("head", (12, 16)),), table=SLIDING_OF_8_LAYERS, first=(46, 46), offset=(32_768, 0)),
            Read(worker=1, groups="sliding.5", cache="sliding", layers=LAYERS_OF_SLIDING_5,
                 holds=(("head", (12, 16)),), table=SLIDING_OF_8_LAYERS, first=(54, 54), offset=(32_768, 0)),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
LAYERS_OF_SLIDING_4 = (4, 12, 19, 26, 33, 40, 48, 55)
LAYERS_OF_SLIDING_5 = (6, 13, 20, 27, 34, 42, 49, 56)
SLIDING_GROUPS = (
    ("sliding.0", (0, 7, 14, 21, 28, 36, 43, 50, 57), 10),
    ("sliding.1", (1, 8, 15, 22, 30, 37, 44, 51, 58), 19),
    ("sliding.2", (2, 9, 16, 24, 31, 38, 45, 52, 60), 28),
    ("sliding.3", (3, 10, 18, 25, 32, 39, 46, 54, 61), 37),
)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_10_LAYERS = (Loop("layer", count=10, prefill=(1, 0), decode=(1, 0)),)
EACH_10_LAYERS_4_HEADS = (Loop("layer", count=10, prefill=(1, 0), decode=(1, 0)),
                          Loop("head", count=4, prefill=(0, 8192), decode=(0, 8192)))
EACH_9_LAYERS = (Loop("layer", count=9, prefill=(1, 0), decode=(1, 0)),)
EACH_9_LAYERS_4_HEADS = (Loop("layer", count=9, prefill=(1, 0), decode=(1, 0)),
                         Loop("head", count=4, prefill=(0, 8192), decode=(0, 8192)))
EACH_8_LAYERS = (Loop("layer", count=8, prefill=(1, 0), decode=(1, 0)),)
EACH_8_LAYERS_4_HEADS = (Loop("layer", count=8, prefill=(1, 0), decode=(1, 0)),
                         Loop("head", count=4, prefill=(0, 8192), decode=(0, 8192)))
FULL = Table(
    per_page=(Nest(("k", "v"), bytes=32_768, loops=EACH_10_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_10_LAYERS_4_HEADS, token_step=(512, 512)),),
)
SLIDING_OF_9_LAYERS = Table(
    per_page=(Nest(("k", "v"), bytes=32_768, loops=EACH_9_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_9_LAYERS_4_HEADS, token_step=(512, 512)),),
)
SLIDING_OF_8_LAYERS = Table(
    per_page=(Nest(("k", "v"), bytes=32_768, loops=EACH_8_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=512, loops=EACH_8_LAYERS_4_HEADS, token_step=(512, 512)),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# full: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
# sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, sliding.5: token t at t % 16 of block t // 16 on both sides,
#   from end - 1023 on; runs end at multiples of 16.
GROUP_PAIRS = (
    GroupPair("full", page_rows=16),
    *(GroupPair(name, page_rows=16, needs=Needs(keep=1023))
      for name in ("sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4", "sliding.5")),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=2", digest="b37b7f909c165939c938877a463a45c6", groups=(
        *(Group(name, "tokens", tokens=16, kernel=16)
          for name in ("full", "sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4", "sliding.5")),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("full", "head", (0, 8)), ("sliding", "head", (0, 8)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (8, 16)), ("sliding", "head", (8, 16)))),
    ), needs=(("sliding", Needs(keep=1023)),))

def decode() -> Side:
    return Side(key="tp=4", digest="df48026fceab3617fc0d077464000ea8", groups=(
        *(Group(name, "tokens", tokens=16, kernel=16)
          for name in ("full", "sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4", "sliding.5")),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 4)), ("sliding", "head", (0, 4)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (4, 8)), ("sliding", "head", (4, 8)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (8, 12)), ("sliding", "head", (8, 12)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (12, 16)), ("sliding", "head", (12, 16)))),
    ), needs=(("sliding", Needs(keep=1023)),))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_FULL_AND_SLIDING_VIEWS = (
    View("k", "bf16", axes=(("head", 8, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 8, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
DECODE_FULL_AND_SLIDING_VIEWS = (
    View("k", "bf16", axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
PREFILL_PLANES = (
    Planes("full", loops=(("layer", tuple(range(5, 60, 6)), 1),), page_bytes=65_536,
           views=PREFILL_FULL_AND_SLIDING_VIEWS),
    *(Planes("sliding", name, first=plane, loops=(("layer", layers, 1),), page_bytes=65_536,
             views=PREFILL_FULL_AND_SLIDING_VIEWS) for name, layers, plane in SLIDING_GROUPS),
    Planes("sliding", "sliding.4", first=46, loops=(("layer", LAYERS_OF_SLIDING_4, 1),), page_bytes=65_536,
           views=PREFILL_FULL_AND_SLIDING_VIEWS),
    Planes("sliding", "sliding.5", first=54, loops=(("layer", LAYERS_OF_SLIDING_5, 1),), page_bytes=65_536,
           views=PREFILL_FULL_AND_SLIDING_VIEWS),
)
DECODE_PLANES = (
    Planes("full", loops=(("layer", tuple(range(5, 60, 6)), 1),), page_bytes=32_768,
           views=DECODE_FULL_AND_SLIDING_VIEWS),
    *(Planes("sliding", name, first=plane, loops=(("layer", layers, 1),), page_bytes=32_768,
             views=DECODE_FULL_AND_SLIDING_VIEWS) for name, layers, plane in SLIDING_GROUPS),
    Planes("sliding", "sliding.4", first=46, loops=(("layer", LAYERS_OF_SLIDING_4, 1),), page_bytes=32_768,
           views=DECODE_FULL_AND_SLIDING_VIEWS),
    Planes("sliding", "sliding.5", first=54, loops=(("layer", LAYERS_OF_SLIDING_5, 1),), page_bytes=32_768,
           views=DECODE_FULL_AND_SLIDING_VIEWS),
)

PLAN = Plan(format=3, title="Gemma 3 27B", model="gemma-3-27b", model_digest="c69070f6839acf10e5b38bda8baed07a",
            digest="bac4812b593fde294819d76828569c44", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
