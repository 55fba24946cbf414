"""Latent records and indexer keys of every format, cut by hand: every worker holds all of them.

Two layers; bytes of a token and of a page were written down by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from tests.by_hand.moving import moved, same
from tests.by_hand.pages import (
    Layout,
    Table,
    beside,
    blank,
    by_layer,
    flat,
    noise,
    only,
    padding,
    paged,
    stained,
    without_padding,
)
from tests.by_hand.slicing import Buffers, Bytes

LAYERS, TOKENS = 2, 160
CACHES: dict[str, dict[str, int]] = {
    "plain": {"latent": 48, "rope": 16},
    "v3": {"latent": 512, "scale": 16, "rope": 128},
    "v3-fp4": {"packed": 256, "rope": 64, "fine": 32},
    "v4": {"latent": 448, "rope": 128, "scale": 7},
    "v4-1": {"latent": 448, "rope": 64, "scale": 16},
    "keys": {"k": 128, "scale": 4},
    "keys-fp4": {"k": 64, "scale": 4},
}
# The parts in the order in which a page in columns has them, from its end.
COLUMNS = {
    "plain": ("latent", "rope"),
    "v3": ("latent", "scale", "rope"),
    "v3-fp4": ("packed", "rope", "fine"),
    "v4": ("latent", "rope", "scale"),
    "v4-1": ("latent", "rope", "scale"),
    "keys": ("k", "scale"),
    "keys-fp4": ("k", "scale"),
}
RECORDS = {"plain": 64, "v3": 656, "v3-fp4": 352, "v4-1": 528}


def permuted(fine: Bytes) -> Bytes:
    """Scale s of a record lies at byte 8 * (s & 3) + (s >> 2)."""
    found = np.empty_like(fine)
    for s in range(32):
        found[..., 8 * (s & 3) + (s >> 2)] = fine[..., s]
    return found


def record(cache: str, one: Mapping[str, Bytes]) -> Bytes:
    """One layer's page, token by token."""
    parts = [permuted(part) if name == "fine" else part for name, part in one.items()]
    rows = beside(*parts)
    assert rows.shape[-1] == RECORDS[cache]
    return flat(rows)


def apart(one: Mapping[str, Bytes]) -> Bytes:
    """All 576-byte records, then all 8-byte scale rows of which 7 are used, up to a multiple of 576 bytes."""
    tokens = one["scale"].shape[1]
    body = flat(beside(one["latent"], one["rope"]), beside(one["scale"], padding(1, tokens, 1)))
    assert body.size == tokens * 584
    return flat(body, padding({16: 448, 32: 320, 64: 64}[tokens]))


def page(cache: str, one: Mapping[str, Bytes]) -> Bytes:
    if cache.startswith("keys"):
        return flat(one["k"], one["scale"])
    return apart(one) if cache == "v4" else record(cache, one)


def columns(cache: str, one: Mapping[str, Bytes]) -> Bytes:
    """Another engine's page: the parts of a record in runs of their own, last first; an indexer's token by token."""
    parts = [one[name] for name in reversed(COLUMNS[cache])]
    return flat(beside(*parts)) if cache.startswith("keys") else flat(*parts)


def layout(cache: str, form: str) -> Layout:
    if form == "columns":
        return lambda t, _: by_layer(lambda one: {"": columns(cache, one)}, t)
    if form == "LBHNC":
        return lambda t, _: by_layer(lambda one: {"": page(cache, one)}, t)
    return lambda t, _: {"": flat(*(page(cache, {name: part[n] for name, part in t.items()}) for n in range(LAYERS)))}


@dataclass(frozen=True)
class Pair:
    tp: tuple[int, int]
    forms: tuple[str, str]
    tables: tuple[Table, Table]
    tokens: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.tp} {self.forms} {self.tables[0].size} to {self.tables[1].size} {self.tokens}"

    def text(self, number: int) -> str:
        form = self.forms[number]
        engine = "columns" if form == "columns" else f"custom,order={form}"
        return f"engine={engine},tp={self.tp[number]},block={self.tables[number].size}"


SMALL, LARGE, LATE = Table((7, 2, 4, 0)), Table((6, 3), 32), Table((8, 3), 32, 1)
FORMS = [("LBHNC", "LBHNC"), ("LBHNC", "BLHNC"), ("BLHNC", "BLHNC")]
PAIRS = [Pair(tp, FORMS[0], (SMALL, Table((1, 6, 3, 5))), (0, 57)) for tp in ((4, 1), (1, 4), (2, 3))]
PAIRS += [
    Pair((2, 1), forms, tables, (37, 55))
    for forms in FORMS
    for tables in ((SMALL, LARGE), (LARGE, SMALL), (SMALL, LATE), (Table((2,), 64), SMALL))
]
PAIRS += [
    Pair((2, 1), forms, tables, tokens)
    for forms in (("LBHNC", "columns"), ("columns", "BLHNC"))
    for tables, tokens in (((SMALL, SMALL), (0, 64)), ((SMALL, LARGE), (37, 55)))
]


def side(case: Pair, number: int, tensors: dict[str, dict[str, Bytes]]) -> Buffers:
    found: Buffers = {}
    for rank in range(case.tp[number]):
        for cache, parts in tensors.items():
            found |= paged(rank, cache, parts, 0, layout(cache, case.forms[number]), case.tables[number])
    return found


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.name)
def test_latents(case: Pair) -> None:
    tensors = {
        cache: {name: noise(LAYERS, 1, TOKENS, size, seed=n) for n, (name, size) in enumerate(parts.items())}
        for cache, parts in CACHES.items()
    }
    nothing = {cache: blank(parts) for cache, parts in tensors.items()}
    source = stained(side(case, 0, tensors), side(case, 0, nothing))
    target = side(case, 1, {cache: only(parts, case.tokens) for cache, parts in tensors.items()})
    tables = [{cache: {"first": t.first, "ids": list(t.ids)} for cache in CACHES} for t in case.tables]
    request = {"tokens": list(case.tokens), "prefill": tables[0], "decode": tables[1]}
    sides = tuple(case.text(n) for n in (0, 1))
    got, empty = moved("latents", (sides[0], sides[1]), request, source, target), side(case, 1, nothing)
    same(without_padding(got, empty), without_padding(target, empty))
