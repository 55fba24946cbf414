"""Rings beside full attention: prefill engine=custom,tp=2 -> decode engine=custom,tp=1,order=BLHNC,draft_tokens=3.

Emitted by kvplan from rings, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains it. To
make it again, compile its deployment. In the folder of its layout files, this compiles the pair alone, to a file
named after its sides:
    kvplan compile rings --prefill engine=custom,tp=2 --decode engine=custom,tp=1,order=BLHNC,draft_tokens=3 --layouts .

A page of cache attention on worker 0:
    prefill  | 0 | 1 | 2 | 3 |                                                      16,384 B, by head
             16 tokens; a KV cache tensor for each of 2 layers
             4 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v 128 B (64 dim x bf16)]
    decode   |            layer 0            |            layer 2            |      65,536 B
             16 tokens; one KV cache tensor
             2 layers, 32,768 B each: [8 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v
               128 B (64 dim x bf16)]]
A page of cache keys on worker 0:
    prefill  |       k       |                                                         512 B
             4 tokens; a ring of 4 tokens; a KV cache tensor for each of 2 layers
             k 512 B (4 token x 64 dim x bf16)
    decode   |                               k                               |       2,048 B
             8 tokens; a ring of 8 tokens; one KV cache tensor
             k 2,048 B (2 layer x 8 token x 64 dim x bf16)
A page of cache scores on worker 0:
    prefill  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |                                       4,096 B, by token
             8 tokens; a ring of 8 tokens; a KV cache tensor for each of 2 layers
             8 tokens, 512 B each: kv 256 B (64 dim x f32) | score 256 B (64 dim x f32)
    decode   |            layer 1            |            layer 3            |       8,192 B
             8 tokens; a ring of 8 tokens; one KV cache tensor
             2 layers, 4,096 B each: [8 tokens, 512 B each: kv 256 B (64 dim x f32) | score 256 B (64 dim x f32)]
A page of cache tail on worker 0:
    prefill  |   k   |  gate |                                                       1,024 B
             4 tokens; a ring of 4 tokens; a KV cache tensor for each of 2 layers
             k 512 B (4 token x 64 dim x bf16)
             gate 512 B (4 token x 64 dim x bf16)
    decode   |            layer 1            |            layer 3            |       4,096 B
             8 tokens; a ring of 8 tokens; one KV cache tensor
             2 layers, 2,048 B each: k 1,024 B (8 token x 64 dim x bf16) | gate 1,024 B (8 token x 64 dim x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode worker 0, attention: 4,194,304 B in 256 descriptors; 2 reads, together 4 spans of all layers for each of
        64 blocks
    decode worker 0, keys: 0 B in 0 descriptors; 1 read, 2 spans of all layers per run of tokens
    decode worker 0, scores: 0 B in 0 descriptors; 1 read, 2 spans of all layers per block
    decode worker 0, tail: 0 B in 0 descriptors; 1 read, 4 spans of all layers per run of tokens

Layers: 4 (2 store attention, 2 store keys, 2 store scores, 2 store tail).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written, or a whole last page where a request allows it.
keys, tail, each: only those from the last multiple of 4 on.
scores: only those from the last multiple of 2 on.
Both sides: the page layout of caches attention, keys, scores and tail comes from custom's engine file; not yet
    verified on a running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 2
    layers x 2,048 B per token, coordinates (layer, head, token, dim); keys: 2 layers x 128 B per token, coordinates
    (layer, token, dim); scores: 2 layers x 512 B per token, coordinates (layer, token, dim); tail: 2 layers x 256 B
    per token, coordinates (layer, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Needs, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention", layers=(0, 2), holds=(("head", (0, 4)),), table=ATTENTION),
            Read(worker=1, groups="attention", layers=(0, 2), holds=(("head", (4, 8)),), table=ATTENTION,
                 offset=(0, 16_384)),
            Read(worker=0, groups="keys", layers=(1, 3), table=KEYS, first=(2, 1)),
            Read(worker=0, groups="scores", layers=(1, 3), table=SCORES, first=(4, 2)),
            Read(worker=0, groups="tail", layers=(1, 3), table=TAIL, first=(6, 3)),
        ),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
ATTENTION_EACH_2_LAYERS = (Loop("layer", count=2, prefill=(1, 0), decode=(0, 32_768)),)
EACH_2_LAYERS_4_HEADS = (Loop("layer", count=2, prefill=(1, 0), decode=(0, 32_768)),
                         Loop("head", count=4, prefill=(0, 4096), decode=(0, 4096)))
KEYS_EACH_2_LAYERS = (Loop("layer", count=2, prefill=(1, 0), decode=(0, 1024)),)
SCORES_EACH_2_LAYERS = (Loop("layer", count=2, prefill=(1, 0), decode=(0, 4096)),)
TAIL_EACH_2_LAYERS = (Loop("layer", count=2, prefill=(1, 0), decode=(0, 2048)),)
ATTENTION = Table(
    per_page=(Nest(("k", "v"), bytes=16_384, loops=ATTENTION_EACH_2_LAYERS),),
    per_token=(Nest(("k", "v"), bytes=256, loops=EACH_2_LAYERS_4_HEADS, token_step=(256, 256)),),
)
KEYS = Table(per_token=(Nest(("k",), bytes=128, loops=KEYS_EACH_2_LAYERS, token_step=(128, 128)),))
SCORES = Table(
    per_page=(Nest(("kv", "score"), bytes=4096, loops=SCORES_EACH_2_LAYERS),),
    per_token=(Nest(("kv", "score"), bytes=512, loops=SCORES_EACH_2_LAYERS, token_step=(512, 512)),),
)
TAIL = Table(per_token=(
    Nest(("k",), bytes=128, loops=TAIL_EACH_2_LAYERS, token_step=(128, 128)),
    Nest(("gate",), prefill=(0, 512), decode=(0, 1024), bytes=128, loops=TAIL_EACH_2_LAYERS, token_step=(128, 128)),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16.
# keys, tail: token t at t % 4 of the ring's block of prefill, at t % 8 of the ring's block of decode, from end // 4 * 4
#   on; runs end at multiples of 4.
# scores: token t at t % 8 of the ring's block on both sides, from end // 2 * 2 on; runs end at multiples of 8.
GROUP_PAIRS = (GroupPair("attention", page_rows=16),
               GroupPair("keys", needs=Needs(chunk=4)),
               GroupPair("scores", page_rows=8, needs=Needs(chunk=2)),
               GroupPair("tail", needs=Needs(chunk=4)))

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="engine=custom,tp=2", digest="4993110b0d747d535f73e3908f13a956", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("keys", "tokens", tokens=4, kernel=4, arena=1, ring=4),
        Group("scores", "tokens", tokens=8, kernel=8, arena=2, ring=8),
        Group("tail", "tokens", tokens=4, kernel=4, arena=3, ring=4),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 8)),)),
    ), needs=(("keys", Needs(chunk=4)), ("scores", Needs(chunk=2)), ("tail", Needs(chunk=4))))

def decode() -> Side:
    return Side(key="engine=custom,tp=1,order=BLHNC,draft_tokens=3", digest="7114c7dba1afec71522d9be1e0b758b7", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("keys", "tokens", tokens=8, kernel=8, arena=1, ring=8),
        Group("scores", "tokens", tokens=8, kernel=8, arena=2, ring=8),
        Group("tail", "tokens", tokens=8, kernel=8, arena=3, ring=8),
    ), workers=(Worker(DECODE_PLANES, holds=(("attention", "head", (0, 8)),)),), needs=(
        ("keys", Needs(chunk=4)),
        ("scores", Needs(chunk=2)),
        ("tail", Needs(chunk=4)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_PLANES = (
    Planes("attention", loops=(("layer", (0, 2), 1),), page_bytes=16_384, views=(
        View("k", "bf16", axes=(("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
        View("v", "bf16", offset=128, axes=(("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
    )),
    Planes(
        "keys", first=2, loops=(("layer", (1, 3), 1),), page_bytes=512,
        views=(View("k", "bf16", axes=(("token", 4, 128), ("dim", 64, 2))),),
    ),
    Planes("scores", first=4, loops=(("layer", (1, 3), 1),), page_bytes=4096, views=(
        View("kv", "f32", axes=(("token", 8, 512), ("dim", 64, 4))),
        View("score", "f32", offset=256, axes=(("token", 8, 512), ("dim", 64, 4))),
    )),
    Planes("tail", first=6, loops=(("layer", (1, 3), 1),), page_bytes=1024, views=(
        View("k", "bf16", axes=(("token", 4, 128), ("dim", 64, 2))),
        View("gate", "bf16", offset=512, axes=(("token", 4, 128), ("dim", 64, 2))),
    )),
)
DECODE_PLANES = (
    Planes("attention", page_bytes=65_536, layers=(0, 2), views=(
        View("k", "bf16", axes=(("layer", 2, 32_768), ("head", 8, 4096), ("token", 16, 256), ("dim", 64, 2))),
        View("v", "bf16", offset=128,
             axes=(("layer", 2, 32_768), ("head", 8, 4096), ("token", 16, 256), ("dim", 64, 2))),
    )),
    Planes(
        "keys", first=1, page_bytes=2048, layers=(1, 3),
        views=(View("k", "bf16", axes=(("layer", 2, 1024), ("token", 8, 128), ("dim", 64, 2))),),
    ),
    Planes("scores", first=2, page_bytes=8192, layers=(1, 3), views=(
        View("kv", "f32", axes=(("layer", 2, 4096), ("token", 8, 512), ("dim", 64, 4))),
        View("score", "f32", offset=256, axes=(("layer", 2, 4096), ("token", 8, 512), ("dim", 64, 4))),
    )),
    Planes("tail", first=3, page_bytes=4096, layers=(1, 3), views=(
        View("k", "bf16", axes=(("layer", 2, 2048), ("token", 8, 128), ("dim", 64, 2))),
        View("gate", "bf16", offset=1024, axes=(("layer", 2, 2048), ("token", 8, 128), ("dim", 64, 2))),
    )),
)

PLAN = Plan(format=3, title="Rings beside full attention", model="rings",
            model_digest="b0fb19dd573c7ae9ee94b5c2e31fd885", digest="2bb63060af231f71789d6fae93edb2d1",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
