"""The order of an array's axes in memory, and advice if the plan's side has another order.

An axis is recognised only by its extent. If extents allow two orders, this module gives no advice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from kvplan.plan.types import Planes, View
from kvplan.runtime.memory.arrays import MemoryArray

Axis = tuple[str, int, int]
Names = tuple[str, ...]
# The names of an array's axes in memory, outermost first. An axis that packs several axes has all their names.
Reading = tuple[Names, ...]

BLOCK = "block"
# The names that engines and attention kernels have for the two orders of a page if each layer has its own plane.
WORDS: Mapping[Names, str] = {("token", "head"): "nhd", ("head", "token"): "hnd"}


@dataclass(frozen=True, slots=True)
class PageAxes:
    """The axes of one plane of the side `key`: (name, extent, step in bytes), outermost first, none of extent 1.

    Axes `outside` the block have one plane per index; those `inside` lie in a page. Blocks are `stride` bytes apart,
    and the innermost step has `unit` bytes.
    """

    key: str
    outside: tuple[tuple[str, int], ...]
    stride: int
    inside: tuple[Axis, ...]
    unit: int

    @property
    def order(self) -> Names:
        return (*(name for name, _ in self.outside), BLOCK, *(name for name, _, _ in self.inside))

    @property
    def steps(self) -> Mapping[str, int]:
        return {BLOCK: self.stride} | {name: step for name, _, step in self.inside}


def page_axes(key: str, entry: Planes) -> PageAxes:
    """Return the axes of a whole page: those of all its tensors, and the tensors as one more axis if they form one."""
    inside = common_axes(entry.views)
    if every := tensor_axis(entry.views):
        with_tensors = sorted((*inside, every), key=lambda axis: -axis[2])
        inside = tuple(with_tensors) if _filled(with_tensors) == entry.page_bytes else inside
    unit = min((step for _, _, step in inside), default=entry.page_bytes)
    return PageAxes(key, _outside(entry), entry.stride, inside, unit)


def tensor_axes(key: str, entry: Planes, view: View, unit: int) -> PageAxes:
    """Return the axes of one tensor of a page, whose elements have `unit` bytes."""
    return PageAxes(key, _outside(entry), entry.stride, tuple(axis for axis in view.axes if axis[1] > 1), unit)


def common_axes(views: Sequence[View]) -> tuple[Axis, ...]:
    """Return the axes that all tensors of a page share, outermost first, none of extent 1."""
    levels = zip(*([axis for axis in view.axes if axis[1] > 1] for view in views), strict=False)
    return tuple(level[0] for level in takewhile(lambda level: len({axis[1:] for axis in level}) == 1, levels))


def tensor_axis(views: Sequence[View]) -> Axis | None:
    """Return the tensors of a page as an axis (`k/v`, number, bytes apart), or None if their distances differ."""
    ordered = sorted(views, key=lambda view: view.offset)
    steps = set(np.diff([view.offset for view in ordered]).tolist())
    return ("/".join(view.tensor for view in ordered), len(views), steps.pop()) if len(steps) == 1 else None


def _outside(entry: Planes) -> tuple[tuple[str, int], ...]:
    return tuple((axis, len(indices)) for axis, indices, _ in entry.loops if len(indices) > 1)


def _filled(axes: Sequence[Axis]) -> int:
    """Return the bytes of a page that has these axes and no gaps."""
    return math.prod(extent for _, extent, _ in axes) * min(step for _, _, step in axes)


def advice(page: PageAxes, array: MemoryArray) -> str:
    """Return sentences to add to the error about an array that does not fit, none if its order of axes is unclear."""
    reading = order_in_memory(page, array)
    if reading is None:
        return ""
    wanted = tuple(name for name in page.order if any(name in names for names in reading))
    if _fits(reading, wanted):
        return _transposed(array)
    here, there = _without_common(reading, wanted)
    said = f". In memory, outermost first, the axes of this array look like {_axes_text(here)}"
    return f"{said}; the plan's side {page.key} has {', '.join(there)}. {_recompile(page, reading, wanted)}"


def order_in_memory(page: PageAxes, array: MemoryArray) -> Reading | None:
    """Return the order of an array's axes in memory, or None if none or several are possible.

    Axis 0 is taken for the block. Another axis is tried only if no order fits then.
    """
    axes = sorted((axis for axis in _numbered(array) if axis[1] > 1), key=lambda axis: (-axis[2], axis[0]))
    if page.unit % array.itemsize or any(step < 1 for _, _, step in axes):
        return None
    for numbers in ({0}, set(range(1, len(array.shape)))):
        found = {_with_gaps(page, axes, reading) for reading in _readings(page, axes, numbers, array)}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _numbered(array: MemoryArray) -> Iterator[tuple[int, int, int]]:
    """Return (number, extent, step in bytes) of every axis."""
    return zip(range(len(array.shape)), array.shape, array.strides, strict=True)


def _readings(
    page: PageAxes, axes: Sequence[tuple[int, int, int]], numbers: set[int], array: MemoryArray
) -> set[Reading]:
    """Return all namings of the axes that use every name. The block is one of `numbers`, or has extent 1 there."""
    left = {name: extent for name, extent, _ in page.inside}
    alone = any(extent == 1 for number, extent in enumerate(array.shape) if number in numbers)
    found = _named(axes, left, numbers, page.unit // array.itemsize)
    return {reading for reading in found if alone or (BLOCK,) in reading}


def _named(
    axes: Sequence[tuple[int, int, int]], left: Mapping[str, int], block: set[int], items: int
) -> Iterator[Reading]:
    """Yield names for axes; `left` are still unused. The last axis may pack all that are left, `items` items each."""
    if not axes:
        yield from [()] if not left and items == 1 else []
        return
    (number, extent, _), *others = axes
    if number in block:
        yield from (((BLOCK,), *rest) for rest in _named(others, left, set(), items))
    for name in [name for name, size in left.items() if size == extent]:
        unused = {other: size for other, size in left.items() if other != name}
        yield from (((name,), *rest) for rest in _named(others, unused, block, items))
    if not others and extent == math.prod(left.values()) * items:
        yield (tuple(left),)


def _with_gaps(page: PageAxes, axes: Sequence[tuple[int, int, int]], reading: Reading) -> Reading:
    """Return the reading with axes from outside the block added where a step is too long by such an axis' extent.

    An array of one layer has such a step if the layers lie inside a block.
    """
    found: list[Names] = []
    for at, names in enumerate(reading):
        found.append(names)
        if at + 1 == len(axes) or page.steps.get(names[0]) == axes[at][2]:
            continue
        between = axes[at][2] / (axes[at + 1][1] * axes[at + 1][2])
        hidden = [(name,) for name, extent in page.outside if extent == between and (name,) not in found]
        found += hidden if len(hidden) == 1 else []
    return tuple(found)


def _fits(reading: Reading, wanted: Names) -> bool:
    """Return whether an array's axes can be in the wanted order. Packed axes may be in any order."""
    return not _without_common(reading, wanted)[0]


