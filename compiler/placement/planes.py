"""Plane numbers back to the loops they come from."""

from __future__ import annotations

from kvplan.compiler.placement.tree import PagedRegion, PlacedCache


def indices(part: PagedRegion, plane: int) -> tuple[int, ...] | None:
    """The index of every loop outside `block` for a plane number of the unit, None if it is another part's."""
    rest = plane - part.first
    found = []
    for digit in part.outer:
        index = rest // digit.step
        if not 0 <= index < digit.count:
            return None
        found.append(index)
        rest -= index * digit.step
    return tuple(found) if rest == 0 else None


def locate(unit: PlacedCache, plane: int) -> tuple[PagedRegion, tuple[int, ...]] | None:
    """The part and the loop indices of a worker's plane number, None if it is another unit's."""
    for part in unit.parts:
        index = indices(part, plane - unit.first)
        if index is not None:
            return part, index
    return None
