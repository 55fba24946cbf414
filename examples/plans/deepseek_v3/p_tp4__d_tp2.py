"""DeepSeek-V3: prefill tp=4,kv_dtype=fp8_ds_mla -> decode tp=2,kv_dtype=fp8_ds_mla.

Emitted by kvplan from deepseek-v3, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile deepseek-v3 --prefill tp=4,kv_dtype=fp8_ds_mla --decode tp=2,kv_dtype=fp8_ds_mla

A page of cache attention on worker 0:
    both     |  token 0  |  token 1   |  token 2   |     …      |  token 15  |      10,496 B
             16 tokens; a KV cache tensor for each of 61 layers
             16 tokens, 656 B each: latent 512 B (512 dim x fp8) | scale 16 B (4 tile x f32) | rope 128 B (64 turn x
               bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 40,976,384 B in 3,904 descriptors; 1 read, 61 spans of all layers for each of 64
        blocks

Layers: 61 (all store attention).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
Both sides: draft is stored only when draft_tokens > 0, which is false here.
Both sides: the page layout of cache attention comes from vllm's engine file; not yet verified on a running engine:
    the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 61
    layers x 656 B per token, coordinates (layer, token, dim, tile, turn).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 1
        (Read(worker=2, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
    )

# The prefill workers that each decode worker notifies when it is done, although it reads nothing from them.
NOTIFY = ((1,), (3,))

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(
    per_page=(Nest(("latent", "scale", "rope"), bytes=10_496, loops=EACH_61_LAYERS),),
    per_token=(Nest(("latent", "scale", "rope"), bytes=656, loops=EACH_61_LAYERS, token_step=(656, 656)),),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
GROUP_PAIRS = (GroupPair("attention", page_rows=16),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(
        key="tp=4,kv_dtype=fp8_ds_mla", digest="a0a62516c9160a51f2b06ccd00ec7f84",
        groups=(Group("attention", "tokens", tokens=16, kernel=16),),
        workers=(Worker(PLANES), Worker(PLANES), Worker(PLANES), Worker(PLANES)),
    )

def decode() -> Side:
    return Side(
        key="tp=2,kv_dtype=fp8_ds_mla", digest="0b10856bc37faf4459ff49e0d65ae798",
        groups=(Group("attention", "tokens", tokens=16, kernel=16),),
        workers=(Worker(PLANES), Worker(PLANES)),
    )

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page_bytes=10_496, views=(
    View("latent", "fp8", axes=(("token", 16, 656), ("dim", 512, 1))),
    View("scale", "f32", offset=512, axes=(("token", 16, 656), ("tile", 4, 4))),
    View("rope", "bf16", offset=528, axes=(("token", 16, 656), ("turn", 64, 2))),
)),)

PLAN = Plan(format=3, title="DeepSeek-V3", model="deepseek-v3", model_digest="743ab81399753bd989a6fcfd4dda796a",
            digest="a8239e1f12920016f2243fc30c801256", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads(), notify=NOTIFY)
