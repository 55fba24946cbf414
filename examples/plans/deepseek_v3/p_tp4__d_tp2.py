"""DeepSeek-V3: prefill tp=4,kv_dtype=fp8_ds_mla -> decode tp=2,kv_dtype=fp8_ds_mla.

Emitted by kvplan from deepseek-v3, do not edit:
    kvplan compile deepseek-v3 --prefill tp=4,kv_dtype=fp8_ds_mla --decode tp=2,kv_dtype=fp8_ds_mla

attention, a page of the first worker that has one:
    both     |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      10,496 B
             16 tokens; a plane for each of 61 layers
             16 tokens, 656 B each: latent 512 B (512 dim x fp8) | scale 16 B (4 tile x f32) | rope 128 B (64 turn x
               bf16)

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-1, attention: 1 read, 61 spans a kernel block; 3,904 requests and 40,976,384 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
Both sides: draft is not stored (when draft_tokens > 0).
Both sides: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 61 layers x 656 B a token, each from its own
(layer, token, dim, tile, turn).
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
        (Read(worker=2, pair="attention", layers=tuple(range(61)), table=ATTENTION),),
    )

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY = ((1,), (3,))

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    page=(Nest(("latent", "scale", "rope"), bytes=10_496, loops=EACH_61_LAYERS),),
    token=(Nest(("latent", "scale", "rope"), bytes=656, loops=EACH_61_LAYERS, token=(656, 656)),),
)

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
PAIRS = (Pair("attention", page=16),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(
        key="tp=4,kv_dtype=fp8_ds_mla", digest="1ddff2d17b27dc41578eb85e6f268589",
        groups=(Group("attention", "tokens", tokens=16, kernel=16),),
        workers=(Worker(PLANES), Worker(PLANES), Worker(PLANES), Worker(PLANES)),
    )

def decode() -> Side:
    return Side(
        key="tp=2,kv_dtype=fp8_ds_mla", digest="1a62a40c3f7c1ffc25826d758b856977",
        groups=(Group("attention", "tokens", tokens=16, kernel=16),),
        workers=(Worker(PLANES), Worker(PLANES)),
    )

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page=10_496, views=(
    View("latent", "fp8", axes=(("token", 16, 656), ("dim", 512, 1))),
    View("scale", "f32", offset=512, axes=(("token", 16, 656), ("tile", 4, 4))),
    View("rope", "bf16", offset=528, axes=(("token", 16, 656), ("turn", 64, 2))),
)),)

PLAN = Plan(format=2, title="DeepSeek-V3", model="deepseek-v3", model_digest="743ab81399753bd989a6fcfd4dda796a",
            digest="f251431c3e4e3427623869384d5a2d0f", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads(), notify=NOTIFY)
