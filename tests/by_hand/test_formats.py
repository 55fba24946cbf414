"""Keys and values in every order and every quantised format, cut by hand.

Six heads or two, keys of 32 elements, values of 16, three layers: every number here was written down by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from tests.by_hand.moving import moved, same
from tests.by_hand.pages import Layout, Table, Tensors, beside, blank, by_layer, flat, noise, only, paged, stained
from tests.by_hand.slicing import Buffers, Bytes, share
from tests.shares import later

LAYERS, TOKENS = 3, 160
# Bytes of a token in each tensor; True: every head has its own.
BF16 = {"k": (64, True), "v": (32, True)}
FP8 = {"k": (32, True), "v": (16, True)}
INT4 = {"k": (16, True), "v": (8, True)}
PER_HEAD = {"ks": (4, True), "vs": (4, True)}
PER_TOKEN = {"ks": (4, False), "vs": (4, False)}
FORMATS: dict[str, dict[str, tuple[int, bool]]] = {
    "bf16": BF16,
    "fp8": FP8,
    "int8_per_token_head": {**FP8, **PER_HEAD},
    "fp8_per_token_head": {**FP8, **PER_HEAD},
    "int4_per_token_head": {**INT4, **PER_HEAD},
    "int8_per_token": {**FP8, **PER_TOKEN},
    "fp8_per_token": {**FP8, **PER_TOKEN},
    "nvfp4": {**INT4, "ks": (2, True), "vs": (1, True)},
}


def half(t: Mapping[str, Bytes], x: str) -> Bytes:
    """A row of K or V with its scale where a head and token has one."""
    return beside(t[x], t[x + "s"]) if x + "s" in t else t[x]


def row(t: Mapping[str, Bytes]) -> Bytes:
    return beside(half(t, "k"), half(t, "v"))


def by_token(page: Bytes) -> Bytes:
    """`[head, token, …]` with the token outermost."""
    return page.swapaxes(0, 1)


def pieces(rows: Bytes) -> Bytes:
    """`[head, token, bytes]` in pieces of 16 bytes: `[head, piece, token, 16]`."""
    heads, tokens, size = rows.shape
    return rows.reshape(heads, tokens, size // 16, 16).swapaxes(1, 2)


def elements(rows: Bytes, size: int) -> Bytes:
    """`[head, token, bytes]` in elements of `size` bytes: `[head, element, token, size]`."""
    heads, tokens, length = rows.shape
    return rows.reshape(heads, tokens, length // size, size).swapaxes(1, 2)


def tiles(rows: Bytes, size: int) -> Bytes:
    """The same in tiles of 16 bytes of tokens: `[head, tile, element, token of the tile, size]`."""
    heads, tokens, length = rows.shape
    x = 16 // size
    return rows.reshape(heads, tokens // x, x, length // size, size).swapaxes(2, 3)


def each_head(t: Tensors, first: int) -> dict[str, Bytes]:
    """A plane for every layer and head, named by their global numbers."""
    rows = row(t)
    return {f".{n}.{first + h}": flat(rows[n, h]) for n in range(rows.shape[0]) for h in range(rows.shape[1])}


PLAIN: dict[str, Layout] = {
    "LBHNC": lambda t, _: by_layer(lambda one: {"": flat(row(one))}, t),
    "LBNHC": lambda t, _: by_layer(lambda one: {"": flat(by_token(row(one)))}, t),
    "LHBNC": each_head,
    "BLHNC": lambda t, _: {"": flat(row(t))},
    "BLNHC": lambda t, _: {"": flat(row(t).swapaxes(1, 2))},
    "BHLNC": lambda t, _: {"": flat(row(t).swapaxes(0, 1))},
    "rows": lambda t, _: by_layer(
        lambda one: {"": flat(*(flat(k, v) for k, v in zip(half(one, "k"), half(one, "v"), strict=True)))}, t
    ),
    "k-then-v": lambda t, _: by_layer(lambda one: {"": flat(half(one, "k"), half(one, "v"))}, t),
    "planes": lambda t, _: by_layer(lambda one: {".0": flat(half(one, "k")), ".1": flat(half(one, "v"))}, t),
    "halves": lambda t, _: by_layer(lambda one: {"": flat(by_token(half(one, "k")), by_token(half(one, "v")))}, t),
    "halves-inside": lambda t, _: {
        "": flat(*(flat(by_token(k), by_token(v)) for k, v in zip(half(t, "k"), half(t, "v"), strict=True)))
    },
}
BARE: dict[str, Layout] = {
    "k-and-v": lambda t, _: by_layer(lambda one: {".k": flat(by_token(one["k"])), ".v": flat(by_token(one["v"]))}, t)
}


def swizzled(size: int) -> dict[str, Layout]:
    """Keys in pieces of 16 bytes; values by element, or in tiles of tokens; elements of `size` bytes."""
    return {
        "swizzled": lambda t, _: by_layer(lambda one: {"": flat(pieces(one["k"]), elements(one["v"], size))}, t),
        "swizzled-planes": lambda t, _: by_layer(
            lambda one: {".0": flat(pieces(one["k"])), ".1": flat(elements(one["v"], size))}, t
        ),
        "shuffled": lambda t, _: by_layer(lambda one: {"": flat(pieces(one["k"]), tiles(one["v"], size))}, t),
        "shuffled-planes": lambda t, _: by_layer(
            lambda one: {".0": flat(pieces(one["k"])), ".1": flat(tiles(one["v"], size))}, t
        ),
    }


def token_scales(one: Mapping[str, Bytes]) -> dict[str, Bytes]:
    """All rows, head by head, then the two scales of every token."""
    return {"": flat(beside(one["k"], one["v"]), beside(one["ks"], one["vs"]))}


def token_rows(one: Mapping[str, Bytes]) -> dict[str, Bytes]:
    """Token by token: the rows of all heads, then the two scales."""
    rows = by_token(beside(one["k"], one["v"]))
    scales = by_token(beside(one["ks"], one["vs"]))
    return {"": flat(beside(rows.reshape(len(rows), -1), scales.reshape(len(rows), -1)))}


PER_TOKEN_LAYOUTS: dict[str, Layout] = {
    "LBHNC": lambda t, _: by_layer(token_scales, t),
    "LBNHC": lambda t, _: by_layer(token_rows, t),
    "k-and-v": lambda t, _: by_layer(
        lambda one: {
            f".{n}": flat(by_token(one[x])) for n, x in (("k", "k"), ("v", "v"), ("k_scale", "ks"), ("v_scale", "vs"))
        },
        t,
    ),
}
HEAD_SCALES: dict[str, Layout] = {"k-and-v": PER_TOKEN_LAYOUTS["k-and-v"]}
NVFP4: dict[str, Layout] = {
    "LBHNC": lambda t, _: by_layer(lambda one: {"": flat(one["k"], one["ks"], one["v"], one["vs"])}, t),
    "BLHNC": lambda t, _: {"": flat(*(flat(*(t[name][n] for name in ("k", "ks", "v", "vs"))) for n in range(LAYERS)))},
    "planes": lambda t, _: by_layer(lambda one: {".0": flat(one["k"], one["ks"]), ".1": flat(one["v"], one["vs"])}, t),
}
LAYOUTS: dict[str, dict[str, Layout]] = {
    "bf16": {**PLAIN, **BARE, **swizzled(2)},
    "fp8": {**PLAIN, **BARE, **swizzled(1)},
    **{name: {**PLAIN, **HEAD_SCALES} for name in FORMATS if name.endswith("_per_token_head")},
    **dict.fromkeys(("int8_per_token", "fp8_per_token"), PER_TOKEN_LAYOUTS),
    "nvfp4": NVFP4,
}


@dataclass(frozen=True)
class Pair:
    """A format, and for either side tp, storage and table."""

    format: str
    heads: int
    tp: tuple[int, int]
    forms: tuple[str, str]
    tables: tuple[Table, Table] = (Table((7, 2, 4, 0)), Table((1, 6, 3, 5)))
    tokens: tuple[int, int] = (0, 57)

    @property
    def name(self) -> str:
        tp, forms = self.tp, self.forms
        return f"{self.format} of {self.heads}, {tp[0]} {forms[0]} to {tp[1]} {forms[1]}, {self.tokens}"


SMALL, LARGE, LATE = Table((7, 2, 4, 0)), Table((6, 3), 32), Table((8, 3), 32, 1)
RAGGED = (37, 55)
SHARED = [(6, (2, 3)), (6, (3, 2)), (6, (4, 1)), (6, (1, 4)), (2, (4, 1)), (2, (1, 4)), (2, (4, 2)), (2, (3, 4))]
PAIRS = [Pair("bf16", heads, tp, ("LBHNC", "LBHNC")) for heads, tp in SHARED]
PAIRS += [Pair("bf16", 6, (2, 3), ("LBHNC", form)) for form in LAYOUTS["bf16"]]
PAIRS += [Pair("bf16", 6, (3, 1), (form, "LBNHC")) for form in LAYOUTS["bf16"]]
PAIRS += [Pair("fp8", 6, (1, 2), (f, f), tokens=(5, 61)) for f in LAYOUTS["fp8"]]
PAIRS += [
    Pair(name, heads, tp, (form, "LBHNC"))
    for name in FORMATS
    if name.endswith("_per_token_head")
    for heads, tp in ((6, (2, 3)), (2, (4, 1)), (2, (1, 4)))
    for form in ("LBHNC", "LBNHC", "k-and-v", "rows")
]
PAIRS += [Pair("fp8_per_token_head", 6, (2, 3), (form, form)) for form in LAYOUTS["fp8_per_token_head"]]
PAIRS += [Pair("int4_per_token_head", 6, (3, 2), ("LHBNC", "BHLNC"), (SMALL, LARGE), RAGGED)]
PAIRS += [
    Pair(name, heads, tp, forms)
    for name in ("int8_per_token", "fp8_per_token")
    for heads, tp in ((6, (2, 3)), (2, (4, 1)), (2, (1, 4)))
    for forms in (("LBHNC", "LBHNC"), ("LBHNC", "LBNHC"), ("LBNHC", "k-and-v"))
]
PAIRS += [
    Pair("nvfp4", heads, tp, forms)
    for heads, tp in SHARED
    for forms in (("LBHNC", "LBHNC"), ("LBHNC", "BLHNC"), ("planes", "LBHNC"))
]
PAIRS += [
    Pair(name, 6, (2, 3), (form, "LBHNC"), tables, RAGGED)
    for name, form in (("nvfp4", "BLHNC"), ("fp8_per_token_head", "LBNHC"), ("int8_per_token", "LBNHC"))
    for tables in ((SMALL, LARGE), (LARGE, SMALL), (SMALL, LATE))
]
TILES = [("shuffled", "shuffled"), ("shuffled-planes", "swizzled"), ("LBNHC", "shuffled")]
PAIRS += [
    Pair("bf16", 6, (2, 3), forms, tables, tokens)
    for forms in TILES
    for tables in ((SMALL, SMALL), (SMALL, LARGE), (LARGE, SMALL))
    for tokens in ((0, 64), RAGGED)
]

# Four of seven, so that no step of the lists above is left out as a whole.
NOW = [case for number, case in enumerate(PAIRS) if number % 7 % 2 == 0]


def content(case: Pair) -> dict[str, Bytes]:
    """Global tensors; one that all heads share is the same for each of them."""
    return {
        name: noise(LAYERS, case.heads if own else 1, TOKENS, size, seed=ord(name[0]) + len(name))
        for name, (size, own) in FORMATS[case.format].items()
    }


def side(case: Pair, number: int, tensors: dict[str, Bytes]) -> Buffers:
    found: Buffers = {}
    layout, table = LAYOUTS[case.format][case.forms[number]], case.tables[number]
    for rank in range(case.tp[number]):
        mine = share(case.heads, rank, case.tp[number])
        held = {n: t[:, mine] if FORMATS[case.format][n][1] else t for n, t in tensors.items()}
        found |= paged(rank, "kv", held, mine.start, layout, table)
    return found


@pytest.mark.parametrize("case", [*NOW, *later(each for each in PAIRS if each not in NOW)], ids=lambda case: case.name)
def test_keys_and_values(case: Pair) -> None:
    tensors = content(case)
    source = stained(side(case, 0, tensors), side(case, 0, blank(tensors)))
    target = side(case, 1, only(tensors, case.tokens))
    tables = [{"kv": {"first": t.first, "ids": list(t.ids)}} for t in case.tables]
    request = {"tokens": list(case.tokens), "prefill": tables[0], "decode": tables[1]}
    options = [
        f"engine=custom,tp={case.tp[n]},order={case.forms[n]},kv_dtype={case.format},block={case.tables[n].size}"
        for n in (0, 1)
    ]
    model = "six-heads" if case.heads == 6 else "two-heads"
    same(moved(model, (options[0], options[1]), request, source, target), target)
