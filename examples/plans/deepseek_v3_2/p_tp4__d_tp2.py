"""DeepSeek-V3.2: prefill tp=4,kv_dtype=fp8_ds_mla -> decode tp=2,kv_dtype=fp8_ds_mla.

Emitted by kvplan from deepseek-v3.2, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile deepseek-v3.2 --prefill tp=4,kv_dtype=fp8_ds_mla --decode tp=2,kv_dtype=fp8_ds_mla

A page of cache attention on worker 0:
    both     |  token 0  |  token 1   |  token 2   |     …      |  token 63  |      41,984 B
             64 tokens; a KV cache tensor for each of 61 layers
             64 tokens, 656 B each: latent 512 B (512 dim x fp8) | scale 16 B (4 tile x f32) | rope 128 B (64 turn x
               bf16)
A page of cache indexer on worker 0:
    both     |                              k                              |…|       8,448 B
             64 tokens; a KV cache tensor for each of 61 layers
             k 8,192 B (64 token x 128 dim x fp8)
             scale 256 B (64 token x 1 tile x f32)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention+indexer: 49,221,632 B in 1,952 descriptors; 2 reads, together 122 spans of all
        layers for each of 16 blocks

Layers: 61 (all store attention, all store indexer).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
Both sides: draft is stored only when draft_tokens > 0, which is false here.
Both sides: draft-indexer is stored only when draft_tokens > 0, which is false here.
Both sides: the page layout of caches attention and indexer comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 61
    layers x 656 B per token, coordinates (layer, token, dim, tile, turn); indexer: 61 layers x 132 B per token,
    coordinates (layer, token, dim, tile).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `pair` is one of PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill, decode).
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

# The prefill workers that each decode worker notifies when it is done, although it reads nothing from them.
NOTIFY = ((1,), (3,))

# What a read copies for one block (`page` of a Table), or for each token of a run (`token`). A Nest is a span of
# `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token` of a Nest is the step from one token to the next on each side; if both steps equal `bytes`,
# all tokens of a run are one span.
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    page=(Nest(("latent", "scale", "rope"), bytes=41_984, loops=EACH_61_LAYERS),),
    token=(Nest(("latent", "scale", "rope"), bytes=656, loops=EACH_61_LAYERS, token=(656, 656)),),
)
INDEXER = Table(page=(Nest(("k", "scale"), bytes=8448, loops=EACH_61_LAYERS),), token=(
    Nest(("k",), bytes=128, loops=EACH_61_LAYERS, token=(128, 128)),
    Nest(("scale",), prefill=(0, 8192), decode=(0, 8192), bytes=4, loops=EACH_61_LAYERS, token=(4, 4)),
))

# Which groups of the two sides match: a Pair is one of each. Its `page` is the number of token rows in a page, if both
# sides have the same; without it, runs of tokens are copied.
# attention+indexer: token t at t % 64 of block t // 64 on both sides; runs end at multiples of 64.
PAIRS = (Pair("attention+indexer", page=64),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(
        key="tp=4,kv_dtype=fp8_ds_mla", digest="d9f9de81737c65483f54afd6b4f57bc5",
        groups=(Group("attention+indexer", "tokens", tokens=64, kernel=64),),
        workers=(Worker(PLANES), Worker(PLANES), Worker(PLANES), Worker(PLANES)),
    )

def decode() -> Side:
    return Side(
        key="tp=2,kv_dtype=fp8_ds_mla", digest="68dc0d7700103ab0a6ce1adc5397bea9",
        groups=(Group("attention+indexer", "tokens", tokens=64, kernel=64),),
        workers=(Worker(PLANES), Worker(PLANES)),
    )

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). Pages are `stride` bytes apart; by default
# `page` bytes, the size of a page. `kvplan explain WORD` explains the name of an axis.
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
