"""DeepSeek-V3: prefill tp=8 -> decode tp=2,pp=2.

Emitted by kvplan from deepseek-v3, do not edit:
    kvplan compile deepseek-v3 --prefill tp=8 --decode tp=2,pp=2

attention, a page of the first worker that has one:
    prefill  |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      18,432 B
             16 tokens; a plane for each of 31 layers

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-1, attention: 1 read, 31 spans a kernel block; 1,984 requests and 36,569,088 B
    decode workers 2-3, attention: 1 read, 30 spans a kernel block; 1,920 requests and 35,389,440 B

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
        (Read(worker=0, pair="attention", layers=tuple(range(31)), table=ATTENTION_31_LAYERS),),
        # decode worker 1
        (Read(worker=2, pair="attention", layers=tuple(range(31)), table=ATTENTION_31_LAYERS),),
        # decode worker 2
        (Read(worker=4, pair="attention", layers=tuple(range(31, 61)), table=ATTENTION_30_LAYERS, first=(31, 0)),),
        # decode worker 3
        (Read(worker=6, pair="attention", layers=tuple(range(31, 61)), table=ATTENTION_30_LAYERS, first=(31, 0)),),
    )

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY = ((1,), (3,), (5,), (7,))

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_31_LAYERS = (Loop("layer", count=31, prefill=(1, 0), decode=(1, 0)),)
EACH_30_LAYERS = (Loop("layer", count=30, prefill=(1, 0), decode=(1, 0)),)
ATTENTION_31_LAYERS = Table(
    page=(Nest(("latent", "rope"), bytes=18_432, loops=EACH_31_LAYERS),),
    token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_31_LAYERS, token=(1152, 1152)),),
)
ATTENTION_30_LAYERS = Table(
    page=(Nest(("latent", "rope"), bytes=18_432, loops=EACH_30_LAYERS),),
    token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_30_LAYERS, token=(1152, 1152)),),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
PAIRS = (Pair("attention", page=16),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(key="tp=8", digest="8e5bcedf2e7580003925304d7e7738af", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
    ))

def decode() -> Side:
    return Side(key="tp=2,pp=2", digest="29fb0694ec2f8642820e9e4a460ac93f", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_0_1_PLANES),
        Worker(DECODE_0_1_PLANES),
        Worker(DECODE_2_3_PLANES),
        Worker(DECODE_2_3_PLANES),
    ))

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
ATTENTION_VIEWS = (
    View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
)
PREFILL_PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page=18_432, views=ATTENTION_VIEWS),)
DECODE_0_1_PLANES = (Planes("attention", loops=(("layer", tuple(range(31)), 1),), page=18_432, views=ATTENTION_VIEWS),)
DECODE_2_3_PLANES = (Planes("attention", loops=(("layer", tuple(range(31, 61)), 1),), page=18_432,
                            views=ATTENTION_VIEWS),)

PLAN = Plan(format=2, title="DeepSeek-V3", model="deepseek-v3", model_digest="274f4f09cbd5aa1458294b67f412a7fc",
            digest="ce93758c652f358898953583afb7a2b8", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads(), notify=NOTIFY)
