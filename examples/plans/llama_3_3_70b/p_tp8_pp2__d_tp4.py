"""Llama 3.3 70B: prefill tp=8,pp=2 -> decode tp=4.

Emitted by kvplan from llama-3.3-70b, do not edit:
    kvplan compile llama-3.3-70b --prefill tp=8,pp=2 --decode tp=4

attention, a page of the first worker that has one:
    prefill  |  0  |  1  |  2  |  …  |  15 |                                         8,192 B
             16 tokens; a plane for each of 40 layers
             1 head, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |             head 0            |             head 1            |      16,384 B
             16 tokens; a plane for each of 80 layers
             2 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-3, attention: 4 reads, 160 spans a kernel block; 10,240 requests and 83,886,080 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
Both sides: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 80 layers x 4,096 B a token, each from its own
(layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, pair="attention", layers=tuple(range(40)), holds=(("head", (0, 1)),), table=ATTENTION),
            Read(worker=1, pair="attention", layers=tuple(range(40)), holds=(("head", (1, 2)),), table=ATTENTION,
                 offset=(0, 8192)),
            Read(worker=8, pair="attention", layers=tuple(range(40, 80)), holds=(("head", (0, 1)),), table=ATTENTION,
                 first=(0, 40)),
            Read(worker=9, pair="attention", layers=tuple(range(40, 80)), holds=(("head", (1, 2)),), table=ATTENTION,
                 first=(0, 40), offset=(0, 8192)),
        ),
        (  # decode worker 1
            Read(worker=2, pair="attention", layers=tuple(range(40)), holds=(("head", (2, 3)),), table=ATTENTION),
            Read(worker=3, pair="attention", layers=tuple(range(40)), holds=(("head", (3, 4)),), table=ATTENTION,
                 offset=(0, 8192)),
            Read(worker=10, pair="attention", layers=tuple(range(40, 80)), holds=(("head", (2, 3)),),
                 table=ATTENTION, first=(0, 40)),
            Read(worker=11, pair="attention", layers=tuple(range(40, 80)), holds=(("head", (3, 4)),),
                 table=ATTENTION, first=(0, 40), offset=(0, 8192)),
        ),
        (  # decode worker 2
            Read(worker=4, pair="attention", layers=tuple(range(40)), holds=(("head", (4, 5)),), table=ATTENTION),
            Read(worker=5, pair="attention", layers=tuple(range(40)), holds=(("head", (5, 6)),), table=ATTENTION,
                 offset=(0, 8192)),
            Read(worker=12, pair="attention", layers=tuple(range(40, 80)), holds=(("head", (4, 5)),),
                 table=ATTENTION, first=(0, 40)),
            Read(worker=13, pair="attention", layers=tuple(range(40, 80)), holds=(("head", (5, 6)),),
                 table=ATTENTION, first=(0, 40), offset=(0, 8192)),
        ),
        (  # decode worker 3
            Read(worker=6, pair="attention", layers=tuple(range(40)), holds=(("head", (6, 7)),), table=ATTENTION),
            Read(worker=7, pair="attention", layers=tuple(range(40)), holds=(("head", (7, 8)),), table=ATTENTION,
                 offset=(0, 8192)),
            Read(worker=14, pair="attention", layers=tuple(range(40, 80)), holds=(("head", (6, 7)),),
                 table=ATTENTION, first=(0, 40)),
            Read(worker=15, pair="attention", layers=tuple(range(40, 80)), holds=(("head", (7, 8)),),
                 table=ATTENTION, first=(0, 40), offset=(0, 8192)),
        ),
    )

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_40_LAYERS = (Loop("layer", count=40, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    page=(Nest(("k", "v"), bytes=8192, loops=EACH_40_LAYERS),),
    token=(Nest(("k", "v"), bytes=512, loops=EACH_40_LAYERS, token=(512, 512)),),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
PAIRS = (Pair("attention", page=16),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(key="tp=8,pp=2", digest="e3cb45b6b0d2628e0043e7cbb208d587", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(PREFILL_0_TO_7_PLANES, holds=(("attention", "head", (7, 8)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (2, 3)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (3, 4)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (6, 7)),)),
        Worker(PREFILL_8_TO_15_PLANES, holds=(("attention", "head", (7, 8)),)),
    ))

def decode() -> Side:
    return Side(key="tp=4", digest="aba12081efbc9eb254467d8147e5bf2f", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 2)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (2, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 6)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (6, 8)),)),
    ))

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
)
PREFILL_0_TO_7_PLANES = (Planes("attention", loops=(("layer", tuple(range(40)), 1),), page=8192,
                                views=PREFILL_ATTENTION_VIEWS),)
PREFILL_8_TO_15_PLANES = (Planes("attention", loops=(("layer", tuple(range(40, 80)), 1),), page=8192,
                                 views=PREFILL_ATTENTION_VIEWS),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(80)), 1),), page=16_384, views=(
    View("k", "bf16", axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=2, title="Llama 3.3 70B", model="llama-3.3-70b", model_digest="83b4e9c13dfcee00d83c0fae985c50ef",
            digest="71c673a291a47d9bc79b94caa29fbb19", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads())
