"""Kimi Linear 48B-A3B: prefill tp=2 -> decode tp=1.

Emitted by kvplan from kimi-linear-48b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile kimi-linear-48b --prefill tp=2 --decode tp=1

A page of cache attention on worker 0:
    prefill  |  0  |  1   |  2   |  …   | 1023 |                                 1,179,648 B, by token
             1,024 tokens; a KV cache tensor for each of 7 layers
             1,024 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      | token 1919 |   2,211,840 B
             1,920 tokens; a KV cache tensor for each of 7 layers
             1,920 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
A page of cache delta on worker 0:
    prefill  |q|k|v|           ssm           |                                   1,085,440 B, blocks 1,179,648 B apart
             one slot; a KV cache tensor for each of 7 layers of delta.0, one of 3 groups of delta
             q 12,288 B (16 key_head x 128 key_dim x 3 tap x bf16)
             k 12,288 B (16 key_head x 128 key_dim x 3 tap x bf16)
             v 12,288 B (16 head x 128 value_dim x 3 tap x bf16)
             ssm 1,048,576 B (16 head x 128 row x 128 value_dim x f32)
    decode   |q|k|v|                           ssm                           |   2,170,880 B, blocks 2,211,840 B apart
             one slot; a KV cache tensor for each of 7 layers of delta.0, one of 3 groups of delta
             q 24,576 B (32 key_head x 128 key_dim x 3 tap x bf16)
             k 24,576 B (32 key_head x 128 key_dim x 3 tap x bf16)
             v 24,576 B (32 head x 128 value_dim x 3 tap x bf16)
             ssm 2,097,152 B (32 head x 128 row x 128 value_dim x f32)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode worker 0, attention: 8,257,536 B in 7 descriptors; 1 read, 7 spans of all layers per run of tokens
    decode worker 0, delta.0, delta.1, each: 15,196,160 B in 56 descriptors, for any number of tokens; 2 reads,
        together 56 spans of all layers per state
    decode worker 0, delta.2: 13,025,280 B in 48 descriptors, for any number of tokens; 2 reads, together 48 spans
        of all layers per state

Layers: 27 (7 store attention, 20 store delta).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written; a state is written whole.
Shared memory: on both sides attention, delta.0, delta.1 and delta.2. A block is of one of these groups at a time.
Both sides: the page layout of caches attention and delta comes from vllm's engine file; not yet verified on a
    running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 7
    layers x 1,152 B per token, coordinates (layer, token, dim, turn); delta: 20 layers x 2,170,880 B per state,
    coordinates (layer, key_head, key_dim, tap, head, value_dim, row).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=LAYERS_OF_ATTENTION, table=ATTENTION),
            Read(worker=0, groups="delta.0", cache="delta", layers=tuple(range(0, 25, 4)),
                 holds=(("head", (0, 16)), ("key_head", (0, 16))), table=DELTA_OF_7_LAYERS_PART_1_OF_2, first=(7, 7)),
            Read(worker=0, groups="delta.1", cache="delta", layers=tuple(range(1, 26, 4)),
                 holds=(("head", (0, 16)), ("key_head", (0, 16))), table=DELTA_OF_7_LAYERS_PART_1_OF_2,
                 first=(14, 14)),
            Read(worker=0, groups="delta.2", cache="delta", layers=tuple(range(2, 23, 4)),
                 holds=(("head", (0, 16)), ("key_head", (0, 16))), table=DELTA_OF_6_LAYERS_PART_1_OF_2,
                 first=(21, 21)),
            Read(worker=1, groups="delta.0", cache="delta", layers=tuple(range(0, 25, 4)),
                 holds=(("head", (16, 32)), ("key_head", (16, 32))), table=DELTA_OF_7_LAYERS_PART_2_OF_2,
                 first=(7, 7)),
            Read(worker=1, groups="delta.1", cache="delta", layers=tuple(range(1, 26, 4)),
                 holds=(("head", (16, 32)), ("key_head", (16, 32))), table=DELTA_OF_7_LAYERS_PART_2_OF_2,
                 first=(14, 14)),
            Read(worker=1, groups="delta.2", cache="delta", layers=tuple(range(2, 23, 4)),
                 holds=(("head", (16, 32)), ("key_head", (16, 32))), table=DELTA_OF_6_LAYERS_PART_2_OF_2,
                 first=(21, 21)),
        ),
    )

# Layers, numbered as in the whole model.
LAYERS_OF_ATTENTION = (3, 7, 11, 15, 19, 23, 26)

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_7_LAYERS = (Loop("layer", count=7, prefill=(1, 0), decode=(1, 0)),)
EACH_6_LAYERS = (Loop("layer", count=6, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(per_token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_7_LAYERS, token_step=(1152, 1152)),))
DELTA_OF_7_LAYERS_PART_1_OF_2 = Table(per_page=(
    Nest(("q",), bytes=12_288, loops=EACH_7_LAYERS),
    Nest(("k",), prefill=(0, 12_288), decode=(0, 24_576), bytes=12_288, loops=EACH_7_LAYERS),
    Nest(("v",), prefill=(0, 24_576), decode=(0, 49_152), bytes=12_288, loops=EACH_7_LAYERS),
    Nest(("ssm",), prefill=(0, 36_864), decode=(0, 73_728), bytes=1_048_576, loops=EACH_7_LAYERS),
))
DELTA_OF_6_LAYERS_PART_1_OF_2 = Table(per_page=(
    Nest(("q",), bytes=12_288, loops=EACH_6_LAYERS),
    Nest(("k",), prefill=(0, 12_288), decode=(0, 24_576), bytes=12_288, loops=EACH_6_LAYERS),
    Nest(("v",), prefill=(0, 24_576), decode=(0, 49_152), bytes=12_288, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 36_864), decode=(0, 73_728), bytes=1_048_576, loops=EACH_6_LAYERS),
))
DELTA_OF_7_LAYERS_PART_2_OF_2 = Table(per_page=(
    Nest(("q",), decode=(0, 12_288), bytes=12_288, loops=EACH_7_LAYERS),
    Nest(("k",), prefill=(0, 12_288), decode=(0, 36_864), bytes=12_288, loops=EACH_7_LAYERS),
    Nest(("v",), prefill=(0, 24_576), decode=(0, 61_440), bytes=12_288, loops=EACH_7_LAYERS),
    Nest(("ssm",), prefill=(0, 36_864), decode=(0, 1_122_304), bytes=1_048_576, loops=EACH_7_LAYERS),
))
DELTA_OF_6_LAYERS_PART_2_OF_2 = Table(per_page=(
    Nest(("q",), decode=(0, 12_288), bytes=12_288, loops=EACH_6_LAYERS),
    Nest(("k",), prefill=(0, 12_288), decode=(0, 36_864), bytes=12_288, loops=EACH_6_LAYERS),
    Nest(("v",), prefill=(0, 24_576), decode=(0, 61_440), bytes=12_288, loops=EACH_6_LAYERS),
    Nest(("ssm",), prefill=(0, 36_864), decode=(0, 1_122_304), bytes=1_048_576, loops=EACH_6_LAYERS),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention: token t at t % 1024 of block t // 1024 of prefill, at t % 1920 of block t // 1920 of decode; runs end at
#   multiples of 1024 and 1920.
# delta.0, delta.1, delta.2: the slot of a state on both sides.
GROUP_PAIRS = (*(GroupPair(name) for name in ("attention", "delta.0", "delta.1", "delta.2")),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=2", digest="f385a998ffa056a529dad59ef6d8dffc", groups=(
        Group("attention", "tokens", tokens=1024, kernel=1024),
        *(Group(name, "state") for name in ("delta.0", "delta.1", "delta.2")),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("delta", "head", (0, 16)), ("delta", "key_head", (0, 16)))),
        Worker(PREFILL_PLANES, holds=(("delta", "head", (16, 32)), ("delta", "key_head", (16, 32)))),
    ))

def decode() -> Side:
    return Side(key="tp=1", digest="51bd4b9bed989880b892bf217ca2cdc6", groups=(
        Group("attention", "tokens", tokens=1920, kernel=1920),
        *(Group(name, "state") for name in ("delta.0", "delta.1", "delta.2")),
    ), workers=(Worker(DECODE_PLANES, holds=(("delta", "head", (0, 32)), ("delta", "key_head", (0, 32)))),))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_DELTA_VIEWS = (
    View("q", "bf16", axes=(("key_head", 16, 768), ("key_dim", 128, 6), ("tap", 3, 2))),
    View("k", "bf16", offset=12_288, axes=(("key_head", 16, 768), ("key_dim", 128, 6), ("tap", 3, 2))),
    View("v", "bf16", offset=24_576, axes=(("head", 16, 768), ("value_dim", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", offset=36_864, axes=(("head", 16, 65_536), ("row", 128, 512), ("value_dim", 128, 4))),
)
DECODE_DELTA_VIEWS = (
    View("q", "bf16", axes=(("key_head", 32, 768), ("key_dim", 128, 6), ("tap", 3, 2))),
    View("k", "bf16", offset=24_576, axes=(("key_head", 32, 768), ("key_dim", 128, 6), ("tap", 3, 2))),
    View("v", "bf16", offset=49_152, axes=(("head", 32, 768), ("value_dim", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", offset=73_728, axes=(("head", 32, 65_536), ("row", 128, 512), ("value_dim", 128, 4))),
)
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=1_179_648, views=(
        View("latent", "bf16", axes=(("token", 1024, 1152), ("dim", 512, 2))),
        View("rope", "bf16", offset=1024, axes=(("token", 1024, 1152), ("turn", 64, 2))),
    )),
    Planes("delta", "delta.0", first=7, loops=(("layer", tuple(range(0, 25, 4)), 1),), page_bytes=1_085_440,
           stride=1_179_648, views=PREFILL_DELTA_VIEWS),
    Planes("delta", "delta.1", first=14, loops=(("layer", tuple(range(1, 26, 4)), 1),), page_bytes=1_085_440,
           stride=1_179_648, views=PREFILL_DELTA_VIEWS),
    Planes("delta", "delta.2", first=21, loops=(("layer", tuple(range(2, 23, 4)), 1),), page_bytes=1_085_440,
           stride=1_179_648, views=PREFILL_DELTA_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", loops=(("layer", LAYERS_OF_ATTENTION, 1),), page_bytes=2_211_840, views=(
        View("latent", "bf16", axes=(("token", 1920, 1152), ("dim", 512, 2))),
        View("rope", "bf16", offset=1024, axes=(("token", 1920, 1152), ("turn", 64, 2))),
    )),
    Planes("delta", "delta.0", first=7, loops=(("layer", tuple(range(0, 25, 4)), 1),), page_bytes=2_170_880,
           stride=2_211_840, views=DECODE_DELTA_VIEWS),
    Planes("delta", "delta.1", first=14, loops=(("layer", tuple(range(1, 26, 4)), 1),), page_bytes=2_170_880,
           stride=2_211_840, views=DECODE_DELTA_VIEWS),
    Planes("delta", "delta.2", first=21, loops=(("layer", tuple(range(2, 23, 4)), 1),), page_bytes=2_170_880,
           stride=2_211_840, views=DECODE_DELTA_VIEWS),
)

PLAN = Plan(format=3, title="Kimi Linear 48B-A3B", model="kimi-linear-48b",
            model_digest="34b596451cfcf2b3025124bbe93c0b5f", digest="d6c925e7c9c4f633d7d04af86191063b",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
