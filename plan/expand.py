"""Expand the nests of a table into rows of plain numbers. Units are bytes, offsets count from the page."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kvplan.plan.types import Ints, Nest, Read, Runs

P_PLANE, P_OFFSET, D_PLANE, D_OFFSET, BYTES, P_TOKEN, D_TOKEN = range(7)


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Rows of a table of tokens with the same `hops`: as from `expand`, with two more columns, the bytes to the next
    row of tokens on either side. If `joined`, rows of tokens are contiguous on both sides."""

    table: Ints
    hops: tuple[tuple[int, int, int], ...] = ()
    joined: bool = False

    def most(self, runs: Runs) -> int:
        """Return the most spans that `runs` can give after they are cut in tiles."""
        spans = len(runs.count) if self.joined and not self.hops else int(runs.count.sum())
        return len(self.table) * spans


def expand(nests: tuple[Nest, ...]) -> Ints:
    """Return a row (prefill plane, prefill offset, decode plane, decode offset, bytes) per span, in nest order."""
    return expand_tokens(nests)[:, :P_TOKEN]


def tokens(nests: tuple[Nest, ...]) -> tuple[TokenRows, ...]:
    """Expand a table of tokens, grouped by the hops of its nests and whether their rows of tokens are joined."""
    alike: dict[tuple[tuple[tuple[int, int, int], ...], bool], list[Nest]] = {}
    for nest in nests:
        alike.setdefault((nest.hops, is_joined(nest)), []).append(nest)
    return tuple(TokenRows(expand_tokens(tuple(some)), *sort) for sort, some in alike.items())


def is_joined(nest: Nest) -> bool:
    """Whether rows of tokens are contiguous on both sides."""
    return nest.token_step == (nest.bytes, nest.bytes)


def joined(page: Ints) -> Ints:
    """Return the rows of a page table in the order of the decode page; rows contiguous on both sides become one."""
    page = page[np.lexsort((page[:, D_OFFSET], page[:, D_PLANE]))]
    before, after = page[:-1], page[1:]
    follows = (after[:, [P_PLANE, D_PLANE]] == before[:, [P_PLANE, D_PLANE]]).all(axis=1)
    for offset in (P_OFFSET, D_OFFSET):
        follows &= after[:, offset] == before[:, offset] + before[:, BYTES]
    if not follows.any():
        return page
    first = np.flatnonzero(np.concatenate(([True], ~follows)))
    found = page[first]
    found[:, BYTES] = np.add.reduceat(page[:, BYTES], first)
    return found


def of_read(read: Read) -> tuple[Ints, tuple[TokenRows, ...]]:
    """Return both tables of a read, expanded, with the planes and bytes of its two workers."""
    table = read.placed
    return expand(table.per_page), tokens(table.per_token)


def expand_tokens(nests: tuple[Nest, ...]) -> Ints:
    """Expand nests like `expand`, with two more columns: the bytes to the next row of tokens, 0 in a page table."""
    return np.concatenate([_rows(nest) for nest in nests]) if nests else np.empty((0, 7), np.int64)


def size(nests: tuple[Nest, ...]) -> int:
    """Return the number of rows that `expand` gives, without expanding."""
    return sum(math.prod(loop.count for loop in nest.loops) for nest in nests)


def _rows(nest: Nest) -> Ints:
    place = np.array([[*nest.prefill, *nest.decode]], np.int64)
    for loop in nest.loops:
        step = np.array([*loop.prefill, *loop.decode], np.int64)
        moves = np.arange(loop.count, dtype=np.int64)[:, None] * step
        place = (place[:, None, :] + moves[None, :, :]).reshape(-1, 4)
    rest = np.array([nest.bytes, *(nest.token_step or (0, 0))], np.int64)
    return np.concatenate([place, np.broadcast_to(rest, (len(place), 3))], axis=1)
