"""A page as a map: rows of equal bytes, and the cells in them, which are what one colour and one label stand for.

Law: the cells of a page and its padding make up all its bytes, and no two lie on each other where tensors do not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kvplan.compiler.drawing.tensors import TOKEN
from kvplan.dsl.lang.dtypes import size
from kvplan.plan.types import Planes, View

MOST_CELLS = 1024  # of bytes side by side; beyond that tokens are no cells of their own
MOST_DRAWN = 2048  # beyond that tensors that take turns are one cell, for so many tokens that
FEW = 32  # are left on every other loop
MOST_SHARES = 64  # of a split axis whose items lie side by side
WIDE, HIGH = 480, 240  # what a map's shape is chosen for; a page is drawn as wide and as high as there is room
WRAPPED = 8  # rows of a page that is not one loop


@dataclass(frozen=True, slots=True)
class CellLoop:
    """`count` turns over `axis`, `step` bytes apart; each stands for `each` items of the axis."""

    axis: str
    count: int
    step: int
    each: int = 1


@dataclass(frozen=True, slots=True)
class MapCells:
    """The cells of a view: `bytes` bytes at `offset`, repeated by `loops`, outermost first. Of several that take turns
    in a cell there are several `tensors`."""

    tensors: tuple[str, ...]
    offset: int
    bytes: int
    loops: tuple[CellLoop, ...]

    @property
    def count(self) -> int:
        return math.prod(loop.count for loop in self.loops)


@dataclass(frozen=True, slots=True)
class PageMap:
    """A page of `bytes` bytes in rows of `row` bytes, with the cells in it."""

    bytes: int
    row: int
    cells: tuple[MapCells, ...]


def page_map(entry: Planes, split: Collection[str]) -> PageMap:
    """The map of a page whose axes in `split` are shared out over workers."""
    kept = {*split, "layer", TOKEN}
    cells = [_cells(view, kept) for view in entry.views]
    if sum(each.count for each in cells) > MOST_CELLS:
        cells = [_cells(view, kept - {TOKEN}) for view in entry.views]
    cells = _together(cells) if sum(each.count for each in cells) > MOST_DRAWN else cells
    return PageMap(entry.page, _row(entry.page, cells), tuple(cells))


def _cells(view: View, kept: Collection[str]) -> MapCells:
    """The cells of a view: its innermost loops are one cell as far as they lie side by side and are not kept apart."""
    loops = [CellLoop(axis, count, step) for axis, count, step in view.axes]
    bytes_ = size(view.dtype)
    while loops and loops[-1].step == bytes_ and loops[-1].axis.partition("/")[0] not in kept:
        bytes_ *= loops.pop().count
    if loops and loops[-1].step == bytes_ and loops[-1].count > MOST_SHARES:
        each = next(n for n in range(loops[-1].count // MOST_SHARES, loops[-1].count + 1) if not loops[-1].count % n)
        last = loops.pop()
        bytes_ *= each
        loops += [replace(last, count=last.count // each, step=bytes_, each=each)]
    return MapCells((view.tensor,), view.offset, bytes_, tuple(loop for loop in loops if loop.count > 1))


def _together(cells: list[MapCells]) -> list[MapCells]:
    """Cells that fill the turns of one innermost loop without a gap as one cell for several turns; else as they are."""
    if len({each.loops for each in cells}) > 1 or not cells[0].loops:
        return cells
    *outer, last = cells[0].loops
    low, high = min(each.offset for each in cells), max(each.offset + each.bytes for each in cells)
    if high - low != last.step or sum(each.bytes for each in cells) != last.step:
        return cells
    rest = math.prod(loop.count for loop in outer)
    turns = next(
        n for n in range(1, last.count + 1) if not last.count % n and (n == last.count or rest * last.count <= FEW * n)
    )
    chunk = CellLoop(last.axis, last.count // turns, last.step * turns, last.each * turns)
    loops = (*outer, chunk) if chunk.count > 1 else tuple(outer)
    return [MapCells(tuple(tensor for each in cells for tensor in each.tensors), low, last.step * turns, loops)]


def _row(page: int, cells: Sequence[MapCells]) -> int:
    """The bytes of a row: such that no row cuts a cell, if it can be, and cells are near twice as wide as high."""
    steps = sorted({loop.step for each in cells for loop in each.loops if loop.step < page})
    whole = [step for step in steps if all(_fits(each, step) for each in cells)]
    if not whole and len(cells) > 1:
        return -(-page // WRAPPED)
    return min((page, *reversed(whole)), key=lambda row: abs(math.log(_shape(page, row, cells) / 2)))


def _fits(cells: MapCells, row: int) -> bool:
    """Whether rows of so many bytes cut none of these cells."""
    across = sum((loop.count - 1) * loop.step for loop in cells.loops if loop.step % row)
    return cells.offset % row + across + cells.bytes <= row


def _shape(page: int, row: int, cells: Sequence[MapCells]) -> float:
    """Width by height of a cell, roughly, in rows of `row` bytes."""
    rows = -(-page // row)
    across = sum(each.count for each in cells) / rows
    return (WIDE / max(across, 1)) / (HIGH / rows)
