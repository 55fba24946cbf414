"""Qwen3-Next 80B-A3B: prefill tp=2 -> decode tp=1,conv=SD.

Emitted by kvplan from qwen3-next-80b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile qwen3-next-80b --prefill tp=2 --decode tp=1,conv=SD

A page of cache attention on worker 0:
    prefill  |  0  |  1  |  2  |  …  | 543 |                                       557,056 B, by token
             544 tokens; a KV cache tensor for each of 12 layers
             1 head, 557,056 B each: [544 tokens, 1,024 B each: k 512 B (256 dim x bf16) | v 512 B (256 dim x bf16)]
    decode   |             head 0            |             head 1            |   1,114,112 B
             544 tokens; a KV cache tensor for each of 12 layers
             2 heads, 557,056 B each: [544 tokens, 1,024 B each: k 512 B (256 dim x bf16) | v 512 B (256 dim x
               bf16)]
A page of cache delta on worker 0:
    prefill  |q|k|v|           ssm           |                                     548,864 B, blocks 557,056 B apart
             one slot; a KV cache tensor for each of 12 layers of delta.0, one of 3 groups of delta
             q 6,144 B (8 key_head x 128 key_dim x 3 tap x bf16)
             k 6,144 B (8 key_head x 128 key_dim x 3 tap x bf16)
             v 12,288 B (16 head x 128 value_dim x 3 tap x bf16)
             ssm 524,288 B (16 head x 128 value_dim x 128 key_dim x bf16)
    decode   |0|1|2|                           ssm                           |
             1,097,728 B, by tap, blocks 1,114,112 B apart
             one slot; a KV cache tensor for each of 12 layers of delta.0, one of 3 groups of delta
             3 taps, 16,384 B each: q 4,096 B (16 key_head x 128 key_dim x bf16) | k 4,096 B (16 key_head x 128
               key_dim x bf16) | v 8,192 B (32 head x 128 value_dim x bf16)
             ssm 1,048,576 B (32 head x 128 value_dim x 128 key_dim x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode worker 0, attention: 25,165,824 B in 48 descriptors; 2 reads, together 24 spans of all layers for each of
        2 blocks
    decode worker 0, delta.0, delta.1, delta.2, each: 13,172,736 B in 294,936 descriptors, for any number of tokens;
        2 reads, together 294,936 spans of all layers per state

Layers: 48 (12 store attention, 36 store delta).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written; a state is written whole.
Shared memory: on both sides attention, delta.0, delta.1 and delta.2. A block is of one of these groups at a time.
Both sides: draft is stored only when draft_tokens > 0, which is false here.
Both sides: the page layout of caches attention and delta comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 12
    layers x 2,048 B per token, coordinates (layer, head, token, dim); delta: 36 layers x 1,097,728 B per state,
    coordinates (layer, key_head, key_dim, tap, head, value_dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=tuple(range(3, 48, 4)), holds=(("head", (0, 1)),),
                 table=ATTENTION),
            Read(worker=1, groups="attention", layers=tuple(range(3, 48, 4)), holds=(("head", (1, 2)),),
                 table=ATTENTION, offset=(0, 557_056)),
            *(Read(worker=0, groups=name, cache="delta", layers=layers,
                   holds=(("head", (0, 16)), ("key_head", (0, 8))), table=DELTA_PART_1_OF_2, first=(plane, plane))
              for name, layers, plane in DELTA_GROUPS),
            *(Read(worker=1, groups=name, cache="delta", layers=layers,
                   holds=(("head", (16, 32)), ("key_head", (8, 16))), table=DELTA_PART_2_OF_2, first=(plane, plane))
              for name, layers, plane in DELTA_GROUPS),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
DELTA_GROUPS = (
    ("delta.0", (0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44), 12),
    ("delta.1", (1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45), 24),
    ("delta.2", (2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46), 36),
)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_12_LAYERS = (Loop("layer", count=12, prefill=(1, 0), decode=(1, 0)),)
EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KEY_DIMS = (Loop("layer", count=12, prefill=(1, 0), decode=(1, 0)),
                                                  Loop("tap", count=3, prefill=(0, 2), decode=(0, 16_384)),
                                                  Loop("key_head", count=8, prefill=(0, 768), decode=(0, 256)),
                                                  Loop("key_dim", count=128, prefill=(0, 6), decode=(0, 2)))
EACH_12_LAYERS_3_TAPS_16_HEADS_128_VALUE_DIMS = (Loop("layer", count=12, prefill=(1, 0), decode=(1, 0)),
                                                 Loop("tap", count=3, prefill=(0, 2), decode=(0, 16_384)),
                                                 Loop("head", count=16, prefill=(0, 768), decode=(0, 256)),
                                                 Loop("value_dim", count=128, prefill=(0, 6), decode=(0, 2)))
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=557_056, loops=EACH_12_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=1024, loops=EACH_12_LAYERS, token_step=(1024, 1024)),),
)
DELTA_PART_1_OF_2 = Table(per_page=(
    Nest(("q",), bytes=2, loops=EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KEY_DIMS),
    Nest(("k",), prefill=(0, 6144), decode=(0, 4096), bytes=2, loops=EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KEY_DIMS),
    Nest(("v",), prefill=(0, 12_288), decode=(0, 8192), bytes=2, loops=EACH_12_LAYERS_3_TAPS_16_HEADS_128_VALUE_DIMS),
    Nest(("ssm",), prefill=(0, 24_576), decode=(0, 49_152), bytes=524_288, loops=EACH_12_LAYERS),
))
DELTA_PART_2_OF_2 = Table(per_page=(
    Nest(("q",), decode=(0, 2048), bytes=2, loops=EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KEY_DIMS),
    Nest(("k",), prefill=(0, 6144), decode=(0, 6144), bytes=2, loops=EACH_12_LAYERS_3_TAPS_8_KEY_HEADS_128_KEY_DIMS),
    Nest(("v",), prefill=(0, 12_288), decode=(0, 12_288), bytes=2, loops=EACH_12_LAYERS_3_TAPS_16_HEADS_128_VALUE_DIMS),
    Nest(("ssm",), prefill=(0, 24_576), decode=(0, 573_440), bytes=524_288, loops=EACH_12_LAYERS),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 544 of block t // 544 on both sides; runs end at multiples of 544.
# delta.0, delta.1, delta.2: the slot of a state on both sides.
GROUP_PAIRS = (GroupPair("attention", page_rows=544), *(GroupPair(name) for name in ("delta.0", "delta.1", "delta.2")))

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=2", digest="e0b49198c5f7192f435191a276227831", groups=(
        Group("attention", "tokens", tokens=544, kernel=544),
        *(Group(name, "state") for name in ("delta.0", "delta.1", "delta.2")),
    ), workers=(
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (0, 1)), ("delta", "head", (0, 16)), ("delta", "key_head", (0, 8)))),
        Worker(PREFILL_PLANES,
               holds=(("attention", "head", (1, 2)), ("delta", "head", (16, 32)), ("delta", "key_head", (8, 16)))),
    ))

def decode() -> Side:
    return Side(key="tp=1,conv=SD", digest="7eee6d7c2a0756045bc6da05af4db24a", groups=(
        Group("attention", "tokens", tokens=544, kernel=544),
        *(Group(name, "state") for name in ("delta.0", "delta.1", "delta.2")),
    ), workers=(
        Worker(DECODE_PLANES,
               holds=(("attention", "head", (0, 2)), ("delta", "head", (0, 32)), ("delta", "key_head", (0, 16)))),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_DELTA_VIEWS = (
    View("q", "bf16", axes=(("key_head", 8, 768), ("key_dim", 128, 6), ("tap", 3, 2))),
    View("k", "bf16", offset=6144, axes=(("key_head", 8, 768), ("key_dim", 128, 6), ("tap", 3, 2))),
    View("v", "bf16", offset=12_288, axes=(("head", 16, 768), ("value_dim", 128, 6), ("tap", 3, 2))),
    View("ssm", "bf16", offset=24_576, axes=(("head", 16, 32_768), ("value_dim", 128, 256), ("key_dim", 128, 2))),
)
DECODE_DELTA_VIEWS = (
    View("q", "bf16", axes=(("tap", 3, 16_384), ("key_head", 16, 256), ("key_dim", 128, 2))),
    View("k", "bf16", offset=4096, axes=(("tap", 3, 16_384), ("key_head", 16, 256), ("key_dim", 128, 2))),
    View("v", "bf16", offset=8192, axes=(("tap", 3, 16_384), ("head", 32, 256), ("value_dim", 128, 2))),
    View("ssm", "bf16", offset=49_152, axes=(("head", 32, 32_768), ("value_dim", 128, 256), ("key_dim", 128, 2))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(3, 48, 4)), 1),), page_bytes=557_056, views=(
        View("k", "bf16", axes=(("head", 1, 557_056), ("token", 544, 1024), ("dim", 256, 2))),
        View("v", "bf16", offset=512, axes=(("head", 1, 557_056), ("token", 544, 1024), ("dim", 256, 2))),
    )),
    *(Planes("delta", name, first=plane, loops=(("layer", layers, 1),), page_bytes=548_864, stride=557_056,
             views=PREFILL_DELTA_VIEWS) for name, layers, plane in DELTA_GROUPS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", tuple(range(3, 48, 4)), 1),), page_bytes=1_114_112, views=(
        View("k", "bf16", axes=(("head", 2, 557_056), ("token", 544, 1024), ("dim", 256, 2))),
        View("v", "bf16", offset=512, axes=(("head", 2, 557_056), ("token", 544, 1024), ("dim", 256, 2))),
    )),
    *(Planes("delta", name, first=plane, loops=(("layer", layers, 1),), page_bytes=1_097_728, stride=1_114_112,
             views=DECODE_DELTA_VIEWS) for name, layers, plane in DELTA_GROUPS),
)

PLAN = Plan(format=3, title="Qwen3-Next 80B-A3B", model="qwen3-next-80b",
            model_digest="141f97bcca637d0c2c38c59badb55037", digest="90bcab30c53bb2fa87a44496235165af",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