def _without_common(reading: Reading, wanted: Names) -> tuple[Reading, Names]:
    """Return both orders without the innermost axes that they have in common."""
    while reading and {*wanted[len(wanted) - len(reading[-1]) :]} == {*reading[-1]}:
        reading, wanted = reading[:-1], wanted[: len(wanted) - len(reading[-1])]
    return reading, wanted


def _transposed(array: MemoryArray) -> str:
    """Return how to pass an array whose bytes are in the plan's order, but whose axes are indexed in another."""
    numbers = [number for number, _, _ in sorted(_numbered(array), key=lambda axis: (-axis[2], axis[0]))]
    if numbers == sorted(numbers):
        return ""
    order = ", ".join(map(str, numbers))
    return f". Its axes are in another order than its bytes: pass array.transpose({order}) (torch: permute)"


def _recompile(page: PageAxes, reading: Reading, wanted: Names) -> str:
    """Return which side to compile. The plan does not know its engine's words, so only common orders are named."""
    word = WORDS.get(tuple(name for (name, *_) in filter(None, reading) if name in ("token", "head")))
    swap = {"token": "head", "head": "token"}
    inside = {name for name, _, _ in page.inside}
    if word and "layer" not in inside and _fits(reading, tuple(swap.get(name, name) for name in wanted)):
        keys = [part for part in page.key.split(",") if not part.startswith("order=")]
        return f"This looks like {word}: compile that side as {','.join([*keys, f'order={word}'])}"
    return "Compile that side with this array's engine and order: `kvplan explain ENGINE` lists the orders"


def _axes_text(reading: Reading) -> str:
    return ", ".join("+".join(names) for names in reading)
