"""Cut copies of any length into pieces that lie in one block on either side.
Law: the pieces of a copy are disjoint and in order, and make up the part of it that lies in blocks of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kvplan.compiler.check.labels import Labels, Mask, ragged
from kvplan.compiler.check.pages import PlanePages

NOWHERE = -1
# Pieces that are longer than this on average are copied one by one.
LONG = 64


@dataclass(frozen=True, slots=True)
class Pieces:
    """`size` bytes at `start` of block `row` of a table (or NOWHERE), which begin `done` bytes into copy `copy`."""

    copy: Labels
    row: Labels
    start: Labels
    size: Labels
    done: Labels

    def only(self, which: Labels | Mask) -> Self:
        """Return some of the pieces, by mask or by index."""
        return type(self)(*(a[which] for a in (self.copy, self.row, self.start, self.size, self.done)))


def in_one_page(at: PlanePages | None, offset: Labels, size: Labels) -> Mask:
    """Return a mask of the ranges (`size` bytes at `offset`) that are not empty and lie in one page of the table."""
    if at is None or not len(at.pages.ids):
        return np.zeros(len(offset), np.bool_)
    block, start = np.divmod(offset, at.plane.stride)
    row = np.minimum(np.searchsorted(at.pages.ids, block), len(at.pages.ids) - 1)
    inside: Mask = (at.pages.ids[row] == block) & (start + size <= at.plane.page) & (size > 0)
    return inside


def into_blocks(at: PlanePages, offset: Labels, size: Labels) -> Pieces:
    """Return the parts of `size` bytes at `offset` of a plane that lie in the table's blocks, including block tails."""
    ids, stride = at.pages.ids, at.plane.stride
    low = np.searchsorted(ids, offset // stride)
    many = np.searchsorted(ids, (offset + size - 1) // stride, "right") - low
    copy, row = np.repeat(np.arange(len(offset)), many), ragged(low, many)
    return _pieces(copy, row, ids[row], stride, offset, size)


def at_source(at: PlanePages, offset: Labels, size: Labels) -> Pieces:
    """Return all of `size` bytes at `offset`, block by block: row NOWHERE if the table lacks the block."""
    ids, stride = at.pages.ids, at.plane.stride
    first = offset // stride
    many = (offset + size - 1) // stride - first + 1
    copy, block = np.repeat(np.arange(len(offset)), many), ragged(first, many)
    row = np.minimum(np.searchsorted(ids, block), max(len(ids) - 1, 0))
    known = ids[row] == block if len(ids) else np.zeros(len(block), np.bool_)
    return _pieces(copy, np.where(known, row, NOWHERE), block, stride, offset, size)


def _pieces(copy: Labels, row: Labels, block: Labels, stride: int, offset: Labels, size: Labels) -> Pieces:
    begin = np.maximum(offset[copy], block * stride)
    end = np.minimum((offset + size)[copy], (block + 1) * stride)
    return Pieces(copy, row, begin - block * stride, end - begin, begin - offset[copy])


def at_page_end(pieces: Pieces, page: int) -> tuple[Pieces, Pieces]:
    """Split pieces into the parts inside the page of their block, and the parts behind it, in the block's tail."""
    inside = np.clip(page - pieces.start, 0, pieces.size)
    tail = pieces.size - inside
    behind = Pieces(pieces.copy, pieces.row, pieces.start + inside, tail, pieces.done + inside)
    return Pieces(pieces.copy, pieces.row, pieces.start, inside, pieces.done).only(inside > 0), behind.only(tail > 0)


def move(source: Labels, where: Labels, target: Labels, start: Labels, size: Labels) -> None:
    """Copy size[i] labels from where[i] of `source` to start[i] of `target`, for every i."""
    if not len(size) or size.sum() > LONG * len(size):
        for a, b, n in zip(where.tolist(), start.tolist(), size.tolist(), strict=True):
            target[b : b + n] = source[a : a + n]
    else:
        target[ragged(start, size)] = source[ragged(where, size)]


def count(target: Labels, start: Labels, size: Labels) -> None:
    """Add 1 to size[i] numbers from start[i] of `target`, for every i."""
    if not len(size) or size.sum() > LONG * len(size):
        for a, n in zip(start.tolist(), size.tolist(), strict=True):
            target[a : a + n] += 1
    else:
        np.add.at(target, ragged(start, size), 1)
