"""Which interval of a split axis a nest moves, read off the decode pages it lands in."""

from __future__ import annotations

from functools import lru_cache

from kvplan.dsl.lang.dtypes import size
from kvplan.plan import planes as names
from kvplan.plan.types import Interval, Nest, Planes, Read, View, Worker


@lru_cache(maxsize=64)
def numbered(worker: Worker) -> tuple[tuple[names.Plane, Planes], ...]:
    """Every plane of a worker by number, with the entry of the plan that it comes from."""
    return tuple(zip(names.planes(worker), names.entries(worker), strict=True))


def entry(worker: Worker, plane: int) -> Planes:
    """The entry of the plan that a plane comes from."""
    return numbered(worker)[plane][1]


def interval(worker: Worker, read: Read, nest: Nest, axis: str, held: Interval) -> Interval | None:
    """The global interval of a nest on a split axis, None where its tensors do not have that axis.

    Read off the pages of the decode worker: the index under the first byte and under the last one. Where the axis
    lies in tiles it is `held`, what the whole read holds.
    """
    first = read.first[1] + nest.decode[0]
    last = first + sum((loop.count - 1) * loop.decode[0] for loop in nest.loops)
    end = nest.decode[1] + nest.bytes - 1 + sum((loop.count - 1) * loop.decode[1] for loop in nest.loops)
    if not _has(entry(worker, first), nest, axis):
        return None
    start = next((where[0] for cache, name, where in worker.holds if (cache, name) == (read.cache, axis)), 0)
    low, high = _index(worker, first, nest.decode[1], axis, start), _index(worker, last, end, axis, start)
    return held if low is None or high is None or not held[0] <= low <= high < held[1] else (low, high + 1)


def _has(entry: Planes, nest: Nest, axis: str) -> bool:
    inside = [name for view in entry.views if view.tensor in nest.tensors for name, _, _ in view.axes]
    return axis in inside or axis in [name for name, _, _ in entry.loops]


def _index(worker: Worker, plane: int, offset: int, axis: str, start: int) -> int | None:
    """The global index on `axis` of a byte of a page, None where it cannot be read off."""
    found, entry = numbered(worker)[plane]
    if axis in dict(found.at):
        return dict(found.at)[axis]
    indices = {_digit(view, offset, axis) for view in entry.views}
    indices.discard(None)
    return start + (indices.pop() or 0) if len(indices) == 1 else None


def _digit(view: View, offset: int, axis: str) -> int | None:
    """The index on `axis` of the tensor's element at `offset`, None where there is none or the axis is in tiles."""
    rest, found = offset - view.offset, []
    for name, count, width in view.axes:
        turn = min(rest // width, count - 1)
        rest -= turn * width
        found += [turn] if name == axis else []
    return found[0] if len(found) == 1 and 0 <= rest < size(view.dtype) else None
