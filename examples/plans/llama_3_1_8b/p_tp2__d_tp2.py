"""Llama 3.1 8B: prefill tp=2,block=32 -> decode tp=2.

Emitted by kvplan from llama-3.1-8b, do not edit:
    kvplan compile llama-3.1-8b --prefill tp=2,block=32 --decode tp=2

attention, a page of the first worker that has one:
    prefill  |     head 0    |     head 1    |     head 2    |     head 3    |      65,536 B
             32 tokens; a plane for each of 32 layers
             4 heads, 16,384 B each: [32 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]
    decode   | head 0| head 1| head 2| head 3|                                      32,768 B
             16 tokens; a plane for each of 32 layers
             4 heads, 8,192 B each: [16 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

What moves of 1,024 tokens, per decode worker; requests where no two logical blocks are neighbours:
    decode workers 0-1, attention: 1 read, 128 spans a run of tokens; 8,192 requests and 67,108,864 B

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted. Exactly
the tokens asked for are written, of those the needed ones; a state is written whole.
Both sides: not probed on vllm, whose file alone says how a page is filled: attention.
Proved for every decode worker, each byte written once. attention: 32 layers x 4,096 B a token, each from its own
(layer, head, token, dim).
"""

# fmt: off
from kvplan.plan.types import Group, Loop, Nest, Pair, Plan, Planes, Read, Side, Table, View, Worker


# Who reads what: of every decode worker, from which prefill worker, which layers and which intervals of split axes. A
# table counts planes from `first` and bytes of a page from `offset`, (those of prefill, those of decode).
def reads() -> tuple[tuple[Read, ...], ...]:
    return (
        # decode worker 0
        (Read(worker=0, pair="attention", layers=tuple(range(32)), holds=(("head", (0, 4)),), table=ATTENTION),),
        # decode worker 1
        (Read(worker=1, pair="attention", layers=tuple(range(32)), holds=(("head", (4, 8)),), table=ATTENTION),),
    )

# What is read for one block (`page`), or for one token of a run (`token`): spans of `bytes` bytes at (plane, byte of
# its page) of either side, (0, 0) where it is left out, repeated by loops with steps of (planes, bytes).
EACH_32_LAYERS_4_HEADS = (Loop("layer", count=32, prefill=(1, 0), decode=(1, 0)),
                          Loop("head", count=4, prefill=(0, 16_384), decode=(0, 8192)))
ATTENTION = Table(token=(Nest(("k", "v"), bytes=512, loops=EACH_32_LAYERS_4_HEADS, token=(512, 512)),))

# Which blocks of a request meet; `page` is the rows of a page that both sides have.
# attention: token t at t % 32 of block t // 32 of prefill, at t % 16 of block t // 16 of decode; runs end at multiples
#   of 16.
PAIRS = (Pair("attention"),)

# Where each side keeps it: groups of layers with one block table, and workers with the intervals that they hold.
def prefill() -> Side:
    return Side(key="tp=2,block=32", digest="6f1bf84cdffd39daf27356046ef06730", groups=(
        Group("attention", "tokens", tokens=32, kernel=32),
    ), workers=(
        Worker(PREFILL_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(PREFILL_PLANES, holds=(("attention", "head", (4, 8)),)),
    ))

def decode() -> Side:
    return Side(key="tp=2", digest="d496b9f4676a5dfa34130acba521eadd", groups=(
        Group("attention", "tokens", tokens=16, kernel=16),
    ), workers=(
        Worker(DECODE_PLANES, holds=(("attention", "head", (0, 4)),)),
        Worker(DECODE_PLANES, holds=(("attention", "head", (4, 8)),)),
    ))

# What a page holds, axes as (name, count, bytes per step); a worker has a plane for every index of the loops, which are
# (axis, global indices, planes per step), with pages `stride` bytes apart.
PREFILL_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page=65_536, views=(
    View("k", "bf16", axes=(("head", 4, 16_384), ("token", 32, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 4, 16_384), ("token", 32, 512), ("dim", 128, 2))),
)),)
DECODE_PLANES = (Planes("attention", loops=(("layer", tuple(range(32)), 1),), page=32_768, views=(
    View("k", "bf16", axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
    View("v", "bf16", offset=256, axes=(("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))),
)),)

PLAN = Plan(format=2, title="Llama 3.1 8B", model="llama-3.1-8b", model_digest="e82edc6ce7f867ee14dce2f0a8baed9e",
            digest="e78f4caa9887badeecea590ad97b3dc2", options=(("elect", "one"), ("strategy", "direct")),
            prefill=prefill(), decode=decode(), pairs=PAIRS, reads=reads())
