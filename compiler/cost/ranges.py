"""Page ranges: the bytes of either side's pages that a table touches, as ranges that a stage can hold an image of."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.dsl.text.grouped import grouped
from kvplan.plan.stage import extent, moved_bytes, planes
from kvplan.plan.types import Interval, PageRange, Table

PREFILL, DECODE = 0, 1


def touched(table: Table, side: int, rows: int) -> tuple[PageRange, ...]:
    """Return ranges of one side's pages that hold all nests of a table, each nest in one; a page has `rows` rows."""
    nests = (*table.per_page, *table.per_token)
    found = grouped((plane, extent(nest, side, rows)) for nest in nests for plane in planes(nest, side))
    alike = grouped((joined, plane) for plane, extents in sorted(found.items()) for joined in _joined(extents))
    return tuple(part for where, numbers in sorted(alike.items()) for part in _ranges(where, numbers))


def filled(table: Table, ranges: Iterable[PageRange], side: int, rows: int) -> bool:
    """Whether the table moves every byte of these ranges, whole pages at once; it moves none twice (prove/cover.py)."""
    moved = sum(moved_bytes(nest, rows) for nest in table.per_page or table.per_token)
    return moved == sum(part.bytes * part.planes for part in ranges)


def _joined(extents: list[Interval]) -> list[Interval]:
    """Join intervals that overlap or touch."""
    found: list[Interval] = []
    for low, high in sorted(extents):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def _ranges(where: Interval, numbers: list[int]) -> list[PageRange]:
    """Return one interval of several planes as ranges; planes at equal distances form one range."""
    found: list[PageRange] = []
    low, size, left = where[0], where[1] - where[0], numbers
    while left:
        step = left[1] - left[0] if len(left) > 1 else 1
        count = next((n for n, plane in enumerate(left) if plane != left[0] + n * step), len(left))
        found.append(PageRange(left[0], low, size, count, step))
        left = left[count:]
    return found
