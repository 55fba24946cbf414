"""Qwen3 0.6B: prefill tp=1,block=48 -> decode tp=2,order=LBNHC,block=32.

Emitted by kvplan from qwen3-0.6b, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile qwen3-0.6b --prefill tp=1,block=48 --decode tp=2,order=LBNHC,block=32

A page of cache attention on worker 0:
    prefill  | head 0| head 1| head 2| head 3| head 4| head 5| head 6| head 7|     196,608 B
             48 tokens; a KV cache tensor for each of 28 layers
             8 heads, 24,576 B each: [48 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | 0 | 1 | 2 | … | 31|                                                  65,536 B, by token
             32 tokens; a KV cache tensor for each of 28 layers
             32 tokens, 2,048 B each: [4 heads, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-1, attention: 58,720,256 B in 114,688 descriptors; 1 read, 112 spans of all layers for each of
        1,024 tokens

Layers: 28 (all store attention).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written.
Both sides: the page layout of cache attention comes from vllm's engine file; not yet verified on a running engine:
    the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 28
    layers x 4,096 B per token, coordinates (layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, groups="attention", layers=tuple(range(28)), holds=(("head", (0, 4)),), table=ATTENTION),),
        # decode worker 1
        (Read(worker=0, groups="attention", layers=tuple(range(28)), holds=(("head", (4, 8)),), table=ATTENTION,
              offset=(98_304, 0)),),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side.
EACH_28_LAYERS_4_HEADS = (Loop("layer", count=28, prefill=(1, 0), decode=(1, 0)),
                          Loop("head", count=4, prefill=(0, 24_576), decode=(0, 512)))
ATTENTION = Table(per_token=(Nest(("k", "v"), bytes=512, loops=EACH_28_LAYERS_4_HEADS, token_step=(512, 2048)),))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 48 of block t // 48 of prefill, at t % 32 of block t // 32 of decode; runs end at multiples
#   of 32 and 48.
GROUP_PAIRS = (GroupPair("attention"),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(
        key="tp=1,block=48", digest="da637c01f7afcebd587219732907db94",
        groups=(Group("attention", "tokens", tokens=48, kernel=48),),
        workers=(Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 8)),)),),
    )

def decode() -> Side:
    return Side(key="tp=2,order=LBNHC,block=32", digest="e292114d44a5f8fb7ff7c4961ed17a4f", groups=(
        Group("attention", "tokens", tokens=32, kernel=32),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)),)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_PLANES = (Planes("attention", loops=(("layer", tuple(range(28)), 1),), page_bytes=196_608, views=(
    View("k", "bf16", axes=(("head", 8, 24_576), ("token", 48, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 8, 24_576), ("token", 48, 512), ("dim", 128, 2))),
)),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(28)), 1),), page_bytes=65_536, views=(
    View("k", "bf16", axes=(("token", 32, 2048), ("head", 4, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("token", 32, 2048), ("head", 4, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=3, title="Qwen3 0.6B", model="qwen3-0.6b", model_digest="5ac84bb37b24ca19745e7602e6ae42a2",
            digest="318e2d4aa498ca478b57d650e5e8d093", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
