"""DeepSeek-V3.2: prefill tp=4,block=64,kv_dtype=fp8_ds_mla -> decode tp=2,block=64,kv_dtype=fp8_ds_mla.

Emitted by kvplan from deepseek-v3.2, do not edit:
    kvplan compile deepseek-v3.2 --prefill tp=4,block=64,kv_dtype=fp8_ds_mla --decode tp=2,block=64,kv_dtype=fp8_ds_mla

attention, a page of the first worker that has one:
    both     |  token 0  |  token 1   |  token 2   |     …      |  token 63  |      41,984 B
             64 tokens; a plane for each of 61 layers
             64 tokens, 656 B each: latent 512 B (512 dim x fp8) | scale 16 B (4 tile x f32) | rope 128 B (64 turn x
               bf16)
indexer, a page of the first worker that has one:
    both     |                              k                              |…|       8,448 B
             64 tokens; a plane for each of 61 layers
             k 8,192 B (64 token x 128 dim x fp8)
             scale 256 B (64 token x 1 tile x f32)

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-1, attention+indexer: 2 reads, 122 spans a kernel block; 1,952 requests and 49,221,632 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
Both sides: draft is not stored (when draft_tokens > 0).
Both sides: draft-indexer is not stored (when draft_tokens > 0).
Both sides: not probed on vllm, whose file alone says how a page is filled: attention, indexer.
Proved for every decode worker, each byte written once. attention: 61 layers x 656 B a token, each from its own
(layer, token, dim, tile, turn); indexer: 61 layers x 132 B a token, each from its own (layer, token, dim, tile).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, pair="attention+indexer", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=0, pair="attention+indexer", cache="indexer", layers=tuple(range(61)), table=INDEXER,
                 first=(61, 61)),
        ),
        (  # decode worker 1
            Read(worker=2, pair="attention+indexer", cache="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=2, pair="attention+indexer", cache="indexer", layers=tuple(range(61)), table=INDEXER,
                 first=(61, 61)),
        ),
    )

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY = ((1,), (3,))

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    page=(Nest(("latent", "scale", "rope"), bytes=41_984, loops=EACH_61_LAYERS),),
    token=(Nest(("latent", "scale", "rope"), bytes=656, loops=EACH_61_LAYERS, token=(656, 656)),),
)
INDEXER = Table(page=(Nest(("k", "scale"), bytes=8448, loops=EACH_61_LAYERS),), token=(
    Nest(("k",), bytes=128, loops=EACH_61_LAYERS, token=(128, 128)),
    Nest(("scale",), prefill=(0, 8192), decode=(0, 8192), bytes=4, loops=EACH_61_LAYERS, token=(4, 4)),
))

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention+indexer: token t at t % 64 of block t // 64 on both sides; runs end at multiples of 64.
PAIRS = (Pair("attention+indexer", page=64),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(
        key="tp=4,block=64,kv_dtype=fp8_ds_mla", digest="d9f9de81737c65483f54afd6b4f57bc5",
        groups=(Group("attention+indexer", "tokens", tokens=64, kernel=64),),
        workers=(Worker(PLANES), Worker(PLANES), Worker(PLANES), Worker(PLANES)),
    )

def decode() -> Side:
    return Side(
        key="tp=2,block=64,kv_dtype=fp8_ds_mla", digest="68dc0d7700103ab0a6ce1adc5397bea9",
        groups=(Group("attention+indexer", "tokens", tokens=64, kernel=64),),
        workers=(Worker(PLANES), Worker(PLANES)),
    )

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PLANES = (
    Planes("attention", "attention+indexer", loops=(("layer", tuple(range(61)), 1),), page=41_984, views=(
        View("latent", "fp8", axes=(("token", 64, 656), ("dim", 512, 1))),
        View("scale", "f32", offset=512, axes=(("token", 64, 656), ("tile", 4, 4))),
        View("rope", "bf16", offset=528, axes=(("token", 64, 656), ("turn", 64, 2))),
    )),
    Planes("indexer", "attention+indexer", first=61, loops=(("layer", tuple(range(61)), 1),), page=8448, views=(
        View("k", "fp8", axes=(("token", 64, 128), ("dim", 128, 1))),
        View("scale", "f32", offset=8192, axes=(("token", 64, 4), ("tile", 1, 4))),
    )),
)

PLAN = Plan(format=2, title="DeepSeek-V3.2", model="deepseek-v3.2", model_digest="380d851a9fe5e8fb7caaf6c5e57d49ae",
            digest="562f2d9c65f4d6c27ed1d9ffe1a82b18", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads(), notify=NOTIFY)
