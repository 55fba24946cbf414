"""DeepSeek-V3: prefill engine=custom,tp=3,dcp=3,interleave=24 -> decode tp=2,block=32.

Emitted by kvplan from deepseek-v3, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile deepseek-v3 --prefill engine=custom,tp=3,dcp=3,interleave=24 --decode tp=2,block=32

A page of cache attention on worker 0:
    prefill  |  0  |  1  |  2  |  …  |  15 |                                        18,432 B, by token
             16 tokens; 3 shards take turns of 24; a KV cache tensor for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)
    decode   |  token 0  |  token 1   |  token 2   |     …      |  token 31  |      36,864 B
             32 tokens; a KV cache tensor for each of 61 layers
             32 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 71,958,528 B in 5,612 descriptors; 3 reads, together 61 spans of all layers for
        each of 92 runs of tokens

Layers: 61 (all store attention).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
Prefill: interleave=24 is given; the engine would derive 16.
Both sides: draft is stored only when draft_tokens > 0, which is false here.
Prefill: the page layout of cache attention comes from custom's engine file; not yet verified on a running engine:
    the --probe of kvplan from-cache verifies it.
Decode: the page layout of cache attention comes from vllm's engine file; not yet verified on a running engine: the
    --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 61
    layers x 1,152 B per token, coordinates (layer, token, dim, turn).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        READS_0_1,  # decode worker 0
        READS_0_1,  # decode worker 1
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(per_token=(Nest(("latent", "rope"), bytes=1152, loops=EACH_61_LAYERS, token_step=(1152, 1152)),))
READS_0_1 = (
    Read(worker=0, groups="attention", layers=tuple(range(61)), table=ATTENTION),
    Read(worker=1, groups="attention", layers=tuple(range(61)), table=ATTENTION),
    Read(worker=2, groups="attention", layers=tuple(range(61)), table=ATTENTION),
)

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t on shard t // 24 % 3 as u = t // 72 * 24 + t % 24, at u % 16 of block u // 16 of prefill, at t % 32
#   of block t // 32 of decode; runs end at multiples of 24 and 32 and where a kernel block of a shard ends.
GROUP_PAIRS = (GroupPair("attention"),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(
        key="engine=custom,tp=3,dcp=3,interleave=24", digest="9819d76a1698866c93d11b9625d4aaf6",
        groups=(Group("attention", "tokens", tokens=16, kernel=16, shards=3, chunk=24),),
        workers=(Worker(PREFILL_PLANES), Worker(PREFILL_PLANES, shard=1), Worker(PREFILL_PLANES, shard=2)),
    )

def decode() -> Side:
    return Side(
        key="tp=2,block=32", digest="ff8594a36e63faf259f5de30ed264592",
        groups=(Group("attention", "tokens", tokens=32, kernel=32),),
        workers=(Worker(DECODE_PLANES), Worker(DECODE_PLANES)),
    )

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page_bytes=18_432, views=(
    View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
)),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page_bytes=36_864, views=(
    View("latent", "bf16", axes=(("token", 32, 1152), ("dim", 512, 2))),
    View("rope", "bf16", offset=1024, axes=(("token", 32, 1152), ("turn", 64, 2))),
)),)

PLAN = Plan(format=3, title="DeepSeek-V3", model="deepseek-v3", model_digest="274f4f09cbd5aa1458294b67f412a7fc",
            digest="2b8be06a1651bebb93846e6a66bcbccf", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
