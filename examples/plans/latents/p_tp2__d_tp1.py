"""Windows of latents beside compressed ones: prefill tp=2,order=BLHNC -> decode tp=1,order=BLNHC.

Emitted by kvplan from latents, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains it.
To make it again, compile its deployment. In the folder of its layout files, this compiles the pair alone, to a file
named after its sides:
    kvplan compile latents --prefill tp=2,order=BLHNC --decode tp=1,order=BLNHC --layouts .

A page of cache compressed on worker 0:
    both     |            layer 1            |            layer 3            |      74,880 B, blocks 92,160 B apart
             256 tokens in rows of 4; one KV cache tensor
             2 layers, 37,440 B each: [64 rows, 576 B each: latent 448 B (448 dim x fp8) | rope 128 B (64 turn x
               bf16)] | exponent 448 B (64 row x 7 tile x u8), 64 rows of 7 B, 8 B apart | padding 64 B
A page of cache indexer on worker 0:
    both     |            layer 1            |            layer 3            |      17,280 B, blocks 92,160 B apart
             256 tokens in rows of 4; one KV cache tensor
             2 layers, 8,640 B each: k 8,192 B (64 row x 128 dim x fp8) | scale 256 B (64 row x 1 tile x f32) |
               padding 192 B
A page of cache window on worker 0:
    both     |            layer 0            |            layer 2            |      38,016 B, blocks 92,160 B apart
             32 tokens; one KV cache tensor of window.0, one of 2 groups of window
             2 layers, 19,008 B each: [32 tokens, 576 B each: latent 448 B (448 dim x fp8) | rope 128 B (64 turn x
               bf16)] | exponent 224 B (32 token x 7 tile x u8), 32 tokens of 7 B, 8 B apart | padding 320 B

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode worker 0, compressed+indexer: 367,612 B in 8 descriptors; 2 reads, together 2 spans of all layers for
        each of 4 blocks
    decode worker 0, window.0, window.1, each: 149,231 B in 67 descriptors; 1 read, 1 span of all layers for each of
        3 whole blocks, and 64 for the rest

Layers: 4 (all store window, 2 store compressed, 2 store indexer).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
compressed+indexer: a row per 4 tokens, moved whole with the last of them.
window.0, window.1, each: only the last 127 tokens (a window of 128 includes the next token).
Shared memory: on both sides compressed+indexer, window.0 and window.1. A block is of one of these groups at a time.
Both sides: the page layout of caches compressed, indexer and window comes from vllm's engine file; not yet verified
    on a running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. compressed: 2
    layers x 583 B per row of 4 tokens, coordinates (layer, row, dim, turn, tile); indexer: 2 layers x 132 B per row
    of 4 tokens, coordinates (layer, row, dim, tile); window: 4 layers x 583 B per token, coordinates (layer, token,
    dim, turn, tile).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Needs, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="compressed+indexer", cache="compressed", layers=(1, 3), table=COMPRESSED),
            Read(worker=0, groups="compressed+indexer", cache="indexer", layers=(1, 3), table=INDEXER, first=(1, 1)),
            Read(worker=0, groups="window.0", cache="window", layers=(0, 2), table=WINDOW, first=(2, 2)),
            Read(worker=0, groups="window.1", cache="window", layers=(1, 3), table=WINDOW, first=(3, 3)),
        ),
    )

# The prefill workers that each decode worker notifies when it is done, although it reads nothing from them.
NOTIFY = ((1,),)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
COMPRESSED_EACH_2_LAYERS = (Loop("layer", count=2, prefill=(0, 37_440), decode=(0, 37_440)),)
INDEXER_EACH_2_LAYERS = (Loop("layer", count=2, prefill=(0, 8640), decode=(0, 8640)),)
WINDOW_EACH_2_LAYERS = (Loop("layer", count=2, prefill=(0, 19_008), decode=(0, 19_008)),)
COMPRESSED = Table(per_page=(Nest(("latent", "rope", "exponent"), bytes=74_815),), per_token=(
    Nest(("latent", "rope"), bytes=576, loops=COMPRESSED_EACH_2_LAYERS, token_step=(576, 576)),
    Nest(("exponent",), prefill=(0, 36_864), decode=(0, 36_864), bytes=7, loops=COMPRESSED_EACH_2_LAYERS,
         token_step=(8, 8)),
))
INDEXER = Table(per_page=(Nest(("k", "scale"), bytes=17_088),), per_token=(
    Nest(("k",), bytes=128, loops=INDEXER_EACH_2_LAYERS, token_step=(128, 128)),
    Nest(("scale",), prefill=(0, 8192), decode=(0, 8192), bytes=4, loops=INDEXER_EACH_2_LAYERS, token_step=(4, 4)),
))
WINDOW = Table(per_page=(Nest(("latent", "rope", "exponent"), bytes=37_695),), per_token=(
    Nest(("latent", "rope"), bytes=576, loops=WINDOW_EACH_2_LAYERS, token_step=(576, 576)),
    Nest(("exponent",), prefill=(0, 18_432), decode=(0, 18_432), bytes=7, loops=WINDOW_EACH_2_LAYERS,
         token_step=(8, 8)),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# compressed+indexer: row r = t // 4, with its last token, at r % 64 of block r // 64 on both sides; runs end at
#   multiples of 64.
# window.0, window.1: token t at t % 32 of block t // 32 on both sides, from end - 127 on; runs end at multiples of 32.
GROUP_PAIRS = (GroupPair("compressed+indexer", page_rows=64, rows=4),
               GroupPair("window.0", page_rows=32, needs=Needs(keep=127)),
               GroupPair("window.1", page_rows=32, needs=Needs(keep=127)))

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=2,order=BLHNC", digest="5a35ee4dca55ac7bbbfedebe8c1f1dcf", groups=(
        Group("compressed+indexer", "tokens", tokens=256, kernel=256),
        Group("window.0", "tokens", tokens=32, kernel=32),
        Group("window.1", "tokens", tokens=32, kernel=32),
    ), workers=(Worker(PLANES), Worker(PLANES)), needs=(("window", Needs(keep=127)),))

def decode() -> Side:
    return Side(key="tp=1,order=BLNHC", digest="b4e9c30fa4d3251ae39db12bb4ed83fa", groups=(
        Group("compressed+indexer", "tokens", tokens=256, kernel=256),
        Group("window.0", "tokens", tokens=32, kernel=32),
        Group("window.1", "tokens", tokens=32, kernel=32),
    ), workers=(Worker(PLANES),), needs=(("window", Needs(keep=127)),))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
WINDOW_VIEWS = (
    View("latent", "fp8", axes=(("layer", 2, 19_008), ("token", 32, 576), ("dim", 448, 1))),
    View("rope", "bf16", offset=448, axes=(("layer", 2, 19_008), ("token", 32, 576), ("turn", 64, 2))),
    View("exponent", "u8", offset=18_432, axes=(("layer", 2, 19_008), ("token", 32, 8), ("tile", 7, 1))),
)
PLANES = (
    Planes("compressed", "compressed+indexer", page_bytes=74_880, stride=92_160, layers=(1, 3), views=(
        View("latent", "fp8", axes=(("layer", 2, 37_440), ("token", 64, 576), ("dim", 448, 1))),
        View("rope", "bf16", offset=448, axes=(("layer", 2, 37_440), ("token", 64, 576), ("turn", 64, 2))),
        View("exponent", "u8", offset=36_864, axes=(("layer", 2, 37_440), ("token", 64, 8), ("tile", 7, 1))),
    )),
    Planes("indexer", "compressed+indexer", first=1, page_bytes=17_280, stride=92_160, layers=(1, 3), views=(
        View("k", "fp8", axes=(("layer", 2, 8640), ("token", 64, 128), ("dim", 128, 1))),
        View("scale", "f32", offset=8192, axes=(("layer", 2, 8640), ("token", 64, 4), ("tile", 1, 4))),
    )),
    Planes("window", "window.0", first=2, page_bytes=38_016, stride=92_160, layers=(0, 2), views=WINDOW_VIEWS),
    Planes("window", "window.1", first=3, page_bytes=38_016, stride=92_160, layers=(1, 3), views=WINDOW_VIEWS),
)

PLAN = Plan(format=3, title="Windows of latents beside compressed ones", model="latents",
            model_digest="14a14c9dd03de5df7c0ba16dfd1f2d43", digest="af22221c1ec3246b6143d90ed1912be8",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads(), notify=NOTIFY)
