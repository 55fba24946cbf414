"""Elements of cache memory: their addresses on a worker, taken only from its side's description, and their keys.

An element's coordinate is its cache, global layer, tensor, global index on every axis, and token. A worker's index on
an axis becomes global by adding the start of its interval in `Worker.holds`, 0 if the axis is not there. A key is an
odd 64 bit number, a hash of the coordinate, so it does not depend on the element's address.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Group, Interval, Ints, Planes, Side, View, Worker
from kvplan.runtime.memory.register import element

# The name of the token axis: `token`, optionally followed by the number of tokens in a row.
TOKEN = re.compile(r"token\d*")
LAYER = "layer"
MASK = (1 << 64) - 1
U64 = np.uint64
Longs = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class IndexDigit:
    """A digit of the index on an axis: `count` values from `at` on, each worth `weight`, and `step` bytes apart."""

    axis: str
    weight: int
    count: int
    step: int
    at: int = 0


@dataclass(frozen=True, slots=True)
class LayerSheet:
    """One layer of a tensor in one plane, `offset` bytes from the page. `moved`: the outer loops' offsets by axis."""

    plane: int
    offset: int
    layer: int
    moved: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TensorField:
    """One tensor on one worker: elements of `size` bytes, tokens per row (0 for a state), global `ranges` by axis.

    `rows` are the digits of the token axis, `digits` those of the others, outermost first.
    """

    cache: str
    tensor: str
    group: Group
    size: int
    tokens_per_row: int
    ranges: Mapping[str, Interval]
    rows: tuple[IndexDigit, ...]
    digits: tuple[IndexDigit, ...]
    sheets: tuple[LayerSheet, ...]

    @property
    def layers(self) -> frozenset[int]:
        return frozenset(sheet.layer for sheet in self.sheets)


def fields(side: Side, number: int) -> tuple[TensorField, ...]:
    """Return all tensors of a worker. Raises PlanFormatError if the side does not give their coordinates."""
    groups, worker = {group.name: group for group in side.groups}, side.workers[number]
    return tuple(
        _field(worker, groups[entry.group], entry, view)
        for entry in worker.planes
        for view in entry.views
        if all(count for _, count, _ in view.axes) and all(indices for _, indices, _ in entry.loops)
    )


def _field(worker: Worker, group: Group, entry: Planes, view: View) -> TensorField:
    digits = tuple(_digit(*axis) for axis in view.axes)
    where, size = f"{view.tensor!r} of {entry.cache!r}", element(view.dtype)
    if not size:
        raise PlanFormatError(f"{where} is of {view.dtype!r}, which has no whole bytes: it cannot be checked")
    rows = tuple(digit for digit in digits if TOKEN.fullmatch(digit.axis))
    layers = tuple(digit for digit in digits if digit.axis == LAYER)
    rest = tuple(digit for digit in digits if digit not in rows and digit not in layers)
    ranges = _ranges(worker, entry, rest, where)
    sheets = tuple(_sheets(entry, view, layers, ranges, where))
    per_row = _tokens_per_row(group, rows, where)
    return TensorField(entry.cache, view.tensor, group, size, per_row, ranges, rows, rest, sheets)


def _digit(name: str, count: int, step: int) -> IndexDigit:
    axis, _, weight = name.partition("/")
    return IndexDigit(axis, int(weight or 1), count, step)


def _tokens_per_row(group: Group, rows: tuple[IndexDigit, ...], where: str) -> int:
    if group.store == "state" and not rows:
        return 0
    count = math.prod(digit.count for digit in rows)
    if not rows or len({digit.axis for digit in rows}) > 1 or not group.kernel or group.kernel % count:
        text = f"{len(rows)} axes of tokens, {count} rows in a block of {group.kernel} tokens"
        raise PlanFormatError(f"{where} has {text}: name the axis of its rows token, so that it can be checked")
    return group.kernel // count


def _ranges(worker: Worker, entry: Planes, digits: tuple[IndexDigit, ...], where: str) -> dict[str, Interval]:
    """Return the global interval on every axis, from the begin of the outer loops, else of the holding, else from 0."""
    holds = {axis: interval for cache, axis, interval in worker.holds if cache == entry.cache}
    outside = [(axis, indices) for axis, indices, _ in entry.loops if axis != LAYER]
    ranges = {}
    for axis in dict.fromkeys([axis for axis, _ in outside] + [digit.axis for digit in digits]):
        counts = [len(indices) for name, indices in outside if name == axis]
        count = math.prod(counts + [digit.count for digit in digits if digit.axis == axis])
        begins = {indices[0] for name, indices in outside if name == axis} or {holds.get(axis, (0, 0))[0]}
        start = min(begins)
        if len(begins) > 1 or (axis in holds and holds[axis] != (start, start + count)):
            text = f"{where} has {count} of axis {axis!r} from {sorted(begins)}, its worker holds {holds.get(axis)}"
            raise PlanFormatError(f"{text}: it cannot be checked")
        ranges[axis] = (start, start + count)
    return ranges


