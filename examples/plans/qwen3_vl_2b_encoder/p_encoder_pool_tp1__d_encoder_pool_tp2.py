"""Items of Qwen3-VL 2B: prefill engine=encoder-pool,tp=1 -> decode engine=encoder-pool,tp=2.

Emitted by kvplan from qwen3-vl-2b-encoder, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md
explains it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its
sides:
    kvplan compile qwen3-vl-2b-encoder --prefill engine=encoder-pool,tp=1 --decode engine=encoder-pool,tp=2

A page of cache items on worker 0:
    both     |                              row                              |   1,048,576 B
             64 tokens; a KV cache tensor for each of 1 layer
             row 1,048,576 B (64 token x 4 level x 2,048 dim x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, items: 16,777,216 B in 16 descriptors; 1 read, 1 span of all layers for each of 16 blocks

Layers: 1 (1 stores items).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
Both sides: the page layout of cache items comes from encoder-pool's engine file; not yet verified on a running
    engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. items: 1
    layers x 16,384 B per token, coordinates (layer, token, level, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, groups="items", layers=(0,), table=ITEMS),),
        # decode worker 1
        (Read(worker=0, groups="items", layers=(0,), table=ITEMS),),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
ITEMS = Table(
    per_page=(Nest(("row",), bytes=1_048_576),),
    per_token=(Nest(("row",), bytes=16_384, token_step=(16_384, 16_384)),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# items: token t at t % 64 of block t // 64 on both sides; runs end at multiples of 64.
GROUP_PAIRS = (GroupPair("items", page_rows=64),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(
        key="engine=encoder-pool,tp=1", digest="8deb2d3f020a9de270a06b2ffdfed28f",
        groups=(Group("items", "tokens", tokens=64, kernel=64),),
        workers=(Worker(PLANES),),
    )

def decode() -> Side:
    return Side(
        key="engine=encoder-pool,tp=2", digest="c1f6e91fce19a08b40d3679e97e91d40",
        groups=(Group("items", "tokens", tokens=64, kernel=64),),
        workers=(Worker(PLANES), Worker(PLANES)),
    )

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PLANES = (Planes(
    "items", loops=(("layer", (0,), 1),), page_bytes=1_048_576,
    views=(View("row", "bf16", axes=(("token", 64, 16_384), ("level", 4, 4096), ("dim", 2048, 2))),),
),)

PLAN = Plan(format=3, title="Items of Qwen3-VL 2B", model="qwen3-vl-2b-encoder",
            model_digest="0afcc33f2cc4b75cecbdf4410776d6d7", digest="f65ec82f706cd639fe160b42c288ef37",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
