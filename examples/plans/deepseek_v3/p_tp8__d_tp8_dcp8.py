"""DeepSeek-V3: prefill tp=8 -> decode tp=8,dcp=8.

Emitted by kvplan from deepseek-v3, do not edit:
    kvplan compile deepseek-v3 --prefill tp=8 --decode tp=8,dcp=8

attention, a page of the first worker that has one:
    prefill  |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; 8 shards take turns of 16; a plane for each of 61 layers

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-7, attention: 1 read, 61 spans a kernel block; 488 requests and 8,994,816 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
Both sides: draft is not stored (when draft_tokens > 0).
Both sides: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 61 layers x 1,152 B a token, each from its own
(layer, token, dim, turn).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 1
        (Read(worker=1, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 2
        (Read(worker=2, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 3
        (Read(worker=3, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 4
        (Read(worker=4, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 5
        (Read(worker=5, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 6
        (Read(worker=6, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 7
        (Read(worker=7, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
    )

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    page=(Nest(("latent", "rope"), bytes=18_432, loops=EACH_61_LAYERS),),
    token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_61_LAYERS, token=(1152, 1152)),),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention: token t at t % 16 of block t // 16 of prefill, on shard t // 16 % 8 as u = t // 128 * 16 + t % 16, at u %
#   16 of block u // 16 of decode; runs end at multiples of 16.
PAIRS = (Pair("attention", page=16),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(key="tp=8", digest="8e5bcedf2e7580003925304d7e7738af", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
        Worker(PLANES),
    ))

def decode() -> Side:
    return Side(key="tp=8,dcp=8", digest="c79eeb95e35239b800f10e948452ba45", groups=(
        Group("attention", "tokens", tokens=16, kernel=16, shards=8, chunk=16),
    ), workers=(
        Worker(PLANES),
        Worker(PLANES, shard=1),
        Worker(PLANES, shard=2),
        Worker(PLANES, shard=3),
        Worker(PLANES, shard=4),
        Worker(PLANES, shard=5),
        Worker(PLANES, shard=6),
        Worker(PLANES, shard=7),
    ))

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page=18_432, views=(
    View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
)),)

PLAN = Plan(format=2, title="DeepSeek-V3", model="deepseek-v3", model_digest="274f4f09cbd5aa1458294b67f412a7fc",
            digest="6726a21bcc01868e9080d8324c20029e", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads())
