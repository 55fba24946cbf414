"""DeepSeek-V4-Flash: prefill tp=2,order=BLHNC -> decode tp=1,order=BLNHC.

Emitted by kvplan from deepseek-v4-flash, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile deepseek-v4-flash --prefill tp=2,order=BLHNC --decode tp=1,order=BLNHC

A page of cache few on worker 0:
    both     |  layer 2  |  layer 4   |  layer 6   |     …      |  layer 42  |     786,240 B, blocks 1,002,240 B apart
             256 tokens in rows of 4; one KV cache tensor
             21 layers, 37,440 B each: [64 rows, 576 B each: latent 448 B (448 dim x fp8) | rope 128 B (64 turn x
               bf16)] | exponent 448 B (64 row x 7 tile x u8), 64 rows of 7 B, 8 B apart | padding 64 B
A page of cache indexer on worker 0:
    both     |  layer 2  |  layer 4   |  layer 6   |     …      |  layer 42  |     181,440 B, blocks 1,002,240 B apart
             256 tokens in rows of 4; one KV cache tensor
             21 layers, 8,640 B each: k 8,192 B (64 row x 128 dim x fp8) | scale 256 B (64 row x 1 tile x f32) |
               padding 192 B
A page of cache many on worker 0:
    both     |  layer 3  |  layer 5   |  layer 7   |     …      |  layer 41  |      34,560 B, blocks 1,002,240 B apart
             256 tokens in rows of 128; one KV cache tensor
             20 layers, 1,728 B each: [2 rows, 576 B each: latent 448 B (448 dim x fp8) | rope 128 B (64 turn x
               bf16)] | exponent 14 B (2 row x 7 tile x u8), 2 rows of 7 B, 8 B apart | padding 560 B
A page of cache few-compressor on worker 0:
    both     |  layer 2  |  layer 4   |  layer 6   |     …      |  layer 42  |     689,472 B, blocks 1,002,240 B apart
             4 tokens; one KV cache tensor
             21 layers, 32,832 B each: [4 tokens, 8,192 B each: kv 4,096 B (2 pool x 512 dim x f32) | score 4,096 B
               (2 pool x 512 dim x f32)] | padding 64 B
A page of cache indexer-compressor on worker 0:
    both     |  layer 2  |  layer 4   |  layer 6   |     …      |  layer 42  |     181,440 B, blocks 1,002,240 B apart
             4 tokens; one KV cache tensor
             21 layers, 8,640 B each: [4 tokens, 2,048 B each: kv 1,024 B (2 pool x 128 dim x f32) | score 1,024 B
               (2 pool x 128 dim x f32)] | padding 448 B
A page of cache many-compressor on worker 0:
    both     |  layer 3  |  layer 5   |  layer 7   |     …      |  layer 41  |     656,640 B, blocks 1,002,240 B apart
             8 tokens; one KV cache tensor
             20 layers, 32,832 B each: [8 tokens, 4,096 B each: kv 2,048 B (1 pool x 512 dim x f32) | score 2,048 B
               (1 pool x 512 dim x f32)] | padding 64 B
A page of cache window on worker 0:
    both     |  layer 0  |  layer 2   |  layer 4   |     …      |  layer 42  |
             823,680 B, blocks 1,002,240 B apart; 786,240 B on other workers
             64 tokens; one KV cache tensor of window.0, one of 2 groups of window
             22 layers, 37,440 B each: [64 tokens, 576 B each: latent 448 B (448 dim x fp8) | rope 128 B (64 turn x
               bf16)] | exponent 448 B (64 token x 7 tile x u8), 64 tokens of 7 B, 8 B apart | padding 64 B

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode worker 0, few+indexer+many:few+indexer: 3,869,692 B in 8 descriptors; 2 reads, together 2 spans of all
        layers for each of 4 blocks
    decode worker 0, few+indexer+many:many: 135,996 B in 4 descriptors; 1 read, 1 span of all layers for each of 4
        blocks
    decode worker 0, few-compressor+indexer-compressor: 1,515,520 B in 44 descriptors; 2 reads, together 2 spans of
        all layers for a whole block, and 42 for the rest
    decode worker 0, many-compressor: 10,422,080 B in 35 descriptors; 1 read, 1 span of all layers for each of 15
        whole blocks, and 20 for the rest
    decode worker 0, window.0: 1,631,653 B in 1,409 descriptors; 1 read, 1 span of all layers for a whole block, and
        1,408 for the rest
    decode worker 0, window.1: 1,557,484 B in 1,345 descriptors; 1 read, 1 span of all layers for a whole block, and
        1,344 for the rest

Layers: 43 (all store window, 21 store few, 20 store many, 21 store indexer, 21 store few-compressor, 20 store
    many-compressor, 21 store indexer-compressor).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
few+indexer+many:few+indexer: a row per 4 tokens, moved whole with the last of them.
few+indexer+many:many: a row per 128 tokens, moved whole with the last of them.
few-compressor+indexer-compressor: only the last 7 tokens (a window of 8 includes the next token).
many-compressor, window.0, window.1, each: only the last 127 tokens (a window of 128 includes the next token).
Shared memory: on both sides few+indexer+many, few-compressor+indexer-compressor, many-compressor, window.0 and
    window.1. A block is of one of these groups at a time.
Both sides: draft is stored only when draft_tokens > 0, which is false here.
Both sides: the page layout of caches few, few-compressor, indexer, indexer-compressor, many, many-compressor and
    window comes from vllm's engine file; not yet verified on a running engine: the --probe of kvplan from-cache
    verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. few: 21 layers
    x 583 B per row of 4 tokens, coordinates (layer, row, dim, turn, tile); few-compressor: 21 layers x 8,192 B per
    token, coordinates (layer, token, pool, dim); indexer: 21 layers x 132 B per row of 4 tokens, coordinates
    (layer, row, dim, tile); indexer-compressor: 21 layers x 2,048 B per token, coordinates (layer, token, pool,
    dim); many: 20 layers x 583 B per row of 128 tokens, coordinates (layer, row, dim, turn, tile); many-compressor:
    20 layers x 4,096 B per token, coordinates (layer, token, pool, dim); window: 43 layers x 583 B per token,
    coordinates (layer, token, dim, turn, tile).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Needs, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="few+indexer+many:few+indexer", cache="few", layers=tuple(range(2, 43, 2)),
                 table=FEW_AND_WINDOW),
            Read(worker=0, groups="few+indexer+many:few+indexer", cache="indexer", layers=tuple(range(2, 43, 2)),
                 table=INDEXER, first=(1, 1)),
            Read(worker=0, groups="few+indexer+many:many", cache="many", layers=tuple(range(3, 42, 2)), table=MANY,
                 first=(2, 2)),
            Read(worker=0, groups="few-compressor+indexer-compressor", cache="few-compressor",
                 layers=tuple(range(2, 43, 2)), table=FEW_COMPRESSOR, first=(3, 3)),
            Read(worker=0, groups="few-compressor+indexer-compressor", cache="indexer-compressor",
                 layers=tuple(range(2, 43, 2)), table=INDEXER_COMPRESSOR, first=(4, 4)),
            Read(worker=0, groups="many-compressor", layers=tuple(range(3, 42, 2)), table=MANY_COMPRESSOR,
                 first=(5, 5)),
            Read(worker=0, groups="window.0", cache="window", layers=tuple(range(0, 43, 2)), table=WINDOW,
                 first=(6, 6)),
            Read(worker=0, groups="window.1", cache="window", layers=tuple(range(1, 42, 2)), table=FEW_AND_WINDOW,
                 first=(7, 7)),
        ),
    )

# The prefill workers that each decode worker notifies when it is done, although it reads nothing from them.
NOTIFY = ((1,),)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
FEW_EACH_21_LAYERS = (Loop("layer", count=21, prefill=(0, 37_440), decode=(0, 37_440)),)
INDEXER_EACH_21_LAYERS = (Loop("layer", count=21, prefill=(0, 8640), decode=(0, 8640)),)
MANY_EACH_20_LAYERS = (Loop("layer", count=20, prefill=(0, 1728), decode=(0, 1728)),)
FEW_COMPRESSOR_EACH_21_LAYERS = (Loop("layer", count=21, prefill=(0, 32_832), decode=(0, 32_832)),)
MANY_COMPRESSOR_EACH_20_LAYERS = (Loop("layer", count=20, prefill=(0, 32_832), decode=(0, 32_832)),)
EACH_22_LAYERS = (Loop("layer", count=22, prefill=(0, 37_440), decode=(0, 37_440)),)
FEW_AND_WINDOW = Table(per_page=(Nest(("latent", "rope", "exponent"), bytes=786_175),), per_token=(
    Nest(("latent", "rope"), bytes=576, loops=FEW_EACH_21_LAYERS, token_step=(576, 576)),
    Nest(("exponent",), prefill=(0, 36_864), decode=(0, 36_864), bytes=7, loops=FEW_EACH_21_LAYERS, token_step=(8, 8)),
))
INDEXER = Table(per_page=(Nest(("k", "scale"), bytes=181_248),), per_token=(
    Nest(("k",), bytes=128, loops=INDEXER_EACH_21_LAYERS, token_step=(128, 128)),
    Nest(("scale",), prefill=(0, 8192), decode=(0, 8192), bytes=4, loops=INDEXER_EACH_21_LAYERS, token_step=(4, 4)),
))
MANY = Table(per_page=(Nest(("latent", "rope", "exponent"), bytes=33_999),), per_token=(
    Nest(("latent", "rope"), bytes=576, loops=MANY_EACH_20_LAYERS, token_step=(576, 576)),
    Nest(("exponent",), prefill=(0, 1152), decode=(0, 1152), bytes=7, loops=MANY_EACH_20_LAYERS, token_step=(8, 8)),
))
FEW_COMPRESSOR = Table(
    per_page=(Nest(("kv", "score"), bytes=689_408),),
    per_token=(Nest(("kv", "score"), bytes=8192, loops=FEW_COMPRESSOR_EACH_21_LAYERS, token_step=(8192, 8192)),),
)
INDEXER_COMPRESSOR = Table(
    per_page=(Nest(("kv", "score"), bytes=180_992),),
    per_token=(Nest(("kv", "score"), bytes=2048, loops=INDEXER_EACH_21_LAYERS, token_step=(2048, 2048)),),
)
MANY_COMPRESSOR = Table(
    per_page=(Nest(("kv", "score"), bytes=656_576),),
    per_token=(Nest(("kv", "score"), bytes=4096, loops=MANY_COMPRESSOR_EACH_20_LAYERS, token_step=(4096, 4096)),),
)
WINDOW = Table(per_page=(Nest(("latent", "rope", "exponent"), bytes=823_615),), per_token=(
    Nest(("latent", "rope"), bytes=576, loops=EACH_22_LAYERS, token_step=(576, 576)),
    Nest(("exponent",), prefill=(0, 36_864), decode=(0, 36_864), bytes=7, loops=EACH_22_LAYERS, token_step=(8, 8)),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# few+indexer+many:few+indexer: row r = t // 4, with its last token, at r % 64 of block r // 64 on both sides; runs end
#   at multiples of 64.
# few+indexer+many:many: row r = t // 128, with its last token, at r % 2 of block r // 2 on both sides; runs end at
#   multiples of 2.
# few-compressor+indexer-compressor: token t at t % 4 of block t // 4 on both sides, from end - 7 on; runs end at
#   multiples of 4.
# many-compressor: token t at t % 8 of block t // 8 on both sides, from end - 127 on; runs end at multiples of 8.
# window.0, window.1: token t at t % 64 of block t // 64 on both sides, from end - 127 on; runs end at multiples of 64.
GROUP_PAIRS = (
    GroupPair("few+indexer+many:few+indexer", prefill="few+indexer+many", decode="few+indexer+many", page_rows=64,
              rows=4),
    GroupPair("few+indexer+many:many", prefill="few+indexer+many", decode="few+indexer+many", page_rows=2, rows=128),
    GroupPair("few-compressor+indexer-compressor", page_rows=4, needs=Needs(keep=7)),
    GroupPair("many-compressor", page_rows=8, needs=Needs(keep=127)),
    GroupPair("window.0", page_rows=64, needs=Needs(keep=127)),
    GroupPair("window.1", page_rows=64, needs=Needs(keep=127)),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=2,order=BLHNC", digest="fe7ad974f47cede308fc7218ebe46340", groups=(
        Group("few+indexer+many", "tokens", tokens=256, kernel=256),
        Group("few-compressor+indexer-compressor", "tokens", tokens=4, kernel=4),
        Group("many-compressor", "tokens", tokens=8, kernel=8),
        Group("window.0", "tokens", tokens=64, kernel=64),
        Group("window.1", "tokens", tokens=64, kernel=64),
    ), workers=(Worker(PLANES), Worker(PLANES)), needs=(
        ("few-compressor", Needs(keep=7)),
        ("indexer-compressor", Needs(keep=7)),
        ("many-compressor", Needs(keep=127)),
        ("window", Needs(keep=127)),
    ))

def decode() -> Side:
    return Side(key="tp=1,order=BLNHC", digest="f747a1fc4d25fedc1d5c839adad6499a", groups=(
        Group("few+indexer+many", "tokens", tokens=256, kernel=256),
        Group("few-compressor+indexer-compressor", "tokens", tokens=4, kernel=4),
        Group("many-compressor", "tokens", tokens=8, kernel=8),
        Group("window.0", "tokens", tokens=64, kernel=64),
        Group("window.1", "tokens", tokens=64, kernel=64),
    ), workers=(Worker(PLANES),), needs=(
        ("few-compressor", Needs(keep=7)),
        ("indexer-compressor", Needs(keep=7)),
        ("many-compressor", Needs(keep=127)),
        ("window", Needs(keep=127)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
FEW_AND_WINDOW_VIEWS = (
    View("latent", "fp8", axes=(("layer", 21, 37_440), ("token", 64, 576), ("dim", 448, 1))),
    View("rope", "bf16", offset=448, axes=(("layer", 21, 37_440), ("token", 64, 576), ("turn", 64, 2))),
    View("exponent", "u8", offset=36_864, axes=(("layer", 21, 37_440), ("token", 64, 8), ("tile", 7, 1))),
)
PLANES = (
    Planes("few", "few+indexer+many", page_bytes=786_240, stride=1_002_240, layers=tuple(range(2, 43, 2)),
           views=FEW_AND_WINDOW_VIEWS),
    Planes("indexer", "few+indexer+many", first=1, page_bytes=181_440, stride=1_002_240,
           layers=tuple(range(2, 43, 2)), views=(
        View("k", "fp8", axes=(("layer", 21, 8640), ("token", 64, 128), ("dim", 128, 1))),
        View("scale", "f32", offset=8192, axes=(("layer", 21, 8640), ("token", 64, 4), ("tile", 1, 4))),
    )),
    Planes("many", "few+indexer+many", first=2, page_bytes=34_560, stride=1_002_240,
           layers=tuple(range(3, 42, 2)), views=(
        View("latent", "fp8", axes=(("layer", 20, 1728), ("token", 2, 576), ("dim", 448, 1))),
        View("rope", "bf16", offset=448, axes=(("layer", 20, 1728), ("token", 2, 576), ("turn", 64, 2))),
        View("exponent", "u8", offset=1152, axes=(("layer", 20, 1728), ("token", 2, 8), ("tile", 7, 1))),
    )),
    Planes("few-compressor", "few-compressor+indexer-compressor", first=3, page_bytes=689_472, stride=1_002_240,
           layers=tuple(range(2, 43, 2)), views=(
        View("kv", "f32", axes=(("layer", 21, 32_832), ("token", 4, 8192), ("pool", 2, 2048), ("dim", 512, 4))),
        View("score", "f32", offset=4096,
             axes=(("layer", 21, 32_832), ("token", 4, 8192), ("pool", 2, 2048), ("dim", 512, 4))),
    )),
    Planes("indexer-compressor", "few-compressor+indexer-compressor", first=4, page_bytes=181_440,
           stride=1_002_240, layers=tuple(range(2, 43, 2)), views=(
        View("kv", "f32", axes=(("layer", 21, 8640), ("token", 4, 2048), ("pool", 2, 512), ("dim", 128, 4))),
        View("score", "f32", offset=1024,
             axes=(("layer", 21, 8640), ("token", 4, 2048), ("pool", 2, 512), ("dim", 128, 4))),
    )),
    Planes("many-compressor", first=5, page_bytes=656_640, stride=1_002_240, layers=tuple(range(3, 42, 2)), views=(
        View("kv", "f32", axes=(("layer", 20, 32_832), ("token", 8, 4096), ("pool", 1, 2048), ("dim", 512, 4))),
        View("score", "f32", offset=2048,
             axes=(("layer", 20, 32_832), ("token", 8, 4096), ("pool", 1, 2048), ("dim", 512, 4))),
    )),
    Planes("window", "window.0", first=6, page_bytes=823_680, stride=1_002_240, layers=tuple(range(0, 43, 2)), views=(
        View("latent", "fp8", axes=(("layer", 22, 37_440), ("token", 64, 576), ("dim", 448, 1))),
        View("rope", "bf16", offset=448, axes=(("layer", 22, 37_440), ("token", 64, 576), ("turn", 64, 2))),
        View("exponent", "u8", offset=36_864, axes=(("layer", 22, 37_440), ("token", 64, 8), ("tile", 7, 1))),
    )),
    Planes("window", "window.1", first=7, page_bytes=786_240, stride=1_002_240, layers=tuple(range(1, 42, 2)),
           views=FEW_AND_WINDOW_VIEWS),
)

PLAN = Plan(format=3, title="DeepSeek-V4-Flash", model="deepseek-v4-flash",
            model_digest="e36229f394f499851c62a53435300d59", digest="04d3f168979fb1bad0ceeb1a17e50c75",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads(), notify=NOTIFY)
