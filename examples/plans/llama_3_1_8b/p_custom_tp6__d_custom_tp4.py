r"""Llama 3.1 8B: prefill engine=custom,tp=6 -> decode engine=custom,tp=4,order=shuffled,copies=round_robin.

Emitted by kvplan from llama-3.1-8b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile llama-3.1-8b \
        --prefill engine=custom,tp=6 \
        --decode engine=custom,tp=4,order=shuffled,copies=round_robin

A page of cache attention on worker 0:
    prefill  |  0  |  1  |  2  |  …  |  15 |
             8,192 B, by token; 16,384 B on other workers
             16 tokens; a KV cache tensor for each of 32 layers
             1 head, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   |               k               |               v               |      16,384 B
             16 tokens; a KV cache tensor for each of 32 layers
             k 8,192 B (2 head x 16 dim/8 x 16 token x 8 dim x bf16)
             v 8,192 B (2 head x 2 token/8 x 128 dim x 8 token x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0, 2, attention: 33,554,432 B in 9,437,184 descriptors; 2 reads, together 147,456 spans of all
        layers for each of 64 blocks
    decode workers 1, 3, attention: 33,554,432 B in 9,437,184 descriptors; 1 read, 147,456 spans of all layers for
        each of 64 blocks

Layers: 32 (all store attention).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
Both sides: the page layout of cache attention comes from custom's engine file; not yet verified on a running
    engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 32
    layers x 4,096 B per token, coordinates (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=tuple(range(32)), holds=(("head", (0, 1)),),
                 table=ATTENTION_1_HEAD),
            Read(worker=1, groups="attention", layers=tuple(range(32)), holds=(("head", (1, 2)),),
                 table=ATTENTION_1_HEAD, offset=(0, 4096)),
        ),
        # decode worker 1
        (Read(worker=2, groups="attention", layers=tuple(range(32)), holds=(("head", (2, 4)),),
              table=ATTENTION_2_HEADS),),
        (  # decode worker 2
            Read(worker=3, groups="attention", layers=tuple(range(32)), holds=(("head", (4, 5)),),
                 table=ATTENTION_1_HEAD),
            Read(worker=4, groups="attention", layers=tuple(range(32)), holds=(("head", (5, 6)),),
                 table=ATTENTION_1_HEAD, offset=(0, 4096)),
        ),
        # decode worker 3
        (Read(worker=5, groups="attention", layers=tuple(range(32)), holds=(("head", (6, 8)),),
              table=ATTENTION_2_HEADS),),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side. Hops, for tokens in tiles, are
# (rows, prefill bytes, decode bytes): after so many rows, so many bytes further.
EACH_32_LAYERS_16_DIMS_16_TOKENS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                                    Loop("dim", count=16, prefill=(0, 16), decode=(0, 256)),
                                    Loop("token", count=16, prefill=(0, 512), decode=(0, 16)))
EACH_32_LAYERS_2_TOKENS_128_DIMS_8_TOKENS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                                             Loop("token", count=2, prefill=(0, 4096), decode=(0, 2048)),
                                             Loop("dim", count=128, prefill=(0, 2), decode=(0, 16)),
                                             Loop("token", count=8, prefill=(0, 512), decode=(0, 2)))
EACH_32_LAYERS_16_DIMS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                          Loop("dim", count=16, prefill=(0, 16), decode=(0, 256)))
EACH_32_LAYERS_128_DIMS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                           Loop("dim", count=128, prefill=(0, 2), decode=(0, 16)))
EACH_32_LAYERS_2_HEADS_16_DIMS_16_TOKENS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                                            Loop("head", count=2, prefill=(0, 8192), decode=(0, 4096)),
                                            Loop("dim", count=16, prefill=(0, 16), decode=(0, 256)),
                                            Loop("token", count=16, prefill=(0, 512), decode=(0, 16)))
EACH_32_LAYERS_2_HEADS_2_TOKENS_128_DIMS_8_TOKENS = (
    Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
    Loop("head", count=2, prefill=(0, 8192), decode=(0, 4096)),
    Loop("token", count=2, prefill=(0, 4096), decode=(0, 2048)),
    Loop("dim", count=128, prefill=(0, 2), decode=(0, 16)),
    Loop("token", count=8, prefill=(0, 512), decode=(0, 2)),
)
EACH_32_LAYERS_2_HEADS_16_DIMS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                                  Loop("head", count=2, prefill=(0, 8192), decode=(0, 4096)),
                                  Loop("dim", count=16, prefill=(0, 16), decode=(0, 256)))
EACH_32_LAYERS_2_HEADS_128_DIMS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                                   Loop("head", count=2, prefill=(0, 8192), decode=(0, 4096)),
                                   Loop("dim", count=128, prefill=(0, 2), decode=(0, 16)))
ATTENTION_1_HEAD = Table(per_page=(
    Nest(("k",), bytes=16, loops=EACH_32_LAYERS_16_DIMS_16_TOKENS),
    Nest(("v",), prefill=(0, 256), decode=(0, 8192), bytes=2, loops=EACH_32_LAYERS_2_TOKENS_128_DIMS_8_TOKENS),
), per_token=(
    Nest(("k",), bytes=16, loops=EACH_32_LAYERS_16_DIMS, token_step=(512, 16)),
    Nest(("v",), prefill=(0, 256), decode=(0, 8192), bytes=2, loops=EACH_32_LAYERS_128_DIMS, token_step=(512, 2),
         hops=((8, 0, 2032),)),
))
ATTENTION_2_HEADS = Table(per_page=(
    Nest(("k",), bytes=16, loops=EACH_32_LAYERS_2_HEADS_16_DIMS_16_TOKENS),
    Nest(("v",), prefill=(0, 256), decode=(0, 8192), bytes=2, loops=EACH_32_LAYERS_2_HEADS_2_TOKENS_128_DIMS_8_TOKENS),
), per_token=(
    Nest(("k",), bytes=16, loops=EACH_32_LAYERS_2_HEADS_16_DIMS, token_step=(512, 16)),
    Nest(("v",), prefill=(0, 256), decode=(0, 8192), bytes=2, loops=EACH_32_LAYERS_2_HEADS_128_DIMS,
         token_step=(512, 2), hops=((8, 0, 2032),)),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
GROUP_PAIRS = (GroupPair("attention", page_rows=16),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="engine=custom,tp=6", digest="10a136c828930c25d0182cc70a4c7aff", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(PREFILL_0_1_3_4_PLANES, holds=(("attention", "head", (0, 1)),)),
        Worker(PREFILL_0_1_3_4_PLANES, holds=(("attention", "head", (1, 2)),)),
        Worker(PREFILL_2_5_PLANES, holds=(("attention", "head", (2, 4)),)),
        Worker(PREFILL_0_1_3_4_PLANES, holds=(("attention", "head", (4, 5)),)),
        Worker(PREFILL_0_1_3_4_PLANES, holds=(("attention", "head", (5, 6)),)),
        Worker(PREFILL_2_5_PLANES, holds=(("attention", "head", (6, 8)),)),
    ))

def decode() -> Side:
    return Side(key="engine=custom,tp=4,order=shuffled,copies=round_robin",
                digest="7c5ebb296af37c0555409dfc4477c7d3", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 2)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (2, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 6)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (6, 8)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_0_1_3_4_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=8192, views=(
    View("k", "bf16", axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 1, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)
PREFILL_2_5_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=16_384, views=(
    View("k", "bf16", axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page_bytes=16_384, views=(
    View("k", "bf16", axes=(("head", 2, 4096), ("dim/8", 16, 256), ("token", 16, 16), ("dim", 8, 2))),
    View("v", "bf16", offset=8192, axes=(("head", 2, 4096), ("token/8", 2, 2048), ("dim", 128, 16), ("token", 8, 2))),
)),)

PLAN = Plan(format=3, title="Llama 3.1 8B", model="llama-3.1-8b", model_digest="e82edc6ce7f867ee14dce2f0a8baed9e",
            digest="261bf324f3e23bcd4fa8fa8fb4091cfb", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
