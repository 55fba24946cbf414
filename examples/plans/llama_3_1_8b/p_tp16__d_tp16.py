"""Llama 3.1 8B: prefill tp=16 -> decode tp=16.

Emitted by kvplan from llama-3.1-8b, do not edit:
    kvplan compile llama-3.1-8b --prefill tp=16 --decode tp=16 --elect spread

attention, a page of the first worker that has one:
    both     |  token 0  |  token 1   |  token 2   |     …      |  token 15  |       8,192 B
             16 tokens; a plane for each of 32 layers
             1 head, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-15, attention: 1 read, 32 spans a kernel block; 2,048 requests and 16,777,216 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
Both sides: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 32 layers x 4,096 B a token, each from its own
(layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, pair="attention", layers=tuple(range(32)), holds=(("head", (0, 1)),), table=ATTENTION),),
        # decode worker 1
        (Read(worker=1, pair="attention", layers=tuple(range(32)), holds=(("head", (0, 1)),), table=ATTENTION),),
        # decode worker 2
        (Read(worker=2, pair="attention", layers=tuple(range(32)), holds=(("head", (1, 2)),), table=ATTENTION),),
        # decode worker 3
        (Read(worker=3, pair="attention", layers=tuple(range(32)), holds=(("head", (1, 2)),), table=ATTENTION),),
        # decode worker 4
        (Read(worker=4, pair="attention", layers=tuple(range(32)), holds=(("head", (2, 3)),), table=ATTENTION),),
        # decode worker 5
        (Read(worker=5, pair="attention", layers=tuple(range(32)), holds=(("head", (2, 3)),), table=ATTENTION),),
        # decode worker 6
        (Read(worker=6, pair="attention", layers=tuple(range(32)), holds=(("head", (3, 4)),), table=ATTENTION),),
        # decode worker 7
        (Read(worker=7, pair="attention", layers=tuple(range(32)), holds=(("head", (3, 4)),), table=ATTENTION),),
        # decode worker 8
        (Read(worker=8, pair="attention", layers=tuple(range(32)), holds=(("head", (4, 5)),), table=ATTENTION),),
        # decode worker 9
        (Read(worker=9, pair="attention", layers=tuple(range(32)), holds=(("head", (4, 5)),), table=ATTENTION),),
        # decode worker 10
        (Read(worker=10, pair="attention", layers=tuple(range(32)), holds=(("head", (5, 6)),), table=ATTENTION),),
        # decode worker 11
        (Read(worker=11, pair="attention", layers=tuple(range(32)), holds=(("head", (5, 6)),), table=ATTENTION),),
        # decode worker 12
        (Read(worker=12, pair="attention", layers=tuple(range(32)), holds=(("head", (6, 7)),), table=ATTENTION),),
        # decode worker 13
        (Read(worker=13, pair="attention", layers=tuple(range(32)), holds=(("head", (6, 7)),), table=ATTENTION),),
        # decode worker 14
        (Read(worker=14, pair="attention", layers=tuple(range(32)), holds=(("head", (7, 8)),), table=ATTENTION),),
        # decode worker 15
        (Read(worker=15, pair="attention", layers=tuple(range(32)), holds=(("head", (7, 8)),), table=ATTENTION),),
    )

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_32_LAYERS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    page=(Nest(("k", "v"), bytes=8192, loops=EACH_32_LAYERS),),
    token=(Nest(("k", "v"), bytes=512, loops=EACH_32_LAYERS, token=(512, 512)),),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
PAIRS = (Pair("attention", page=16),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(key="tp=16", digest="132829de39e3cc2fab015cd535ca7982", groups=(
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
    return Side(key="tp=16", digest="132829de39e3cc2fab015cd535ca7982", groups=(
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

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page=8192, views=(
    View("k", "bf16", axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=2, title="Llama 3.1 8B", model="llama-3.1-8b", model_digest="e82edc6ce7f867ee14dce2f0a8baed9e",
            digest="d4c8b22a775dcd4657067c3a366cfff4", options=(("elect", "spread"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads())
