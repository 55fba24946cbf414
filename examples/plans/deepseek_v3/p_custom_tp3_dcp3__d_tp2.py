"""DeepSeek-V3: prefill engine=custom,tp=3,dcp=3,interleave=24 -> decode tp=2,block=32.

Emitted by kvplan from deepseek-v3, do not edit:
    kvplan compile deepseek-v3 --prefill engine=custom,tp=3,dcp=3,interleave=24 --decode tp=2,block=32

attention, a page of the first worker that has one:
    prefill  |  0  |  1  |  2  |  …  |  15 |                                        18,432 B
             16 tokens; 3 shards take turns of 24; a plane for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 31  |      36,864 B
             32 tokens; a plane for each of 61 layers
             32 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-1, attention: 3 reads, 61 spans a run of tokens; 5,612 requests and 71,958,528 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
Prefill: interleave=24 given; derived 16.
Both sides: draft is not stored (when draft_tokens > 0).
Prefill: not probed on custom, whose file alone says how a page is filled: attention.
Decode: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 61 layers x 1,152 B a token, each from its own
(layer, token, dim, turn).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        READS_0_1,  # decode worker 0
        READS_0_1,  # decode worker 1
    )

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_61_LAYERS, token=(1152, 1152)),))
READS_0_1 = (
    Read(worker=0, pair="attention", layers=tuple(range(61)), table=ATTENTION),
    Read(worker=1, pair="attention", layers=tuple(range(61)), table=ATTENTION),
    Read(worker=2, pair="attention", layers=tuple(range(61)), table=ATTENTION),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention: token t on shard t // 24 % 3 as u = t // 72 * 24 + t % 24, at u % 16 of block u // 16 of prefill, at t % 32
#   of block t // 32 of decode; runs end at multiples of 24 and 32 and where a kernel block of a shard ends.
PAIRS = (Pair("attention"),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(
        key="engine=custom,tp=3,dcp=3,interleave=24", digest="0ea956825846e39113657bbb80ca0e2e",
        groups=(Group("attention", "tokens", tokens=16, kernel=16, shards=3, chunk=24),),
        workers=(Worker(PREFILL_PLANES), Worker(PREFILL_PLANES, shard=1), Worker(PREFILL_PLANES, shard=2)),
    )

def decode() -> Side:
    return Side(
        key="tp=2,block=32", digest="70759f26d41f1386ae9e9f2fbb904dd4",
        groups=(Group("attention", "tokens", tokens=32, kernel=32),),
        workers=(Worker(DECODE_PLANES), Worker(DECODE_PLANES)),
    )

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PREFILL_PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page=18_432, views=(
    View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
)),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page=36_864, views=(
    View("latent", "bf16", axes=(("token", 32, 1152), ("dim", 512, 2))),
    View("rope", "bf16", offset=1024, axes=(("token", 32, 1152), ("turn", 64, 2))),
)),)

PLAN = Plan(format=2, title="DeepSeek-V3", model="deepseek-v3", model_digest="274f4f09cbd5aa1458294b67f412a7fc",
            digest="fe3f946516a0f2b8e05e7ce66b3c40cc", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads())
