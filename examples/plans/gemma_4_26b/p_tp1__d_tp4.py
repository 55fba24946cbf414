"""Gemma 4 26B-A4B: prefill tp=1 -> decode tp=4.

Emitted by kvplan from gemma-4-26b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile gemma-4-26b --prefill tp=1 --decode tp=4

A page of cache full on worker 0:
    prefill  |             head 0            |             head 1            |     131,072 B
             32 tokens; a KV cache tensor for each of 5 layers
             2 heads, 65,536 B each: [32 tokens, 2,048 B each: k 1,024 B (512 dim x bf16) | v 1,024 B (512 dim x
               bf16)]
    decode   |0 |1 |2 |… |15|                                                       32,768 B, by token
             16 tokens; a KV cache tensor for each of 5 layers
             1 head, 32,768 B each: [16 tokens, 2,048 B each: k 1,024 B (512 dim x bf16) | v 1,024 B (512 dim x
               bf16)]
A page of cache sliding on worker 0:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|     131,072 B
             16 tokens; a KV cache tensor for each of 5 layers of sliding.0, one of 5 groups of sliding
             8 heads, 16,384 B each: [16 tokens, 1,024 B each: k 512 B (256 dim x bf16) | v 512 B (256 dim x bf16)]
    decode   | head 0| head 1|                                                      32,768 B
             16 tokens; a KV cache tensor for each of 5 layers of sliding.0, one of 5 groups of sliding
             2 heads, 16,384 B each: [16 tokens, 1,024 B each: k 512 B (256 dim x bf16) | v 512 B (256 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-3, full: 10,485,760 B in 320 descriptors; 1 read, 5 spans of all layers for each of 64 runs of
        tokens
    decode workers 0-3, sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, each: 10,475,520 B in 325
        descriptors; 1 read, 5 spans of all layers for each of 63 whole blocks, and 10 for the rest

Layers: 30 (5 store full, 25 store sliding).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, each: only the last 1,023 tokens (a window of 1,024 includes
    the next token).
Shared memory: on both sides full, sliding.0, sliding.1, sliding.2, sliding.3 and sliding.4. A block is of one of
    these groups at a time.
Both sides: the page layout of caches full and sliding comes from vllm's engine file; not yet verified on a running
    engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. full: 5 layers
    x 4,096 B per token, coordinates (layer, head, token, dim); sliding: 25 layers x 8,192 B per token, coordinates
    (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Needs, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="full", layers=tuple(range(5, 30, 6)), holds=(("head", (0, 1)),), table=FULL),
            *(Read(worker=0, groups=name, cache="sliding", layers=layers, holds=(("head", (0, 2)),), table=SLIDING,
                   first=(plane, plane)) for name, layers, plane in SLIDING_GROUPS),
        ),
        (  # decode worker 1
            Read(worker=0, groups="full", layers=tuple(range(5, 30, 6)), holds=(("head", (0, 1)),), table=FULL),
            *(Read(worker=0, groups=name, cache="sliding", layers=layers, holds=(("head", (2, 4)),), table=SLIDING,
                   offset=(32_768, 0), first=(plane, plane)) for name, layers, plane in SLIDING_GROUPS),
        ),
        (  # decode worker 2
            Read(worker=0, groups="full", layers=tuple(range(5, 30, 6)), holds=(("head", (1, 2)),), table=FULL,
                 offset=(65_536, 0)),
            *(Read(worker=0, groups=name, cache="sliding", layers=layers, holds=(("head", (4, 6)),), table=SLIDING,
                   offset=(65_536, 0), first=(plane, plane)) for name, layers, plane in SLIDING_GROUPS),
        ),
        (  # decode worker 3
            Read(worker=0, groups="full", layers=tuple(range(5, 30, 6)), holds=(("head", (1, 2)),), table=FULL,
                 offset=(65_536, 0)),
            *(Read(worker=0, groups=name, cache="sliding", layers=layers, holds=(("head", (6, 8)),), table=SLIDING,
                   offset=(98_304, 0), first=(plane, plane)) for name, layers, plane in SLIDING_GROUPS),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
SLIDING_GROUPS = (
    ("sliding.0", (0, 6, 12, 18, 24), 5),
    ("sliding.1", (1, 7, 13, 19, 25), 10),
    ("sliding.2", (2, 8, 14, 20, 26), 15),
    ("sliding.3", (3, 9, 15, 21, 27), 20),
    ("sliding.4", (4, 10, 16, 22, 28), 25),
)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_5_LAYERS = (Loop("layer", count=5, prefill=(1, 0), decode=(1, 0)),)
EACH_5_LAYERS_2_HEADS = (Loop("layer", count=5, prefill=(1, 0), decode=(1, 0)),
                         Loop("head", count=2, prefill=(0, 16_384), decode=(0, 16_384)))
FULL = Table(per_token=(Nest(("k", "v"), bytes=2048, loops=EACH_5_LAYERS, token_step=(2048, 2048)),))
SLIDING = Table(
    per_page=(Nest(("k", "v"), bytes=32_768, loops=EACH_5_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=1024, loops=EACH_5_LAYERS_2_HEADS, token_step=(1024, 1024)),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# full: token t at t % 32 of block t // 32 of prefill, at t % 16 of block t // 16 of decode; runs end at multiples of
#   16.
# sliding.0, sliding.1, sliding.2, sliding.3, sliding.4: token t at t % 16 of block t // 16 on both sides, from end -
#   1023 on; runs end at multiples of 16.
GROUP_PAIRS = (
    GroupPair("full"),
    *(GroupPair(name, page_rows=16, needs=Needs(keep=1023))
      for name in ("sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4")),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=1", digest="663e0765615cbcf517b3d785d983d22b", groups=(
        Group("full", "tokens", tokens=32, kernel=32),
        *(Group(name, "tokens", tokens=16, kernel=16)
          for name in ("sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4")),
    ), workers=(Worker(PREFILL_PLANES, holds=(("full", "head", (0, 2)), ("sliding", "head", (0, 8)))),), needs=(
        ("sliding", Needs(keep=1023)),
    ))

def decode() -> Side:
    return Side(key="tp=4", digest="1773877264937bb449d62ff7e30a3203", groups=(
        *(Group(name, "tokens", tokens=16, kernel=16)
          for name in ("full", "sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4")),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 1)), ("sliding", "head", (0, 2)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 1)), ("sliding", "head", (2, 4)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (1, 2)), ("sliding", "head", (4, 6)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (1, 2)), ("sliding", "head", (6, 8)))),
    ), needs=(("sliding", Needs(keep=1023)),))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_SLIDING_VIEWS = (
    View("k", "bf16", axes=(("head", 8, 16_384), ("token", 16, 1024), ("dim", 256, 2))),
    View("v", "bf16", offset=512, axes=(("head", 8, 16_384), ("token", 16, 1024), ("dim", 256, 2))),
)
DECODE_SLIDING_VIEWS = (
    View("k", "bf16", axes=(("head", 2, 16_384), ("token", 16, 1024), ("dim", 256, 2))),
    View("v", "bf16", offset=512, axes=(("head", 2, 16_384), ("token", 16, 1024), ("dim", 256, 2))),
)
PREFILL_PLANES = (
    Planes("full", loops=(("layer", tuple(range(5, 30, 6)), 1),), page_bytes=131_072, views=(
        View("k", "bf16", axes=(("head", 2, 65_536), ("token", 32, 2048), ("dim", 512, 2))),
        View("v", "bf16", offset=1024, axes=(("head", 2, 65_536), ("token", 32, 2048), ("dim", 512, 2))),
    )),
    *(Planes("sliding", name, first=plane, loops=(("layer", layers, 1),), page_bytes=131_072,
             views=PREFILL_SLIDING_VIEWS) for name, layers, plane in SLIDING_GROUPS),
)
DECODE_PLANES = (
    Planes("full", loops=(("layer", tuple(range(5, 30, 6)), 1),), page_bytes=32_768, views=(
        View("k", "bf16", axes=(("head", 1, 32_768), ("token", 16, 2048), ("dim", 512, 2))),
        View("v", "bf16", offset=1024, axes=(("head", 1, 32_768), ("token", 16, 2048), ("dim", 512, 2))),
    )),
    *(Planes("sliding", name, first=plane, loops=(("layer", layers, 1),), page_bytes=32_768, views=DECODE_SLIDING_VIEWS)
      for name, layers, plane in SLIDING_GROUPS),
)

PLAN = Plan(format=3, title="Gemma 4 26B-A4B", model="gemma-4-26b", model_digest="da4910ff424de4ad905ab725d634e579",
            digest="b8a99fb57e6fe7999042f26eb4fd116b", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
