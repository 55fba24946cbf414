"""Whisper large v3: prefill tp=1 -> decode tp=2.

Emitted by kvplan from whisper-large-v3, do not edit:
    kvplan compile whisper-large-v3 --prefill tp=1 --decode tp=2

attention, a page of the first worker that has one:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 19   |      81,920 B
             16 tokens; a plane for each of 32 layers
             20 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]
    decode   |  0  |  1  |  2  |  …  |  9  |                                        40,960 B
             16 tokens; a plane for each of 32 layers
             10 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]
cross, a page of the first worker that has one:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 19   |      81,920 B
             16 tokens; a plane for each of 32 layers
             20 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]
    decode   |  0  |  1  |  2  |  …  |  9  |                                        40,960 B
             16 tokens; a plane for each of 32 layers
             10 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x f16) | v 128 B (64 dim x f16)]

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-1, attention, cross, each: 1 read, 32 spans a kernel block; 2,048 requests and 83,886,080 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
cross: tokens are those of 'encoder'.
Both sides: not probed on vllm, whose file alone says how a page is filled: attention, cross.
Proved for every decode worker, each byte written once. attention: 32 layers x 5,120 B a token, each from its own
(layer, head, token, dim); cross: 32 layers x 5,120 B a token, each from its own (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, pair="attention", layers=tuple(range(32)), holds=(("head", (0, 10)),),
                 table=ATTENTION_AND_CROSS),
            Read(worker=0, pair="cross", layers=tuple(range(32)), holds=(("head", (0, 10)),),
                 table=ATTENTION_AND_CROSS, first=(32, 32)),
        ),
        (  # decode worker 1
            Read(worker=0, pair="attention", layers=tuple(range(32)), holds=(("head", (10, 20)),),
                 table=ATTENTION_AND_CROSS, offset=(40_960, 0)),
            Read(worker=0, pair="cross", layers=tuple(range(32)), holds=(("head", (10, 20)),),
                 table=ATTENTION_AND_CROSS, first=(32, 32), offset=(40_960, 0)),
        ),
    )

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_32_LAYERS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),)
EACH_32_LAYERS_10_HEADS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                           Loop("head", count=10, prefill=(0, 4096), decode=(0, 4096)))
ATTENTION_AND_CROSS = Table(
    page=(Nest(("k", "v"), bytes=40_960, loops=EACH_32_LAYERS),),
    token=(Nest(("k", "v"), bytes=256, loops=EACH_32_LAYERS_10_HEADS, token=(256, 256)),),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention, cross: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
PAIRS = (Pair("attention", page=16), Pair("cross", page=16))

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(key="tp=1", digest="15566b843d999f215fe2a28b7b87b640", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("cross", "tokens", tokens=16, kernel=16, length="encoder"),
    ), workers=(Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 20)), ("cross", "head", (0, 20)))),))

def decode() -> Side:
    return Side(key="tp=2", digest="fd7e5a1aecff99f95b291277914d2f45", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("cross", "tokens", tokens=16, kernel=16, length="encoder"),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 10)), ("cross", "head", (0, 10)))),
        Worker(DECODE_PLANES, holds=(("attention", "head", (10, 20)), ("cross", "head", (10, 20)))),
    ))

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PREFILL_ATTENTION_AND_CROSS_VIEWS = (
    View("k", "f16", axes=(("head", 20, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "f16", offset=128, axes=(("head", 20, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
DECODE_ATTENTION_AND_CROSS_VIEWS = (
    View("k", "f16", axes=(("head", 10, 4096), ("token", 16, 256), ("dim", 64, 2))),
    View("v", "f16", offset=128, axes=(("head", 10, 4096), ("token", 16, 256), ("dim", 64, 2))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(32)), 1),), page=81_920, views=PREFILL_ATTENTION_AND_CROSS_VIEWS),
    Planes("cross", first=32, loops=(("layer", tuple(range(32)), 1),), page=81_920,
           views=PREFILL_ATTENTION_AND_CROSS_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(32)), 1),), page=40_960, views=DECODE_ATTENTION_AND_CROSS_VIEWS),
    Planes("cross", first=32, loops=(("layer", tuple(range(32)), 1),), page=40_960,
           views=DECODE_ATTENTION_AND_CROSS_VIEWS),
)

PLAN = Plan(format=2, title="Whisper large v3", model="whisper-large-v3",
            model_digest="08ae06b050c4a16bbaf77e0d05992fc3", digest="5d26f5023c453814cbe4ce17e6af1a6c",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(), pairs=PAIRS,
            reads=reads())
