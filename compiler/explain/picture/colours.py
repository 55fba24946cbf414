"""Owners of bytes, and their colours: a hue for each part of a split axis, a strength for each tensor.
One part has the same hue on both sides, so that a reader sees what moves. Without a split each tensor has its own hue.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvplan.plan.types import Plan, Side

HUES = 8  # as many as colour-blind readers tell apart
WHOLE = 8  # the hue of an unsplit tensor in a cache that has split ones
STRENGTHS = (1.0, 0.6, 0.45, 0.8)


@dataclass(frozen=True, slots=True)
class ByteOwner:
    """The meaning of one colour: a tensor, and the part of its split axis in words, `head 0–3`, or nothing."""

    tensor: str
    part: str
    hue: int
    strength: float


@dataclass(frozen=True, slots=True)
class TensorColour:
    """The colours of a tensor: one for each of `parts` parts of the `extent` items of its split axis, or only one."""

    tensor: str
    axis: str | None
    extent: int
    parts: int
    hue: int
    strength: float

    def part(self, index: int) -> int:
        """Return the part of a global index on the axis."""
        return index * self.parts // self.extent

    def owner(self, part: int) -> ByteOwner:
        """Return the owner of the bytes of a part."""
        if self.axis is None:
            return ByteOwner(self.tensor, "", self.hue, self.strength)
        low, high = (-(-each * self.extent // self.parts) for each in (part, part + 1))
        held = f"{low}" if high - low == 1 else f"{low}–{high - 1}"
        return ByteOwner(self.tensor, f"{self.axis} {held}", part, self.strength)


def plan_colours(plan: Plan) -> dict[str, dict[str, TensorColour]]:
    """Return the colours of every tensor of every cache, in the order of its pages, prefill's first."""
    entries = [entry for side in (plan.prefill, plan.decode) for worker in side.workers for entry in worker.planes]
    axes: dict[str, dict[str, list[str]]] = {}
    for entry in dict.fromkeys(entries):
        known = axes.setdefault(entry.cache, {})
        for view in entry.views:
            names = [*(axis.partition("/")[0] for axis, _, _ in view.axes), *(axis for axis, _, _ in entry.loops)]
            known.setdefault(view.tensor, names)
    hues = itertools.count()
    return {cache: _cache_colours(plan, cache, known, hues) for cache, known in axes.items()}


def _cache_colours(
    plan: Plan, cache: str, axes: Mapping[str, list[str]], hues: Iterator[int]
) -> dict[str, TensorColour]:
    extents = _extents(plan.prefill, cache) | _extents(plan.decode, cache)
    found: dict[str, TensorColour] = {}
    for number, (tensor, known) in enumerate(axes.items()):
        axis, strength = next((a for a in known if a in extents), None), STRENGTHS[number % len(STRENGTHS)]
        if axis is not None:
            found[tensor] = TensorColour(tensor, axis, extents[axis], min(HUES, extents[axis]), 0, strength)
        elif extents:
            found[tensor] = TensorColour(tensor, None, 1, 1, WHOLE, strength)
        else:
            found[tensor] = TensorColour(tensor, None, 1, 1, next(hues) % HUES, 1.0)
    return found


def split_axes(side: Side, cache: str) -> set[str]:
    """Return the axes of a cache that are shared over workers."""
    return {axis for worker in side.workers for name, axis, _ in worker.holds if name == cache}


def _extents(side: Side, cache: str) -> dict[str, int]:
    """Return the items of every split axis with more than one, over all workers."""
    ends = [(axis, end) for worker in side.workers for name, axis, (_, end) in worker.holds if name == cache]
    found = {axis: max(end for other, end in ends if other == axis) for axis, _ in ends}
    return {axis: extent for axis, extent in found.items() if extent > 1}