def _sheets(
    entry: Planes, view: View, layers: tuple[IndexDigit, ...], ranges: Mapping[str, Interval], where: str
) -> list[LayerSheet]:
    inside = _layers_inside(entry, layers, where)
    sheets = []
    for chosen in itertools.product(*(list(enumerate(indices)) for _, indices, _ in entry.loops)):
        loops = [(axis, step, turn, index) for (axis, _, step), (turn, index) in zip(entry.loops, chosen, strict=True)]
        plane = entry.first + sum(step * turn for _, step, turn, _ in loops)
        moved = tuple((axis, index - ranges[axis][0]) for axis, _, _, index in loops if axis != LAYER)
        layer = next((index for axis, _, _, index in loops if axis == LAYER), None)
        places = [(0, layer)] if layer is not None else inside
        sheets += [LayerSheet(plane, view.offset + offset, number, moved) for offset, number in places]
    return sheets


def _layers_inside(entry: Planes, layers: tuple[IndexDigit, ...], where: str) -> list[tuple[int, int]]:
    """Return (bytes from the page, layer number) of every layer that lies inside a page."""
    if any(axis == LAYER for axis, _, _ in entry.loops) and not layers and not entry.layers:
        return []
    offsets = {}
    for at in itertools.product(*(range(digit.count) for digit in layers)):
        index = sum(turn * digit.weight for turn, digit in zip(at, layers, strict=True))
        offsets[index] = sum(turn * digit.step for turn, digit in zip(at, layers, strict=True))
    if sorted(offsets) != list(range(len(entry.layers))):
        text = f"{len(entry.layers)} layers inside a page, and loops over {len(offsets)}"
        raise PlanFormatError(f"{where} has {text}: it cannot be checked")
    return [(offsets[index], layer) for index, layer in enumerate(entry.layers)]


def name_hash(*words: str) -> int:
    """Return a 64 bit hash of names."""
    return int.from_bytes(hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest(), "little")


def hashes(numbers: Ints, seed: int) -> Longs:
    """Return a 64 bit hash of every number."""
    return _mixed(numbers.astype(U64) * U64(0x9E3779B97F4A7C15) + U64(_mixed(np.array([seed], U64))[0]))


def odd_keys(numbers: Ints, seed: int) -> Ints:
    """Return an odd key for every number."""
    return (hashes(numbers, seed) | U64(1)).view(np.int64)


def layer_key(layer: int) -> int:
    """Return the key of a layer, a signed 64 bit number."""
    return int(odd_keys(np.array([layer]), name_hash("layer"))[0])


def cropped(field: TensorField, sheet: LayerSheet, want: Mapping[str, Interval]) -> tuple[IndexDigit, ...] | None:
    """Return the digits of a field, each cut to the range that `want` needs, or None if `want` needs nothing."""
    inside = {axis: _inside(field, sheet, axis, field.digits, want) for axis in field.ranges}
    if not all(mask.any() for mask in inside.values()):
        return None
    digits = []
    for at, digit in enumerate(field.digits):
        others = tuple(axis for axis in range(len(field.digits) + 1) if axis != at)
        turns = np.flatnonzero(inside[digit.axis].any(axis=others))
        digits.append(replace(digit, at=int(turns[0]), count=int(turns[-1] - turns[0]) + 1))
    return tuple(digits)


def key_table(
    field: TensorField, sheet: LayerSheet, digits: tuple[IndexDigit, ...], want: Mapping[str, Interval], words: int
) -> Ints:
    """Return a flat table of the keys of all words that `digits` reach, words innermost, with 0 outside of `want`."""
    shape = (*(digit.count for digit in digits), words)
    total = np.zeros(shape, U64) + hashes(np.arange(words), name_hash(field.cache, field.tensor))
    keep = np.ones(shape, np.bool_)
    for axis in field.ranges:
        total += hashes(_index(field, sheet, axis, digits), name_hash(field.cache, field.tensor, axis))
        keep &= _inside(field, sheet, axis, digits, want)
    return np.where(keep, (_mixed(total) | U64(1)).view(np.int64), 0).reshape(-1)


def _mixed(values: Longs) -> Longs:
    """Return 64 bit numbers permuted by the last step of splitmix64: each bit depends on all bits of the input."""
    values = (values ^ (values >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> U64(27))) * U64(0x94D049BB133111EB)
    return values ^ (values >> U64(31))


def _inside(
    field: TensorField, sheet: LayerSheet, axis: str, digits: tuple[IndexDigit, ...], want: Mapping[str, Interval]
) -> npt.NDArray[np.bool_]:
    low, high = want.get(axis, field.ranges[axis])
    index = _index(field, sheet, axis, digits)
    mask: npt.NDArray[np.bool_] = (index >= low) & (index < high)
    return mask


def _index(field: TensorField, sheet: LayerSheet, axis: str, digits: tuple[IndexDigit, ...]) -> Ints:
    """Return global indices on one axis, with a dimension per digit and one for words. Unused ones have length 1."""
    start = field.ranges[axis][0] + sum(moved for name, moved in sheet.moved if name == axis)
    index = np.full((1,) * (len(digits) + 1), start, np.int64)
    for at, digit in enumerate(digits):
        if digit.axis == axis:
            turns = np.arange(digit.at, digit.at + digit.count, dtype=np.int64) * digit.weight
            index = index + turns.reshape([-1 if axis_ == at else 1 for axis_ in range(len(digits) + 1)])
    return index
