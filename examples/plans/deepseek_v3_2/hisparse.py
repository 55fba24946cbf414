r"""DeepSeek-V3.2: prefill engine=sglang,tp=8,block=64 -> decode engine=sglang,tp=8,block=64,hisparse=true.

Emitted by kvplan from deepseek-v3.2, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile deepseek-v3.2 \
        --prefill engine=sglang,tp=8,block=64 \
        --decode engine=sglang,tp=8,block=64,hisparse=true

A page of cache attention on worker 0:
    prefill  |  token 0  |  token 1   |  token 2   |     …      |  token 63  |      73,728 B
             64 tokens; a KV cache tensor for each of 61 layers
             64 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 63  |      73,728 B
             64 tokens; a KV cache tensor for each of 61 layers, in host memory
A page of cache indexer on worker 0:
    both     |                              k                              |…|       8,448 B
             64 tokens; a KV cache tensor for each of 61 layers
             k 8,192 B (64 token x 128 dim x fp8)
             scale 256 B (64 token x 1 tile x f32)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-7, attention: 71,958,528 B in 976 descriptors; 1 read, 61 spans of all layers for each of 16
        blocks
    decode workers 0-7, indexer: 8,245,248 B in 976 descriptors; 1 read, 61 spans of all layers for each of 16
        blocks

Layers: 61 (all store attention, all store indexer).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
Both sides: draft is stored only when draft_tokens > 0, which is false here.
Both sides: draft-indexer is stored only when draft_tokens > 0, which is false here.
Both sides: the page layout of caches attention and indexer comes from sglang's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 61
    layers x 1,152 B per token, coordinates (layer, token, dim, turn); indexer: 61 layers x 132 B per token,
    coordinates (layer, token, dim, tile).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=0, groups="indexer", layers=tuple(range(61)), table=INDEXER, first=(61, 61)),
        ),
        (  # decode worker 1
            Read(worker=1, groups="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=1, groups="indexer", layers=tuple(range(61)), table=INDEXER, first=(61, 61)),
        ),
        (  # decode worker 2
            Read(worker=2, groups="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=2, groups="indexer", layers=tuple(range(61)), table=INDEXER, first=(61, 61)),
        ),
        (  # decode worker 3
            Read(worker=3, groups="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=3, groups="indexer", layers=tuple(range(61)), table=INDEXER, first=(61, 61)),
        ),
        (  # decode worker 4
            Read(worker=4, groups="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=4, groups="indexer", layers=tuple(range(61)), table=INDEXER, first=(61, 61)),
        ),
        (  # decode worker 5
            Read(worker=5, groups="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=5, groups="indexer", layers=tuple(range(61)), table=INDEXER, first=(61, 61)),
        ),
        (  # decode worker 6
            Read(worker=6, groups="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=6, groups="indexer", layers=tuple(range(61)), table=INDEXER, first=(61, 61)),
        ),
        (  # decode worker 7
            Read(worker=7, groups="attention", layers=tuple(range(61)), table=ATTENTION),
            Read(worker=7, groups="indexer", layers=tuple(range(61)), table=INDEXER, first=(61, 61)),
        ),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    per_page=(Nest(("latent", "rope"), bytes=73_728, loops=EACH_61_LAYERS),),
    per_token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_61_LAYERS, token_step=(1152, 1152)),),
)
INDEXER = Table(per_page=(Nest(("k", "scale"), bytes=8448, loops=EACH_61_LAYERS),), per_token=(
    Nest(("k",), bytes=128, loops=EACH_61_LAYERS, token_step=(128, 128)),
    Nest(("scale",), prefill=(0, 8192), decode=(0, 8192), bytes=4, loops=EACH_61_LAYERS, token_step=(4, 4)),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention, indexer: token t at t % 64 of block t // 64 on both sides; runs end at multiples of 64.
GROUP_PAIRS = (GroupPair("attention", page_rows=64), GroupPair("indexer", page_rows=64))

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="engine=sglang,tp=8,block=64", digest="4a33e8276af6e36a8aca050d2ce7be06", groups=(
        Group("attention", "tokens", tokens=64, kernel=64),
        Group("indexer", "tokens", tokens=64, kernel=64, arena=1),
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
    return Side(key="engine=sglang,tp=8,block=64,hisparse=true", digest="f04dc42121cb7c55dbb90a8321ced0f1", groups=(
        Group("attention", "tokens", tokens=64, kernel=64),
        Group("indexer", "tokens", tokens=64, kernel=64, arena=1),
    ), workers=(
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
ATTENTION_VIEWS = (
    View("latent", "bf16", axes=(("token", 64, 1152), ("dim", 512, 2))),
    View("rope", "bf16", offset=1024, axes=(("token", 64, 1152), ("turn", 64, 2))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(61)), 1),), page_bytes=73_728, views=ATTENTION_VIEWS),
    Planes("indexer", first=61, loops=(("layer", tuple(range(61)), 1),), page_bytes=8448, views=(
        View("k", "fp8", axes=(("token", 64, 128), ("dim", 128, 1))),
        View("scale", "f32", offset=8192, axes=(("token", 64, 4), ("tile", 1, 4))),
    )),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(61)), 1),), page_bytes=73_728, memory="host",
           views=ATTENTION_VIEWS),
    Planes("indexer", first=61, loops=(("layer", tuple(range(61)), 1),), page_bytes=8448, views=(
        View("k", "fp8", axes=(("token", 64, 128), ("dim", 128, 1))),
        View("scale", "f32", offset=8192, axes=(("token", 64, 4), ("tile", 1, 4))),
    )),
)

PLAN = Plan(format=3, title="DeepSeek-V3.2", model="deepseek-v3.2", model_digest="76c225eb4c8d01816132c79c94cc1dfe",
            digest="646119afc346806efbd1f73b159c93da", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
