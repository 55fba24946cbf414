"""Pairs of real models, checked without kvplan: global tensors are sliced by hand for every worker of both sides.

Every number here – heads, bytes, tokens in a block, strides, who holds what – was written down by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.by_hand.moving import moved, same
from tests.by_hand.slicing import Blocks, Buffers, Bytes, random_bytes, share, state_planes, token_planes


@dataclass(frozen=True)
class Attention:
    """A pair of a model with attention only. `heads` of `row` bytes a token; a latent is one head on every worker."""

    model: str
    prefill: str
    decode: str
    layers: int
    heads: int
    row: int
    tp: tuple[int, int]
    order: tuple[str, str] = ("hnd", "hnd")
    tables: tuple[Blocks, Blocks] = (Blocks(0, (7, 2, 4, 0), 16), Blocks(0, (1, 6, 3, 5), 16))
    tokens: tuple[int, int] = (0, 57)
    pp: tuple[int, int] = (1, 1)


SMALL, LARGE = Blocks(0, (7, 2, 4, 0), 16), Blocks(0, (6, 3), 32)
LLAMA = ("llama-3.1-8b", 32, 8, 512)
GQA: list[tuple[str, str, tuple[int, int], dict[str, Any]]] = [
    ("tp=2", "tp=4", (2, 4), {}),
    ("tp=4", "tp=2", (4, 2), {}),
    ("tp=4", "tp=4", (4, 4), {}),
    ("tp=2", "tp=2,order=nhd", (2, 2), {"order": ("hnd", "nhd")}),
    ("tp=4,order=nhd", "tp=1,order=hnd", (4, 1), {"order": ("nhd", "hnd")}),
    ("tp=8", "tp=16", (8, 16), {}),
    ("tp=16", "tp=2", (16, 2), {}),
    ("tp=2", "tp=2,block=32", (2, 2), {"tables": (SMALL, LARGE)}),
    ("tp=1,block=32", "tp=2", (1, 2), {"tables": (LARGE, SMALL)}),
    ("tp=1,block=48", "tp=1,block=32", (1, 1), {"tables": (Blocks(0, (3, 5), 48), LARGE)}),
    (
        "tp=2,block=32,kernel_block=16",
        "tp=4",
        (2, 4),
        {"tables": (Blocks(0, (3, 1), 16, 2), Blocks(0, (1, 6, 3, 5), 16))},
    ),
    ("tp=2,pp=2", "tp=4", (2, 4), {"pp": (2, 1)}),
    ("tp=4", "tp=2,pp=4", (4, 2), {"pp": (1, 4)}),
    (
        "tp=2",
        "tp=4,block=32",
        (2, 4),
        {"tables": (Blocks(1, (2, 4, 0), 16), Blocks(0, (None, 3), 32)), "tokens": (37, 55)},
    ),
    (
        "tp=4,block=48",
        "tp=2",
        (4, 2),
        {"tables": (Blocks(0, (2, 5), 48), Blocks(1, (6, None, 3, 5), 16)), "tokens": (50, 77)},
    ),
]
PAIRS = [Attention(LLAMA[0], p, d, *LLAMA[1:], tp, **more) for p, d, tp, more in GQA]
PAIRS += [
    Attention("deepseek-v3", "tp=8", "tp=1", 61, 1, 1152, (8, 1)),
    Attention("deepseek-v3", "tp=2", "tp=4", 61, 1, 1152, (2, 4)),
    Attention("qwen3-0.6b", "tp=1", "tp=2,order=nhd", 28, 8, 512, (1, 2), ("hnd", "nhd")),
]


def attention(case: Attention, side: int, content: Bytes, tokens: tuple[int, int]) -> Buffers:
    """All workers of one side: stages outermost, each with an equal share of the layers, then heads over tp."""
    tp, pp = case.tp[side], case.pp[side]
    table, order = case.tables[side], case.order[side]
    found: Buffers = {}
    for stage in range(pp):
        for rank in range(tp):
            mine = share(case.layers, stage, pp)
            names = {f"attention.{n}": content[n, share(case.heads, rank, tp)] for n in range(mine.start, mine.stop)}
            found |= token_planes(stage * tp + rank, names, table, order, tokens, 8)
    return found


def covered(table: Blocks) -> tuple[int, int]:
    span = table.kernel * table.ratio
    return table.first * span, (table.first + len(table.ids)) * span


@pytest.mark.parametrize("case", PAIRS, ids=lambda c: f"{c.model} {c.prefill} to {c.decode} {c.tokens}")
def test_attention(case: Attention) -> None:
    content = random_bytes(case.layers, case.heads, 160, case.row)
    source = attention(case, 0, content, covered(case.tables[0]))
    target = attention(case, 1, content, case.tokens)
    tables = [{"attention": {"first": t.first, "ids": list(t.ids)}} for t in case.tables]
    request = {"tokens": list(case.tokens), "prefill": tables[0], "decode": tables[1]}
    same(moved(case.model, (case.prefill, case.decode), request, source, target), target)


@dataclass(frozen=True)
class Hybrid:
    """A hybrid: 2-byte conv parts x | B | C of three taps, then a state of `ssm` bytes an element.

    The states are in `parts` groups; their slots lie `strides` bytes apart on either side.
    """

    model: str
    option: str
    attention: tuple[int, ...]
    states: tuple[int, ...]
    kv: tuple[int, int]
    heads: int
    groups: int
    ssm: int
    parts: int
    tp: tuple[int, int]
    tables: tuple[Blocks, Blocks]
    strides: tuple[int, int]
    tokens: tuple[int, int]
    order: str = "DS"


NANO = (5, 12, 19, 26, 33, 42)
NANO_STATES = (0, 2, 4, 7, 9, 11, 14, 16, 18, 21, 23, 25, 28, 30, 32, 35, 37, 39, 41, 44, 46, 48, 50)
SMALL_H = (5, 15, 25, 35)
SMALL_H_STATES = tuple(n for n in range(40) if n not in SMALL_H)
# Bytes of a whole state: 64 x 64 x 128 of 4 bytes there, 128 x 64 x 128 of 2 bytes here.
BY_TP = {1: 2_138_112, 4: 536_576}
GRANITE = {1: 528 * 4096, 2: 528 * 2048, 4: 528 * 1024}


def nano(tp: tuple[int, int], tables: tuple[Blocks, Blocks], tokens: tuple[int, int]) -> Hybrid:
    strides = BY_TP[tp[0]], BY_TP[tp[1]]
    option = ",kv_dtype=fp8,kernel_block=16"
    return Hybrid("nemotron-3-nano-30b", option, NANO, NANO_STATES, (2, 256), 64, 8, 4, 4, tp, tables, strides, tokens)


def granite(tp: tuple[int, int], order: str = "DS") -> Hybrid:
    tables = Blocks(0, (1,), 528), Blocks(0, (2,), 528)
    strides = GRANITE[tp[0]], GRANITE[tp[1]]
    return Hybrid(
        "granite-4.0-h-small",
        ",groups=by_cache" + (",conv=SD" if order == "SD" else ""),
        SMALL_H,
        SMALL_H_STATES,
        (8, 512),
        128,
        1,
        2,
        1,
        tp,
        tables,
        strides,
        (0, 300),
        order,
    )


FOUR, ONE = Blocks(0, (5, 2, 4), 16, 131), Blocks(0, (1, 4), 16, 261)
HYBRIDS = [
    nano((4, 1), (FOUR, ONE), (0, 5000)),
    nano((1, 4), (ONE, FOUR), (0, 5000)),
    nano((4, 1), (FOUR, ONE), (4177, 5003)),
    granite((1, 2)),
    granite((4, 2)),
    granite((2, 4)),
    granite((1, 2), "SD"),
    granite((4, 2), "SD"),
]


def pages(case: Hybrid, rank: int, tp: int, layer: int) -> Bytes:
    """The state of one layer on one worker: x of its heads, B and C of its groups or of the one group, the state."""
    heads, groups = share(case.heads, rank, tp), share(case.groups, rank, tp)
    x = state(layer, "x", case.heads, 64 * 3 * 2)[heads]
    b, c = (state(layer, part, case.groups, 128 * 3 * 2)[groups] for part in "bc")
    ssm = state(layer, "ssm", case.heads, 64 * 128 * case.ssm)[heads]
    conv = np.concatenate([part.reshape(-1, 3, 2) for part in (x, b, c)])
    taps_first = conv.swapaxes(0, 1) if case.order == "SD" else conv
    return np.concatenate([taps_first.reshape(-1), ssm.reshape(-1)])


@cache
def state(layer: int, part: str, count: int, size: int) -> Bytes:
    seed = layer * 10 + ["x", "b", "c", "ssm"].index(part)
    return np.random.default_rng(seed).integers(0, 256, (count, size), np.uint8)


def hybrid(case: Hybrid, side: int, content: Bytes, tokens: tuple[int, int], slots: dict[str, int]) -> Buffers:
    found: Buffers = {}
    tp, (heads, _) = case.tp[side], case.kv
    for rank in range(tp):
        kv = {f"attention.{n}": content[i, share(heads, rank, tp)] for i, n in enumerate(case.attention)}
        found |= token_planes(rank, kv, case.tables[side], "hnd", tokens, 6)
        states = {f"mamba.{n}": pages(case, rank, tp, n) for n in case.states}
        found |= state_planes(rank, states, slots, case.strides[side])
    return found


def slots_of(case: Hybrid, free: list[int]) -> tuple[dict[str, Any], dict[str, int]]:
    """Layers go round the groups in turns; every group has a slot of its own, after the tokens of the request."""
    names = [f"mamba.{i}" for i in range(case.parts)] if case.parts > 1 else ["mamba"]
    tables = {name: {"slot": free[i], "at": case.tokens[1]} for i, name in enumerate(names)}
    return tables, {f"mamba.{n}": free[i % case.parts] for i, n in enumerate(case.states)}


@pytest.mark.parametrize("case", HYBRIDS, ids=lambda c: f"{c.model} tp {c.tp[0]} to {c.tp[1]} {c.tokens} {c.order}")
def test_hybrids(case: Hybrid) -> None:
    content = random_bytes(len(case.attention), case.kv[0], 8400, case.kv[1])
    tables, slots = zip(*(slots_of(case, [b for b in range(10) if b not in t.ids]) for t in case.tables), strict=True)
    source = hybrid(case, 0, content, covered(case.tables[0]), slots[0])
    target = hybrid(case, 1, content, case.tokens, slots[1])
    asked = [
        {"attention": {"first": t.first, "ids": list(t.ids)}, **s} for t, s in zip(case.tables, tables, strict=True)
    ]
    sides = [f"tp={n}{case.option}" for n in case.tp]
    request = {"tokens": list(case.tokens), "prefill": asked[0], "decode": asked[1]}
    same(moved(case.model, (sides[0], sides[1]), request, source, target), target)
