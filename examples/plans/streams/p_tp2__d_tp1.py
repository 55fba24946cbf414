"""Convolutions on streams: prefill tp=2 -> decode tp=1,order=BLHNC.

Emitted by kvplan from streams, do not edit. https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains it.
To make it again, compile its deployment. In the folder of its layout files, this compiles the pair alone, to a file
named after its sides:
    kvplan compile streams --prefill tp=2 --decode tp=1,order=BLHNC --layouts .

A page of cache attention on worker 0:
    prefill  | head 0| head 1|                                                      16,384 B
             32 tokens; a KV cache tensor for each of 1 layer of attention.0, one of 4 groups of attention
             2 heads, 8,192 B each: [32 tokens, 256 B each: k 128 B (64 dim x bf16) | v 128 B (64 dim x bf16)]
    decode   |    layer 0    |    layer 1    |    layer 2    |    layer 3    |      65,536 B
             16 tokens; one KV cache tensor
             4 layers, 16,384 B each: [4 heads, 4,096 B each: [16 tokens, 256 B each: k 128 B (64 dim x bf16) | v
               128 B (64 dim x bf16)]]
A page of cache conv on worker 0:
    prefill  |                    x                    |                            16,384 B
             16 tokens; a KV cache tensor for each of 1 layer of conv.0, one of 3 groups of conv
             x 16,384 B (2 head x 16 token x 256 dim x bf16)
    decode   |                               x                               |      24,576 B, blocks 65,536 B apart
             4 tokens; one KV cache tensor
             x 24,576 B (3 layer x 4 head x 4 token x 256 dim x bf16)
A page of cache ngrams on worker 0:
    prefill  |                               x                               |       4,608 B, blocks 16,384 B apart
             one slot; a KV cache tensor for each of 1 layer
             x 4,608 B (256 channel x 9 tap x bf16)
    decode   |                               x                               |       4,608 B, blocks 65,536 B apart
             one slot; a KV cache tensor for each of 1 layer

What moves for 1,024 tokens, per decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a
span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks):
    decode worker 0, attention.0>attention, attention.1>attention, attention.2>attention, attention.3>attention,
        each: 1,048,576 B in 256 descriptors; 2 reads, together 4 spans of all layers for each of 64 runs of tokens
    decode worker 0, conv.0>conv, conv.1>conv, conv.2>conv, each: 6,144 B in 4 descriptors; 2 reads, together 4
        spans of all layers per run of tokens
    decode worker 0, ngrams: 4,608 B in 1 descriptor, for any number of tokens; 1 read, 1 span of all layers per
        state

Layers: 4 (all store attention, 3 store conv, 1 stores ngrams).
Strategy: direct, every span is copied straight to its place in the decode pages. Exactly the tokens that decode
    needs are written; a state is written whole.
conv.0>conv, conv.1>conv, conv.2>conv, each: only the last 3 tokens (a window of 4 includes the next token).
Shared memory: prefill's attention.0, attention.1, attention.2, attention.3, conv.0, conv.1, conv.2 and ngrams;
    decode's attention, conv and ngrams. A block is of one of these groups at a time.
Both sides: the page layout of caches attention, conv and ngrams comes from vllm's engine file; not yet verified on
    a running engine: the --probe of kvplan from-cache verifies it.
Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. attention: 4
    layers x 1,024 B per token, coordinates (layer, head, token, dim); conv: 3 layers x 2,048 B per token,
    coordinates (layer, head, token, dim); ngrams: 1 layers x 4,608 B per state, coordinates (layer, channel, tap).
"""

# fmt: off
from kvplan.plan.types import Group, GroupPair, Loop, Needs, Nest, Plan, Planes, Read, Side, Table, View, Worker


