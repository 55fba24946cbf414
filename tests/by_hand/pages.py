"""Pages put together by hand: a block's bytes from slices of global arrays, no kvplan.

A tensor is `[layer, head, token, bytes]`; one without heads has a single one. A layout gives the pages of one block by
the end of the plane's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from tests.by_hand.slicing import UNTOUCHED, Buffers, Bytes

Tensors = Mapping[str, Bytes]
# Slices of one block's tensors, and the first of the worker's heads, to pages.
Layout = Callable[[Tensors, int], dict[str, Bytes]]
POOL = 9
STRAY, PAD = 0xDD, 0xAA


@dataclass(frozen=True)
class Table:
    """A block table: `ids` by position from `first`; a block has `size` tokens."""

    ids: tuple[int, ...]
    size: int = 16
    first: int = 0


def noise(*shape: int, seed: int = 0) -> Bytes:
    """Random content, so that any two places differ within a few bytes."""
    return np.random.default_rng([seed, *shape]).integers(0, 256, shape, np.uint8)


def filler(*shape: int) -> Bytes:
    """Bytes that no copy writes."""
    return np.full(shape, UNTOUCHED, np.uint8)


def padding(*shape: int) -> Bytes:
    """Bytes that a span may cross where they face each other on the two sides."""
    return np.full(shape, PAD, np.uint8)


def without_padding(buffers: Buffers, blank: Buffers) -> Buffers:
    """The buffers with padding as if untouched; `blank` are the same ones with blank tensors."""
    return {key: np.where(blank[key] == PAD, UNTOUCHED, buffers[key]).astype(np.uint8) for key in blank}


def stained(filled: Buffers, blank: Buffers) -> Buffers:
    """The buffers with other bytes wherever the same ones with blank tensors hold none, so that reading there shows."""
    return {key: np.where(blank[key] == UNTOUCHED, STRAY, buffer).astype(np.uint8) for key, buffer in filled.items()}


def blank(tensors: Tensors) -> dict[str, Bytes]:
    return {name: np.zeros_like(tensor) for name, tensor in tensors.items()}


def only(tensors: Tensors, tokens: tuple[int, int]) -> dict[str, Bytes]:
    """The tensors with nothing but the tokens [first, end)."""
    found = {name: filler(*tensor.shape) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        found[name][:, :, slice(*tokens)] = tensor[:, :, slice(*tokens)]
    return found


def flat(*parts: Bytes) -> Bytes:
    """Concatenate the bytes of all parts in memory order."""
    return np.concatenate([np.ascontiguousarray(part).reshape(-1) for part in parts])


def beside(*parts: Bytes) -> Bytes:
    """Rows side by side: each token's bytes of one, then of the next."""
    return np.concatenate(parts, axis=-1)


def by_layer(pages: Callable[[dict[str, Bytes]], dict[str, Bytes]], tensors: Tensors) -> dict[str, Bytes]:
    """The pages of every layer; `pages` gets `[head, token, bytes]`."""
    count = next(iter(tensors.values())).shape[0]
    found: dict[str, Bytes] = {}
    for n in range(count):
        one = {name: tensor[n] for name, tensor in tensors.items()}
        found |= {f".{n}{part}": page for part, page in pages(one).items()}
    return found


def paged(worker: int, cache: str, tensors: Tensors, head: int, layout: Layout, table: Table) -> Buffers:
    """One worker's planes of one cache: a pool of POOL blocks, those of the table filled."""
    found: Buffers = {}
    for block, slices in _blocks(tensors, table):
        for part, page in layout(slices, head).items():
            pool = found.setdefault((worker, cache + part), filler(POOL * page.size))
            pool[block * page.size : (block + 1) * page.size] = page
    return found


def _blocks(tensors: Tensors, table: Table) -> Iterator[tuple[int, dict[str, Bytes]]]:
    for position, block in enumerate(table.ids, table.first):
        start = position * table.size
        yield block, {name: tensor[:, :, start : start + table.size] for name, tensor in tensors.items()}
