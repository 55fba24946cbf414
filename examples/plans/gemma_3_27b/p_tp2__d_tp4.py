"""Gemma 3 27B: prefill tp=2 -> decode tp=4.

Emitted by kvplan from gemma-3-27b, do not edit:
    kvplan compile gemma-3-27b --prefill tp=2 --decode tp=4

full, a page of the first worker that has one:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|      65,536 B
             16 tokens; a plane for each of 10 layers
             8 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      32,768 B
             16 tokens; a plane for each of 10 layers
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
sliding, a page of the first worker that has one:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|      65,536 B
             16 tokens; a plane for each of 9 layers of sliding.0, one of 6 groups
             8 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      32,768 B
             16 tokens; a plane for each of 9 layers of sliding.0, one of 6 groups
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-3, full: 1 read, 10 spans a kernel block; 640 requests and 20,971,520 B
    decode workers 0-3, sliding.0, sliding.1, sliding.2, sliding.3, each: 1 read, 9 spans a kernel block; 603
        requests and 18,855,936 B
    decode workers 0-3, sliding.4, sliding.5, each: 1 read, 8 spans a kernel block; 536 requests and 16,760,832 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, sliding.5, each: only the last 1,023 tokens.
Both sides: not probed on vllm, whose file alone says how a page is filled: full, sliding.
Proved for every decode worker, each byte written once. full: 10 layers x 8,192 B a token, each from its own (layer,
head, token, dim); sliding: 52 layers x 8,192 B a token, each from its own (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Needs, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, pair="full", layers=tuple(range(5, 60, 6)), holds=(("head", (0, 4)),), table=FULL),
            *(Read(worker=0, pair=name, cache="sliding", layers=layers, holds=(("head", (0, 4)),),
                   table=SLIDING_9_LAYERS, first=(plane, plane)) for name, layers, plane in SLIDING_GROUPS),
            Read(worker=0, pair="sliding.4", cache="sliding", layers=SLIDING_4_LAYERS, holds=(("head", (0, 4)),),
                 table=SLIDING_8_LAYERS, first=(46, 46)),
            Read(worker=0, pair="sliding.5", cache="sliding", layers=SLIDING_5_LAYERS, holds=(("head", (0, 4)),),
                 table=SLIDING_8_LAYERS, first=(54, 54)),
        ),
        (  # decode worker 1
            Read(worker=0, pair="full", layers=tuple(range(5, 60, 6)), holds=(("head", (4, 8)),), table=FULL,
                 offset=(32_768, 0)),
            *(Read(worker=0, pair=name, cache="sliding", layers=layers, holds=(("head", (4, 8)),),
                   table=SLIDING_9_LAYERS, offset=(32_768, 0), first=(plane, plane))
              for name, layers, plane in SLIDING_GROUPS),
            Read(worker=0, pair="sliding.4", cache="sliding", layers=SLIDING_4_LAYERS, holds=(("head", (4, 8)),),
                 table=SLIDING_8_LAYERS, first=(46, 46), offset=(32_768, 0)),
            Read(worker=0, pair="sliding.5", cache="sliding", layers=SLIDING_5_LAYERS, holds=(("head", (4, 8)),),
                 table=SLIDING_8_LAYERS, first=(54, 54), offset=(32_768, 0)),
        ),
        (  # decode worker 2
            Read(worker=1, pair="full", layers=tuple(range(5, 60, 6)), holds=(("head", (8, 12)),), table=FULL),
            *(Read(worker=1, pair=name, cache="sliding", layers=layers, holds=(("head", (8, 12)),),
                   table=SLIDING_9_LAYERS, first=(plane, plane)) for name, layers, plane in SLIDING_GROUPS),
            Read(worker=1, pair="sliding.4", cache="sliding", layers=SLIDING_4_LAYERS, holds=(("head", (8, 12)),),
                 table=SLIDING_8_LAYERS, first=(46, 46)),
            Read(worker=1, pair="sliding.5", cache="sliding", layers=SLIDING_5_LAYERS, holds=(("head", (8, 12)),),
                 table=SLIDING_8_LAYERS, first=(54, 54)),
        ),
        (  # decode worker 3
            Read(worker=1, pair="full", layers=tuple(range(5, 60, 6)), holds=(("head", (12, 16)),), table=FULL,
                 offset=(32_768, 0)),
            *(Read(worker=1, pair=name, cache="sliding", layers=layers, holds=(("head", (12, 16)),),
                   table=SLIDING_9_LAYERS, offset=(32_768, 0), first=(plane, plane))
              for name, layers, plane in SLIDING_GROUPS),
            Read(worker=1, pair="sliding.4", cache="sliding", layers=SLIDING_4_LAYERS, holds=(("head", (12, 16)),),
                 table=SLIDING_8_LAYERS, first=(46, 46), offset=(32_768, 0)),
            Read(worker=1, pair="sliding.5", cache="sliding", layers=SLIDING_5_LAYERS, holds=(("head", (12, 16)),),
                 table=SLIDING_8_LAYERS, first=(54, 54), offset=(32_768, 0)),
        ),
    )

# Layers, by their numbers in the whole model; of several groups as (name, layers, first plane).
SLIDING_4_LAYERS = (4, 12, 19, 26, 33, 40, 48, 55)
SLIDING_5_LAYERS = (6, 13, 20, 27, 34, 42, 49, 56)
SLIDING_GROUPS = (
    ("sliding.0", (0, 7, 14, 21, 28, 36, 43, 50, 57), 10),
    ("sliding.1", (1, 8, 15, 22, 30, 37, 44, 51, 58), 19),
    ("sliding.2", (2, 9, 16, 24, 31, 38, 45, 52, 60), 28),
    ("sliding.3", (3, 10, 18, 25, 32, 39, 46, 54, 61), 37),
)

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
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
    page=(Nest(("k", "v"), bytes=32_768, loops=EACH_10_LAYERS),),
    token=(Nest(("k", "v"), bytes=512, loops=EACH_10_LAYERS_4_HEADS, token=(512, 512)),),
)
SLIDING_9_LAYERS = Table(
    page=(Nest(("k", "v"), bytes=32_768, loops=EACH_9_LAYERS),),
    token=(Nest(("k", "v"), bytes=512, loops=EACH_9_LAYERS_4_HEADS, token=(512, 512)),),
)
SLIDING_8_LAYERS = Table(
    page=(Nest(("k", "v"), bytes=32_768, loops=EACH_8_LAYERS),),
    token=(Nest(("k", "v"), bytes=512, loops=EACH_8_LAYERS_4_HEADS, token=(512, 512)),),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# full: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
# sliding.0, sliding.1, sliding.2, sliding.3, sliding.4, sliding.5: token t at t % 16 of block t // 16 on both sides,
#   from end - 1023 on; runs end at multiples of 16.
PAIRS = (
    Pair("full", page=16),
    *(Pair(name, page=16, needs=Needs(keep=1023))
      for name in ("sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4", "sliding.5")),
)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(key="tp=2", digest="90ec7552288e9d91b9021d9587631448", groups=(
        *(Group(name, "tokens", tokens=16, kernel=16)
          for name in ("full", "sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4", "sliding.5")),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("full", "head", (0, 8)), ("sliding", "head", (0, 8)))),
        Worker(PREFILL_PLANES, holds=(("full", "head", (8, 16)), ("sliding", "head", (8, 16)))),
    ), needs=(("sliding", Needs(keep=1023)),))

def decode() -> Side:
    return Side(key="tp=4", digest="5ee19ad009f803a84c0ad5f38509afde", groups=(
        *(Group(name, "tokens", tokens=16, kernel=16)
          for name in ("full", "sliding.0", "sliding.1", "sliding.2", "sliding.3", "sliding.4", "sliding.5")),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("full", "head", (0, 4)), ("sliding", "head", (0, 4)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (4, 8)), ("sliding", "head", (4, 8)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (8, 12)), ("sliding", "head", (8, 12)))),
        Worker(DECODE_PLANES, holds=(("full", "head", (12, 16)), ("sliding", "head", (12, 16)))),
    ), needs=(("sliding", Needs(keep=1023)),))

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PREFILL_FULL_AND_SLIDING_VIEWS = (
    View("k", "bf16", axes=(("head", 8, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 8, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
DECODE_FULL_AND_SLIDING_VIEWS = (
    View("k", "bf16", axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
PREFILL_PLANES = (
    Planes("full", loops=(("layer", tuple(range(5, 60, 6)), 1),), page=65_536, views=PREFILL_FULL_AND_SLIDING_VIEWS),
    *(Planes("sliding", name, first=plane, loops=(("layer", layers, 1),), page=65_536,
             views=PREFILL_FULL_AND_SLIDING_VIEWS) for name, layers, plane in SLIDING_GROUPS),
    Planes("sliding", "sliding.4", first=46, loops=(("layer", SLIDING_4_LAYERS, 1),), page=65_536,
           views=PREFILL_FULL_AND_SLIDING_VIEWS),
    Planes("sliding", "sliding.5", first=54, loops=(("layer", SLIDING_5_LAYERS, 1),), page=65_536,
           views=PREFILL_FULL_AND_SLIDING_VIEWS),
)
DECODE_PLANES = (
    Planes("full", loops=(("layer", tuple(range(5, 60, 6)), 1),), page=32_768, views=DECODE_FULL_AND_SLIDING_VIEWS),
    *(Planes("sliding", name, first=plane, loops=(("layer", layers, 1),), page=32_768,
             views=DECODE_FULL_AND_SLIDING_VIEWS) for name, layers, plane in SLIDING_GROUPS),
    Planes("sliding", "sliding.4", first=46, loops=(("layer", SLIDING_4_LAYERS, 1),), page=32_768,
           views=DECODE_FULL_AND_SLIDING_VIEWS),
    Planes("sliding", "sliding.5", first=54, loops=(("layer", SLIDING_5_LAYERS, 1),), page=32_768,
           views=DECODE_FULL_AND_SLIDING_VIEWS),
)

PLAN = Plan(format=2, title="Gemma 3 27B", model="gemma-3-27b", model_digest="c69070f6839acf10e5b38bda8baed07a",
            digest="92ecee3b14e422b419be7c292168a7b3", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads())
