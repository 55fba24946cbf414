"""Expand the nests of a table into rows of plain numbers. Units are bytes, offsets count from the page."""

from __future__ import annotations

import math

import numpy as np

from kvplan.runtime.plan import Ints, Nest, Read

P_PLANE, P_OFFSET, D_PLANE, D_OFFSET, BYTES, P_TOKEN, D_TOKEN = range(7)


def expand(nests: tuple[Nest, ...]) -> Ints:
    """One row (prefill plane, prefill offset, decode plane, decode offset, bytes) per span, in the nests' order."""
    return expand_tokens(nests)[:, :P_TOKEN]


def expand_tokens(nests: tuple[Nest, ...]) -> Ints:
    """As `expand`, with two more columns: how many bytes one token further lies on either side, 0 in a page table."""
    return np.concatenate([_rows(nest) for nest in nests]) if nests else np.empty((0, 7), np.int64)


def of_read(read: Read, nests: tuple[Nest, ...]) -> Ints:
    """As `expand_tokens`, with the plane numbers of the read's two workers."""
    found = expand_tokens(nests)
    return found + np.array([read.first[0], 0, read.first[1], 0, 0, 0, 0], np.int64)


def size(nests: tuple[Nest, ...]) -> int:
    """How many rows `expand` gives, without expanding."""
    return sum(math.prod(loop.count for loop in nest.loops) for nest in nests)


def _rows(nest: Nest) -> Ints:
    place = np.array([[*nest.prefill, *nest.decode]], np.int64)
    for loop in nest.loops:
        step = np.array([*loop.prefill, *loop.decode], np.int64)
        moves = np.arange(loop.count, dtype=np.int64)[:, None] * step
        place = (place[:, None, :] + moves[None, :, :]).reshape(-1, 4)
    rest = np.array([nest.bytes, *(nest.token or (0, 0))], np.int64)
    return np.concatenate([place, np.broadcast_to(rest, (len(place), 3))], axis=1)
