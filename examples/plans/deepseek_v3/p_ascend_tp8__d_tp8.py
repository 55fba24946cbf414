"""DeepSeek-V3: prefill engine=ascend,tp=8 -> decode tp=8.

Emitted by kvplan from deepseek-v3, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains
it. To make it again, compile its deployment. This compiles the pair alone, to a file named after its sides:
    kvplan compile deepseek-v3 --prefill engine=ascend,tp=8 --decode tp=8 --strategy auto

A page of cache attention on worker 0:
    prefill latent |                             latent                            |     131,072 B
             128 tokens; a KV cache tensor for each of 61 layers
             latent 131,072 B (128 token x 512 dim x bf16)
    prefill rope |  rope |                                                              16,384 B
             128 tokens; a KV cache tensor for each of 61 layers
             rope 16,384 B (128 token x 64 turn x bf16)
    decode   |0|1|2| … |                                                            18,432 B, by token
             16 tokens; a KV cache tensor for each of 61 layers
             16 tokens, 1,152 B each: latent 1,024 B (512 dim x bf16) | rope 128 B (64 turn x bf16)

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode workers 0-7, attention: 71,958,528 B in 124,928 descriptors; 1 read, 122 spans of all layers for each of
        1,024 tokens; with unpack 71,958,528 B in 976 descriptors, predicted to take 25.09 ms instead of 127.27 ms;
        with pack 71,958,528 B in 3,904 descriptors, predicted to take 27.81 ms instead of 127.27 ms

Layers: 61 (all store attention).
Strategy: auto on xeon-2-cores-shared-memory: with `unpack`, ranges of prefill pages are moved whole and decode
    copies them into place; with `pack`, prefill first copies into the order of decode pages; if a table has both,
    pull uses `unpack` and push uses `pack`; all other spans are copied straight to their place. Exactly the tokens
    that decode needs are written.
Both sides: draft is stored only when draft_tokens > 0, which is false here.
Prefill: the page layout of cache attention comes from ascend's engine file; not yet verified on a running engine:
    the --probe of kvplan from-cache verifies it.
Decode: the page layout of cache attention comes from vllm's engine file; not yet verified on a running engine: the
    --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 61
    layers x 1,152 B per token, coordinates (layer, token, dim, turn).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Nest, PageRange, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 1
        (Read(worker=1, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 2
        (Read(worker=2, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 3
        (Read(worker=3, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 4
        (Read(worker=4, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 5
        (Read(worker=5, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 6
        (Read(worker=6, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
        # decode worker 7
        (Read(worker=7, groups="attention", layers=tuple(range(61)), table=ATTENTION),),
    )

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side. A staged read moves ranges of pages
# whole: of prefill pages, from which decode copies (`unpack`), or of decode pages, into which prefill copies (`pack`).
EACH_61_LAYERS = (Loop("layer", count=61, prefill=(1, 0), decode=(1, 0)),)
ATTENTION = Table(per_token=(
    Nest(("latent",), bytes=1024, loops=EACH_61_LAYERS, token_step=(1024, 1152)),
    Nest(("rope",), prefill=(61, 0), decode=(0, 1024), bytes=128, loops=EACH_61_LAYERS, token_step=(128, 1152)),
), unpack=(PageRange(plane=61, bytes=16_384, planes=61), PageRange(bytes=131_072, planes=61)), pack=(
    PageRange(bytes=18_432, planes=61),
))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied.
# attention: token t at t % 128 of block t // 128 of prefill, at t % 16 of block t // 16 of decode; runs end at
#   multiples of 16.
GROUP_PAIRS = (GroupPair("attention"),)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
def prefill() -> Side:
    return Side(key="engine=ascend,tp=8", digest="6f204a18e6e1df6876a44b914e8f9c80", groups=(
        Group("attention", "tokens", tokens=128, kernel=128),
    ), workers=(
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
        Worker(PREFILL_PLANES),
    ))

def decode() -> Side:
    return Side(key="tp=8", digest="d2bc1fdf02d6548e75eb116ebce0d7a8", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
        Worker(DECODE_PLANES),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
# `part`: an allocation of a cache that has several.
PREFILL_PLANES = (
    Planes(
        "attention", part="latent", loops=(("layer", tuple(range(61)), 1),), page_bytes=131_072,
        views=(View("latent", "bf16", axes=(("token", 128, 1024), ("dim", 512, 2))),),
    ),
    Planes(
        "attention", part="rope", first=61, loops=(("layer", tuple(range(61)), 1),), page_bytes=16_384,
        views=(View("rope", "bf16", axes=(("token", 128, 128), ("turn", 64, 2))),),
    ),
)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(61)), 1),), page_bytes=18_432, views=(
    View("latent", "bf16", axes=(("token", 16, 1152), ("dim", 512, 2))),
    View("rope", "bf16", offset=1024, axes=(("token", 16, 1152), ("turn", 64, 2))),
)),)

PLAN = Plan(format=3, title="DeepSeek-V3", model="deepseek-v3", model_digest="274f4f09cbd5aa1458294b67f412a7fc",
            digest="7408b323944c4b4539d34c76f6d0744b", options=(("elect", "one"), ("strategy", "auto")),
            prefill=prefill(), decode=decode(), group_pairs=GROUP_PAIRS, reads=reads())
