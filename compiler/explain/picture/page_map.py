"""A page as a map: rows of equal bytes, and boxes in them, each of one owner.

Law: every byte of a tensor is in exactly one box, which is its owner's; padding is in none. A page is drawn from its
views, which state the placement in the plan itself, so a map of a plan on disk is as true.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

from kvplan.compiler.drawing.pieces import PageLoop, PageSpan
from kvplan.compiler.drawing.tensors import LAYER, ROW, TOKEN, Page, page_spans
from kvplan.compiler.explain.picture.colours import ByteOwner, TensorColour

MOST_CELLS = 1024  # of a page; in a larger one, adjacent cells with one owner are one box
MOST_PIECES = 64  # of a split axis whose items lie side by side
WIDE, HIGH = 480, 240  # the assumed size that decides a map's shape; pages fill the room they have
MOST_ACROSS, MOST_DOWN = WIDE // 5, HIGH // 2  # cells that can be seen one by one
WRAPPED = 8  # rows of a page that is not one loop
MOST_LABELS = 58  # of rows; in the highest map each is as high as a line of text


@dataclass(frozen=True, slots=True)
class MapBox:
    """Bytes [low, high) of each of the rows [first, end)."""

    low: int
    high: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class HeadLabel:
    """The label of bytes [low, high) of the first row: an item of an axis, or a tensor, which has no index."""

    low: int
    high: int
    name: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class RowLabel:
    """The label of a row's start: an item of an axis, or the byte `index` if rows are not turns of a loop."""

    row: int
    name: str
    index: int


@dataclass(frozen=True, slots=True)
class PageMap:
    """A page of `bytes` bytes in rows of `row` bytes.

    `cells` are the pieces that a reader may point at. `rows` are labels, the most important first.
    """

    bytes: int
    row: int
    boxes: tuple[tuple[ByteOwner, tuple[MapBox, ...]], ...]
    cells: tuple[PageSpan, ...]
    heads: tuple[HeadLabel, ...]
    rows: tuple[RowLabel, ...]


def page_map(page: Page, split: Collection[str], colours: Mapping[str, TensorColour]) -> PageMap:
    """Return the map of a page; the axes in `split` are shared over workers."""
    cells = [_cells(span, {*split, LAYER, TOKEN, ROW}) for span in page_spans(page)]
    large = not any(_are_visible(page.bytes, row, cells) for row in (page.bytes, *_steps(page.bytes, cells)))
    owned = [(owner, part) for each in cells for owner, part in _owned(each, colours[each.name], page, large)]
    uncut = [row for row in _steps(page.bytes, cells) if all(_fits(part, row) for _, part in owned)]
    row = _row(page.bytes, uncut, [part for _, part in owned], large)
    boxes: dict[ByteOwner, list[MapBox]] = {}
    for owner, part in owned:
        boxes.setdefault(owner, []).extend(_boxes(part, row, large))
    turns = [loop for each in cells[:1] for loop in each.loops if loop.step >= row and row in uncut]
    heads, rows = _heads(row, cells, page), _row_labels(row, turns, page)
    drawn = tuple((owner, tuple(every)) for owner, every in boxes.items())
    return PageMap(page.bytes, row, drawn, tuple(map(_pieces, cells)), tuple(heads), tuple(rows))


def _cells(span: PageSpan, kept: Collection[str]) -> PageSpan:
    """Return a tensor's cells: adjacent innermost loops form one cell, unless they are in `kept`."""
    loops, size = [*span.loops], span.bytes
    while loops and loops[-1].step == size and loops[-1].name not in kept:
        size *= loops.pop().count
    return replace(span, bytes=size, loops=tuple(loop for loop in loops if loop.count > 1))


def _owned(cells: PageSpan, colour: TensorColour, page: Page, large: bool) -> Iterator[tuple[ByteOwner, PageSpan]]:
    """Yield cells by their owner; the cells of a large page are folded."""
    for part, found in _parts(cells, 0, colour, page.at(colour.axis or "", 0)):
        yield colour.owner(part), _folded(found) if large else found


