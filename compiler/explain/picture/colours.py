"""Colours of cells: a hue for each part of an axis that is split over workers, a strength for each tensor.

One part has one hue on both sides, so that what moves is seen. Where nothing is split a tensor has a hue of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.plan.types import Plan, Side

HUES = 8  # as many as colour-blind readers tell apart
STRENGTHS = (1.0, 0.6, 0.45, 0.8)


@dataclass(frozen=True, slots=True)
class CellColour:
    """The colour of a tensor's cells: hue `index * hues // extent` of the global index on `axis`, else hue `hue`."""

    axis: str | None
    extent: int
    hues: int
    hue: int
    strength: float

    def at(self, index: int) -> int:
        """The hue of the cells at a global index on the axis."""
        return index * self.hues // self.extent if self.axis else self.hue


def cache_colours(plan: Plan, cache: str) -> dict[str, CellColour]:
    """The colour of every tensor of a cache, in the order of its pages, prefill's first."""
    entries = [e for side in (plan.prefill, plan.decode) for w in side.workers for e in w.planes if e.cache == cache]
    axes: dict[str, list[str]] = {}
    for entry in entries:
        for view in entry.views:
            axes.setdefault(
                view.tensor, [*(a.partition("/")[0] for a, _, _ in view.axes), *(a for a, _, _ in entry.loops)]
            )
    extents = {axis: n for side in (plan.prefill, plan.decode) for axis, n in _extents(side, cache).items()}
    return {tensor: _colour(known, extents, number) for number, (tensor, known) in enumerate(axes.items())}


def split_axes(side: Side, cache: str) -> set[str]:
    """The axes of a cache that are shared out over workers."""
    return {axis for worker in side.workers for name, axis, _ in worker.holds if name == cache}


def _extents(side: Side, cache: str) -> dict[str, int]:
    """The items of every split axis of more than one, over all workers."""
    ends = [(axis, end) for worker in side.workers for name, axis, (_, end) in worker.holds if name == cache]
    found = {axis: max(end for other, end in ends if other == axis) for axis, _ in ends}
    return {axis: extent for axis, extent in found.items() if extent > 1}


def _colour(axes: list[str], extents: dict[str, int], number: int) -> CellColour:
    axis = next((axis for axis in axes if axis in extents), None)
    if axis is None:
        return CellColour(None, 1, 1, number % HUES, 1.0)
    return CellColour(axis, extents[axis], min(HUES, extents[axis]), number % HUES, STRENGTHS[number % len(STRENGTHS)])