# What each decode worker reads: from which prefill workers, which layers, and which intervals of split axes (`holds`).
# `groups` is one of GROUP_PAIRS; `first` and `offset` are added to the table's planes and bytes; each is (prefill,
# decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        (  # decode worker 0
            Read(worker=0, groups="attention.0>attention", cache="attention", layers=(0,), holds=(("head", (0, 2)),),
                 table=ATTENTION),
            Read(worker=0, groups="attention.1>attention", cache="attention", layers=(1,), holds=(("head", (0, 2)),),
                 table=ATTENTION, first=(1, 0), offset=(0, 16_384)),
            Read(worker=0, groups="attention.2>attention", cache="attention", layers=(2,), holds=(("head", (0, 2)),),
                 table=ATTENTION, first=(2, 0), offset=(0, 32_768)),
            Read(worker=0, groups="attention.3>attention", cache="attention", layers=(3,), holds=(("head", (0, 2)),),
                 table=ATTENTION, first=(3, 0), offset=(0, 49_152)),
            Read(worker=1, groups="attention.0>attention", cache="attention", layers=(0,), holds=(("head", (2, 4)),),
                 table=ATTENTION, offset=(0, 8192)),
            Read(worker=1, groups="attention.1>attention", cache="attention", layers=(1,), holds=(("head", (2, 4)),),
                 table=ATTENTION, first=(1, 0), offset=(0, 24_576)),
            Read(worker=1, groups="attention.2>attention", cache="attention", layers=(2,), holds=(("head", (2, 4)),),
                 table=ATTENTION, first=(2, 0), offset=(0, 40_960)),
            Read(worker=1, groups="attention.3>attention", cache="attention", layers=(3,), holds=(("head", (2, 4)),),
                 table=ATTENTION, first=(3, 0), offset=(0, 57_344)),
            Read(worker=0, groups="conv.0>conv", cache="conv", layers=(0,), holds=(("head", (0, 2)),), table=CONV,
                 first=(4, 1)),
            Read(worker=0, groups="conv.1>conv", cache="conv", layers=(1,), holds=(("head", (0, 2)),), table=CONV,
                 first=(5, 1), offset=(0, 8192)),
            Read(worker=0, groups="conv.2>conv", cache="conv", layers=(2,), holds=(("head", (0, 2)),), table=CONV,
                 first=(6, 1), offset=(0, 16_384)),
            Read(worker=1, groups="conv.0>conv", cache="conv", layers=(0,), holds=(("head", (2, 4)),), table=CONV,
                 first=(4, 1), offset=(0, 4096)),
            Read(worker=1, groups="conv.1>conv", cache="conv", layers=(1,), holds=(("head", (2, 4)),), table=CONV,
                 first=(5, 1), offset=(0, 12_288)),
            Read(worker=1, groups="conv.2>conv", cache="conv", layers=(2,), holds=(("head", (2, 4)),), table=CONV,
                 first=(6, 1), offset=(0, 20_480)),
            Read(worker=0, groups="ngrams", layers=(1,), table=NGRAMS, first=(7, 2)),
        ),
    )

# Layers, numbered as in the whole model; for several groups (name, layers, first plane), or (name, layers,
# first planes of prefill and decode) if they differ.
PREFILL_ATTENTION_GROUPS = (
    ("attention.0", (0,), 0),
    ("attention.1", (1,), 1),
    ("attention.2", (2,), 2),
    ("attention.3", (3,), 3),
)
PREFILL_CONV_GROUPS = (("conv.0", (0,), 4), ("conv.1", (1,), 5), ("conv.2", (2,), 6))

# What a read copies for one block (`per_page` of a Table), or for each token of a run (`per_token`). A Nest is a span
# of `bytes` bytes at (plane, byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of
# (planes, bytes). `token_step` is the step from one token to the next on each side; if both steps equal `bytes`, all
# tokens of a run are one span.
ATTENTION_EACH_2_HEADS = (Loop("head", count=2, prefill=(0, 8192), decode=(0, 4096)),)
CONV_EACH_2_HEADS = (Loop("head", count=2, prefill=(0, 8192), decode=(0, 2048)),)
ATTENTION = Table(per_token=(Nest(("k", "v"), bytes=256, loops=ATTENTION_EACH_2_HEADS, token_step=(256, 256)),))
CONV = Table(per_token=(Nest(("x",), bytes=512, loops=CONV_EACH_2_HEADS, token_step=(512, 512)),))
NGRAMS = Table(per_page=(Nest(("x",), bytes=4608),))

# Which group of prefill goes with which of decode. `page_rows`: rows of tokens in a page, if both sides have the same;
# without it, runs of tokens are copied. A state is copied whole.
# attention.0>attention, attention.1>attention, attention.2>attention, attention.3>attention: token t at t % 32 of block
#   t // 32 of prefill, at t % 16 of block t // 16 of decode; runs end at multiples of 16.
# conv.0>conv, conv.1>conv, conv.2>conv: token t at t % 16 of block t // 16 of prefill, at t % 4 of block t // 4 of
#   decode, from end - 3 on; runs end at multiples of 4.
# ngrams: the slot of a state on both sides.
GROUP_PAIRS = (
    GroupPair("attention.0>attention", prefill="attention.0", decode="attention"),
    GroupPair("attention.1>attention", prefill="attention.1", decode="attention"),
    GroupPair("attention.2>attention", prefill="attention.2", decode="attention"),
    GroupPair("attention.3>attention", prefill="attention.3", decode="attention"),
    GroupPair("conv.0>conv", prefill="conv.0", decode="conv", needs=Needs(keep=3)),
    GroupPair("conv.1>conv", prefill="conv.1", decode="conv", needs=Needs(keep=3)),
    GroupPair("conv.2>conv", prefill="conv.2", decode="conv", needs=Needs(keep=3)),
    GroupPair("ngrams"),
)

