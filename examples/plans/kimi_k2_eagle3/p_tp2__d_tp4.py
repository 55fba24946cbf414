"""Kimi K2 with an EAGLE-3 draft: prefill tp=2,draft_tokens=3 -> decode tp=4,draft_tokens=3.

Emitted by kvplan from kimi-k2-eagle3, do not edit:
    kvplan compile kimi-k2-eagle3 --prefill tp=2,draft_tokens=3 --decode tp=4,draft_tokens=3

attention, a page of the first worker that has one:
    both     |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
draft, a page of the first worker that has one:
    prefill  |   head 0  |   head 1   |   head 2   |     …      |  head 31   |     262,144 B
             16 tokens; a plane for each of 1 layer
             32 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |  0  |  1  |  2  |  …  |  15 |                                       131,072 B
             16 tokens; a plane for each of 1 layer
             16 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-3, attention+draft: 2 reads, 62 spans a kernel block; 3,968 requests and 80,347,136 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
Both sides: not probed on vllm, whose file alone says how a page is filled: attention, draft.
Proved for every decode worker, each byte written once. attention: 61 layers x 1,152 B a token, each from its own
(layer, token, dim, turn); draft: 1 layers x 32,768 B a token, each from its own (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, pair="attention+draft", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=0, pair="attention+draft", cache="draft", layers=(61,), holds=(("head", (0, 16)),),
                 table=DRAFT, first=(61, 61)),
        ),
        (  # decode worker 1
            Read(worker=0, pair="attention+draft", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=0, pair="attention+draft", cache="draft", layers=(61,), holds=(("head", (16, 32)),),
                 table=DRAFT, first=(61, 61), offset=(131_072, 0)),
        ),
        (  # decode worker 2
            Read(worker=1, pair="attention+draft", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=1, pair="attention+draft", cache="draft", layers=(61,), holds=(("head", (32, 48)),),
                 table=DRAFT, first=(61, 61)),
        ),
        (  # decode worker 3
            Read(worker=1, pair="attention+draft", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=1, pair="attention+draft", cache="draft", layers=(61,), holds=(("head", (48, 64)),),
                 table=DRAFT, first=(61, 61), offset=(131_072, 0)),
        ),
    )

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
EACH_16_HEADS = (Loop("head", count=16, prefill=(0, 8192), decode=(0, 8192)),)
ATTENTION = Table(
    page=(Nest(("latent", "rope"), bytes=18_432, loops=EACH_61_LAYERS),),
    token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_61_LAYERS, token=(1152, 1152)),),
)
DRAFT = Table(
    page=(Nest(("k", "v"), bytes=131_072),),
    token=(Nest(("k", "v"), bytes=512, loops=EACH_16_HEADS, token=(512, 512)),),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention+draft: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
PAIRS = (Pair("attention+draft", page=16),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(key="tp=2,draft_tokens=3", digest="940d3b4b2e098eb36b0e88912a2d3569", groups=(
        Group("attention+draft", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("draft", "head", (0, 32)),)),
        Worker(PREFILL_PLANES, holds=(("draft", "head", (32, 64)),)),
    ))

def decode() -> Side:
    return Side(key="tp=4,draft_tokens=3", digest="cfa051a990541bb48303f9f101594461", groups=(
        Group("attention+draft", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("draft", "head", (0, 16)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (16, 32)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (32, 48)),)),
        Worker(DECODE_PLANES, holds=(("draft", "head", (48, 64)),)),
    ))

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PREFILL_PLANES = (
    Planes("attention", "attention+draft", loops=(("layer", tuple(range(61)), 1),), page=18_432, views=(
        View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
        View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
    )),
    Planes("draft", "attention+draft", first=61, loops=(("layer", (61,), 1),), page=262_144, views=(
        View("k", "bf16", axes=(("head", 32, 8192), ("token", 16, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 32, 8192), ("token", 16, 512), ("dim", 128, 2))),
    )),
)
DECODE_PLANES = (
    Planes("attention", "attention+draft", loops=(("layer", tuple(range(61)), 1),), page=18_432, views=(
        View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
        View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
    )),
    Planes("draft", "attention+draft", first=61, loops=(("layer", (61,), 1),), page=131_072, views=(
        View("k", "bf16", axes=(("head", 16, 8192), ("token", 16, 512), ("dim", 128, 2))),
        View("v", "bf16", offset=256, axes=(("head", 16, 8192), ("token", 16, 512), ("dim", 128, 2))),
    )),
)

PLAN = Plan(format=2, title="Kimi K2 with an EAGLE-3 draft", model="kimi-k2-eagle3",
            model_digest="274f4f09cbd5aa1458294b67f412a7fc", digest="dd6651f6e383873dcc8fed759cab0a4e",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(), pairs=PAIRS,
            reads=reads())
