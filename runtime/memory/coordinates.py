"""Which element lies where on a worker, from its side's own description alone: nothing of how a transfer is made.

An element's coordinate is its cache, global layer, tensor, global index on every axis, and token. A number beside an
axis is global from the start that the worker holds of it: an axis that is not in `Worker.holds` is held from 0 on.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Group, Interval, Planes, Side, View, Worker
from kvplan.runtime.memory.register import element

# The name of the axis that goes with the tokens: `token`, with the number of tokens in a row or without.
TOKEN = re.compile(r"token\d*")
LAYER = "layer"


@dataclass(frozen=True, slots=True)
class IndexDigit:
    """A digit of an axis' index: `count` values of `weight` items, `step` bytes apart, the first one `at` items on."""

    axis: str
    weight: int
    count: int
    step: int
    at: int = 0


@dataclass(frozen=True, slots=True)
class LayerSheet:
    """One layer of a tensor in one plane: plane number, bytes from the page, how far on the loops outside are."""

    plane: int
    offset: int
    layer: int
    moved: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TensorField:
    """One tensor on one worker: elements of `size` bytes, `unit` tokens a row (0: a state), `held` by axis.

    `rows` are the digits of the token axis, `digits` those of the others, outermost first.
    """

    cache: str
    tensor: str
    group: Group
    size: int
    tokens_per_row: int
    held: Mapping[str, Interval]
    rows: tuple[IndexDigit, ...]
    digits: tuple[IndexDigit, ...]
    sheets: tuple[LayerSheet, ...]

    @property
    def layers(self) -> frozenset[int]:
        return frozenset(sheet.layer for sheet in self.sheets)


def fields(side: Side, worker: int) -> tuple[TensorField, ...]:
    """All tensors of a worker. Raises PlanFormatError where the side does not say what coordinates they have."""
    groups, mine = {group.name: group for group in side.groups}, side.workers[worker]
    return tuple(
        _field(mine, groups[entry.group], entry, view)
        for entry in mine.planes
        for view in entry.views
        if all(count for _, count, _ in view.axes) and all(indices for _, indices, _ in entry.loops)
    )


def _field(worker: Worker, group: Group, entry: Planes, view: View) -> TensorField:
    digits = tuple(_digit(*axis) for axis in view.axes)
    where = f"{view.tensor!r} of {entry.cache!r}"
    size, rows = element(view.dtype), tuple(d for d in digits if TOKEN.fullmatch(d.axis))
    rest = tuple(d for d in digits if d not in rows and d.axis != LAYER)
    if not size:
        raise PlanFormatError(f"{where} is of {view.dtype!r}, which has no whole bytes: it cannot be checked")
    unit = _unit(group, rows, where)
    held = _held(worker, entry, rest, where)
    inside = tuple(d for d in digits if d.axis == LAYER)
    sheets = tuple(_sheets(entry, view, inside, held, where))
    return TensorField(entry.cache, view.tensor, group, size, unit, held, rows, rest, sheets)


def _digit(name: str, count: int, step: int) -> IndexDigit:
    axis, _, weight = name.partition("/")
    return IndexDigit(axis, int(weight or 1), count, step)


def _unit(group: Group, rows: tuple[IndexDigit, ...], where: str) -> int:
    if group.store == "state" and not rows:
        return 0
    count = math.prod(digit.count for digit in rows)
    if not rows or len({digit.axis for digit in rows}) > 1 or not group.kernel or group.kernel % count:
        said = f"{len(rows)} axes of tokens, {count} rows in a block of {group.kernel} tokens"
        raise PlanFormatError(f"{where} has {said}: name the axis of its rows token, so that it can be checked")
    return group.kernel // count


def _held(worker: Worker, entry: Planes, digits: tuple[IndexDigit, ...], where: str) -> dict[str, Interval]:
    """The global interval on every axis: as the loops outside begin, or the worker's holding, or from 0 on."""
    said = {axis: interval for cache, axis, interval in worker.holds if cache == entry.cache}
    outside = [(axis, indices) for axis, indices, _ in entry.loops if axis != LAYER]
    found = {}
    for axis in dict.fromkeys([axis for axis, _ in outside] + [digit.axis for digit in digits]):
        counts = [len(indices) for name, indices in outside if name == axis]
        count = math.prod(counts + [digit.count for digit in digits if digit.axis == axis])
        begins = {indices[0] for name, indices in outside if name == axis} or {said.get(axis, (0, 0))[0]}
        start = min(begins)
        if len(begins) > 1 or (axis in said and said[axis] != (start, start + count)):
            text = f"{where} has {count} of axis {axis!r} from {sorted(begins)}, its worker holds {said.get(axis)}"
            raise PlanFormatError(f"{text}: it cannot be checked")
        found[axis] = (start, start + count)
    return found


def _sheets(
    entry: Planes, view: View, inside: tuple[IndexDigit, ...], held: Mapping[str, Interval], where: str
) -> list[LayerSheet]:
    layers = _layers(entry, inside, where)
    found = []
    for chosen in itertools.product(*(list(enumerate(indices)) for _, indices, _ in entry.loops)):
        loops = [(axis, step, turn, index) for (axis, _, step), (turn, index) in zip(entry.loops, chosen, strict=True)]
        plane = entry.first + sum(step * turn for _, step, turn, _ in loops)
        moved = tuple((axis, index - held[axis][0]) for axis, _, _, index in loops if axis != LAYER)
        layer = next((index for axis, _, _, index in loops if axis == LAYER), None)
        mine = [(0, layer)] if layer is not None else layers
        found += [LayerSheet(plane, view.offset + offset, number, moved) for offset, number in mine]
    return found


def _layers(entry: Planes, inside: tuple[IndexDigit, ...], where: str) -> list[tuple[int, int]]:
    """Bytes from the page to every layer that lies inside it, and the layer's number."""
    if any(axis == LAYER for axis, _, _ in entry.loops) and not inside and not entry.layers:
        return []
    places = itertools.product(*(range(digit.count) for digit in inside))
    found = {}
    for at in places:
        index = sum(turn * digit.weight for turn, digit in zip(at, inside, strict=True))
        found[index] = sum(turn * digit.step for turn, digit in zip(at, inside, strict=True))
    if sorted(found) != list(range(len(entry.layers))):
        said = f"{len(entry.layers)} layers inside a page, and loops over {len(found)}"
        raise PlanFormatError(f"{where} has {said}: it cannot be checked")
    return [(found[index], layer) for index, layer in enumerate(entry.layers)]