# What each side holds: groups of layers that share a block table, and workers with their intervals of split axes
# (`holds`). A Group stores "tokens", or a "state". `tokens`: tokens in a scheduler's block. `kernel`: tokens in a
# kernel block; a page holds one.
# Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time.
def prefill() -> Side:
    return Side(key="tp=2", digest="a98cf876991bb78b36a5146fc206cdae", groups=(
        *(Group(name, "tokens", tokens=32, kernel=32)
          for name in ("attention.0", "attention.1", "attention.2", "attention.3")),
        *(Group(name, "tokens", tokens=16, kernel=16) for name in ("conv.0", "conv.1", "conv.2")),
        Group("ngrams", "state"),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 2)), ("conv", "head", (0, 2)))),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (2, 4)), ("conv", "head", (2, 4)))),
    ), needs=(("conv", Needs(keep=3)),))

def decode() -> Side:
    return Side(key="tp=1,order=BLHNC", digest="b1d6b44e98ba0aab28d71ad3c12906e6", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
        Group("conv", "tokens", tokens=4, kernel=4),
        Group("ngrams", "state"),
    ), workers=(Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)), ("conv", "head", (0, 4)))),), needs=(
        ("conv", Needs(keep=3)),
    ))

# What a page holds, with axes as (name, count, bytes per step). A plane is a KV cache tensor of a worker, one for each
# index of the loops, which are (axis, global indices, planes per step). A page has `page_bytes`; pages
# are `stride` bytes apart, without it next to each other. `kvplan explain WORD` explains the name of an axis.
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", axes=(("head", 2, 8192), ("token", 32, 256), ("dim", 64, 2))),
    View("v", "bf16", offset=128, axes=(("head", 2, 8192), ("token", 32, 256), ("dim", 64, 2))),
)
PREFILL_CONV_VIEWS = (View("x", "bf16", axes=(("head", 2, 8192), ("token", 16, 512), ("dim", 256, 2))),)
NGRAMS_VIEWS = (View("x", "bf16", axes=(("channel", 256, 18), ("tap", 9, 2))),)
PREFILL_PLANES = (
    *(Planes("attention", name, first=plane, loops=(("layer", layers, 1),), page_bytes=16_384,
             views=PREFILL_ATTENTION_VIEWS) for name, layers, plane in PREFILL_ATTENTION_GROUPS),
    *(Planes("conv", name, first=plane, loops=(("layer", layers, 1),), page_bytes=16_384, views=PREFILL_CONV_VIEWS)
      for name, layers, plane in PREFILL_CONV_GROUPS),
    Planes("ngrams", first=7, loops=(("layer", (1,), 1),), page_bytes=4608, stride=16_384, views=NGRAMS_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", page_bytes=65_536, layers=tuple(range(4)), views=(
        View("k", "bf16", axes=(("layer", 4, 16_384), ("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
        View("v", "bf16", offset=128,
             axes=(("layer", 4, 16_384), ("head", 4, 4096), ("token", 16, 256), ("dim", 64, 2))),
    )),
    Planes(
        "conv", first=1, page_bytes=24_576, stride=65_536, layers=(0, 1, 2),
        views=(View("x", "bf16", axes=(("layer", 3, 8192), ("head", 4, 2048), ("token", 4, 512), ("dim", 256, 2))),),
    ),
    Planes("ngrams", first=2, loops=(("layer", (1,), 1),), page_bytes=4608, stride=65_536, views=NGRAMS_VIEWS),
)

PLAN = Plan(format=3, title="Convolutions on streams", model="streams",
            model_digest="22661feb1ea06e61c78db301cdf25f57", digest="0150922931f1409875825d6bfa2c8e07",
            options=(("elect", "one"), ("strategy", "direct")), prefill=prefill(), decode=decode(),
            group_pairs=GROUP_PAIRS, reads=reads())