def _parts(cells: PageSpan, at: int, colour: TensorColour, index: int) -> Iterator[tuple[int, PageSpan]]:
    """Cut cells at loops over the split axis from number `at`, so that each has one part; they begin at `index`."""
    where = next((n for n, loop in enumerate(cells.loops) if n >= at and loop.name == colour.axis), None)
    if where is None:
        yield colour.part(index), cells
        return
    loop = cells.loops[where]
    inner = sum((each.count - 1) * each.weight for each in cells.loops[where + 1 :] if each.name == colour.axis)
    lows = [index + turn * loop.weight for turn in range(loop.count)]
    ends = [(colour.part(low), colour.part(low + inner)) for low in lows]
    for (first, last), every in groupby(range(loop.count), key=ends.__getitem__):
        turns = list(every)
        if first == last:
            yield first, _turns(cells, where, turns)
            continue
        for turn in turns:
            yield from _parts(_turns(cells, where, [turn]), where + 1, colour, lows[turn])


def _turns(cells: PageSpan, where: int, turns: Sequence[int]) -> PageSpan:
    """Return the cells of consecutive turns of the loop at `where`."""
    loop = cells.loops[where]
    loops = (*cells.loops[:where], replace(loop, count=len(turns)), *cells.loops[where + 1 :])
    return replace(cells, offset=cells.offset + turns[0] * loop.step, loops=loops)


def _folded(cells: PageSpan) -> PageSpan:
    """Return the same bytes in as few cells and loops as possible."""
    bytes_, loops = cells.bytes, list[PageLoop]()
    for loop in reversed(cells.loops):
        if loop.count == 1:
            continue
        if not loops and loop.step == bytes_:
            bytes_ *= loop.count
        elif loops and loop.step == loops[-1].count * loops[-1].step:
            loops[-1] = replace(loops[-1], count=loops[-1].count * loop.count)
        else:
            loops.append(loop)
    return replace(cells, bytes=bytes_, loops=tuple(reversed(loops)))


def _steps(page: int, cells: Sequence[PageSpan]) -> list[int]:
    """Return the possible bytes of a row: the steps of the page's loops."""
    return sorted({loop.step for each in cells for loop in each.loops if loop.step < page}, reverse=True)


def _fits(cells: PageSpan, row: int) -> bool:
    """Whether rows of `row` bytes cut none of these cells."""
    across = sum((loop.count - 1) * loop.step for loop in cells.loops if loop.step % row)
    return cells.offset % row + across + cells.bytes <= row


def _row(page: int, uncut: Sequence[int], cells: Sequence[PageSpan], large: bool) -> int:
    """Choose the bytes of a row so that it cuts no cell, if possible, and cells are large enough to see.

    Rows of a large page make the fewest boxes; otherwise cells are about twice as wide as high.
    """
    if not uncut and len({each.name for each in cells}) > 1:
        return -(-page // WRAPPED)

    def fault(row: int) -> tuple[float, float]:
        shape = abs(math.log(_shape(page, row, cells) / 2))
        return (_drawn(cells, row) if large else not _are_visible(page, row, cells)), shape

    return min((page, *uncut), key=fault)


def _are_visible(page: int, row: int, cells: Sequence[PageSpan]) -> bool:
    """Whether cells in rows of `row` bytes are large enough to be seen one by one."""
    count = sum(each.count for each in cells)
    return count <= MOST_CELLS and count * row <= MOST_ACROSS * page and page <= MOST_DOWN * row


def _drawn(cells: Sequence[PageSpan], row: int) -> int:
    """Return the number of boxes of large cells."""
    return sum(math.prod(loop.count for loop in each.loops if loop.step != row) for each in cells)


def _shape(page: int, row: int, cells: Sequence[PageSpan]) -> float:
    """Return the approximate width by height of a cell in rows of `row` bytes."""
    rows = -(-page // row)
    across = sum(each.count for each in cells) / rows
    return (WIDE / max(across, 1)) / (HIGH / rows)


def _boxes(cells: PageSpan, row: int, large: bool) -> Iterator[MapBox]:
    """Yield cells as boxes; in large pages consecutive rows form one box."""
    tall = next((loop for loop in cells.loops if large and loop.step == row and _fits(cells, row)), None)
    rest = [loop for loop in cells.loops if loop is not tall]
    for turns in product(*(range(loop.count) for loop in rest)):
        low = cells.offset + sum(turn * loop.step for turn, loop in zip(turns, rest, strict=True))
        if tall:
            yield MapBox(low % row, low % row + cells.bytes, low // row, low // row + tall.count)
        else:
            yield from _wrapped(low, low + cells.bytes, row)


def whole(page: int, row: int) -> Iterator[MapBox]:
    """Return all of a page as boxes."""
    return _wrapped(0, page, row)


def _wrapped(low: int, high: int, row: int) -> Iterator[MapBox]:
    """Yield a range of bytes as boxes: the rest of its first row, whole rows, the beginning of its last one."""
    first, last = low // row, high // row
    if first == last:
        yield MapBox(low - first * row, high - first * row, first, first + 1)
        return
    if low % row:
        yield MapBox(low % row, row, first, first + 1)
    if last > first + bool(low % row):
        yield MapBox(0, row, first + bool(low % row), last)
    if high % row:
        yield MapBox(0, high % row, last, last + 1)


def _pieces(cells: PageSpan) -> PageSpan:
    """Return the cells; items of a split axis that are too many to point at are merged."""
    if not cells.loops or cells.loops[-1].step != cells.bytes or cells.loops[-1].count <= MOST_PIECES:
        return cells
    *outer, last = cells.loops
    each = next(n for n in range(last.count // MOST_PIECES, last.count + 1) if not last.count % n)
    chunk = PageLoop(f"{last.name}/{last.weight * each}", last.count // each, last.step * each)
    return replace(cells, bytes=cells.bytes * each, loops=(*outer, chunk) if chunk.count > 1 else tuple(outer))


def _row_labels(row: int, turns: Sequence[PageLoop], page: Page) -> Iterator[RowLabel]:
    """Yield the labels of rows, outer loops first. An inner loop's first turn has none, because an outer one has it."""
    if not turns:
        yield from (RowLabel(n, "", n * row) for n in range(-(-page.bytes // row) if page.bytes > row else 0))
        return
    least = -(-page.bytes // row) / MOST_LABELS
    for depth, loop in enumerate(turns):
        skip = max(1, math.ceil(least * row / loop.step))
        outer = [range(each.count) for each in turns[:depth]]
        for at in product(*outer, range(skip if depth else 0, loop.count, skip)):
            local = sum(turn * each.weight for turn, each in zip(at, turns, strict=False) if each.name == loop.name)
            where = sum(turn * each.step for turn, each in zip(at, turns, strict=False)) // row
            yield RowLabel(where, loop.name, page.at(loop.name, local))


def _heads(row: int, cells: Sequence[PageSpan], page: Page) -> Iterator[HeadLabel]:
    """Yield labels above the first row: the turns of the one loop that fills it, or the tensors in it."""
    loops = {next((loop for loop in each.loops if loop.step < row), None) for each in cells if each.offset < row}
    loop = loops.pop() if len(loops) == 1 else None
    if loop and loop.step * loop.count == row:
        for turn in range(loop.count):
            item = page.at(loop.name, turn * loop.weight)
            yield HeadLabel(turn * loop.step, (turn + 1) * loop.step, loop.name, item)
        return
    spans = sorted((each.offset, min(_end(each, row), row), each.name) for each in cells if each.offset < row)
    yield from (HeadLabel(low, high, tensor) for low, high, tensor in _without_overlap(spans))


def _end(cells: PageSpan, row: int) -> int:
    """Return the end of cells in the first row."""
    return cells.offset + cells.bytes + sum((loop.count - 1) * loop.step for loop in cells.loops if loop.step < row)


def _without_overlap(spans: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield spans without overlap; overlapping ones become one with all their names."""
    known: tuple[int, int, str] | None = None
    for low, high, name in spans:
        if known and low < known[1]:
            known = (known[0], max(known[1], high), f"{known[2]}+{name}")
            continue
        if known:
            yield known
        known = (low, high, name)
    if known:
        yield known
