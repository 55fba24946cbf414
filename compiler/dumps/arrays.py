"""The arrays of a state or a row by a dump's spec, and the tensors of a layout that must fill them.
A state's spec has `shapes` and `dtypes`, one of each per array, in memory order; a row's spec has `head_size`
and `head_size_v`, elements of `dtype`. Arrays of bytes are opaque.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from kvplan.compiler.dumps.dump import CONTENT, DumpedLayer
from kvplan.dsl.lang.dtypes import SIZES, canonical

OPAQUE = "u8"


@dataclass(frozen=True, slots=True)
class DumpedArray:
    """Elements in row order, `at` bytes from the start of the state or the row."""

    at: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """The elements between two items of each axis."""
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    @property
    def bytes(self) -> int:
        return prod(self.shape) * SIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class LayoutArray:
    """A tensor of a layout: `at` as in DumpedArray, `axes` are (items, bytes between two of them)."""

    tensor: str
    at: int
    dtype: str
    axes: tuple[tuple[int, int], ...]


def arrays(layer: DumpedLayer, store: str) -> tuple[DumpedArray, ...]:
    """Return the spec's arrays, empty if it says too little; `unsaid` gives the reason."""
    return () if unsaid(layer, store) else _all(layer, store)


def unsaid(layer: DumpedLayer, store: str) -> str:
    """Say why a spec does not describe the parts of a state or a row; empty if it does."""
    found, size = _all(layer, store), layer.counts.get(CONTENT, 1) * layer.size
    if not found:
        return "the dump gives no shapes and dtypes" if store == "state" else "the dump gives no head sizes and dtype"
    if store == "state":
        return ""
    if any(array.dtype == OPAQUE for array in found):
        return "the dump gives bytes, and not what they are"
    said = sum(array.bytes for array in found)
    return "" if said == size else f"the dump's head sizes come to {said} of {size} bytes"


def _all(layer: DumpedLayer, store: str) -> tuple[DumpedArray, ...]:
    """Return the arrays of a checked spec, one after the other."""
    spec: Mapping[str, Any] = layer.spec
    if store == "state":
        return _behind(spec.get("dtypes", []), spec.get("shapes", []))
    widths = [spec[name] for name in ("head_size", "head_size_v") if spec.get(name)]
    return _behind([spec["dtype"]] * len(widths), [[width] for width in widths]) if spec.get("dtype") else ()


def _behind(dtypes: Sequence[str], shapes: Sequence[Sequence[int]]) -> tuple[DumpedArray, ...]:
    """Return arrays that lie one after the other."""
    found: list[DumpedArray] = []
    for dtype, shape in zip(dtypes, shapes, strict=True):
        found.append(DumpedArray(sum(array.bytes for array in found), canonical(dtype), tuple(shape)))
    return tuple(found)


def filled_by(found: Sequence[DumpedArray], fields: Iterable[LayoutArray]) -> bool:
    """Whether every tensor lies in one array, moves along whole axes of it, and no array has a hole.

    An array may be longer than its tensors at the end of an axis: taps for drafted tokens hold nothing.
    """
    inside: dict[int, list[tuple[LayoutArray, tuple[int, ...]]]] = {n: [] for n in range(len(found))}
    for field in fields:
        ends = [(n, _last(array, field)) for n, array in enumerate(found)]
        places = [(n, last) for n, last in ends if last is not None]
        if len(places) != 1:
            return False
        inside[places[0][0]].append((field, places[0][1]))
    return all(_whole(mine) for mine in inside.values())


def _whole(mine: Sequence[tuple[LayoutArray, tuple[int, ...]]]) -> bool:
    """Whether tensors fill the box from the array's first element to the last one of any of them."""
    box = prod(max(ends) + 1 for ends in zip(*(last for _, last in mine), strict=True))
    return bool(mine) and box == sum(prod(count for count, _ in field.axes) for field, _ in mine)


def _last(array: DumpedArray, field: LayoutArray) -> tuple[int, ...] | None:
    """Return the coordinates of a tensor's last element in an array, None if it does not lie along its axes."""
    size = SIZES[array.dtype]
    start = field.at - array.at
    if field.dtype != array.dtype or not 0 <= start < array.bytes or start % size:
        return None
    last = [start // size // step % count for step, count in zip(array.steps, array.shape, strict=True)]
    for count, step in ((count, step) for count, step in field.axes if count > 1):
        axis = next((n for n, own in enumerate(array.steps) if own * size <= step), None)
        if axis is None or step % (array.steps[axis] * size):
            return None
        last[axis] += (count - 1) * (step // size // array.steps[axis])
    return tuple(last) if all(n < count for n, count in zip(last, array.shape, strict=True)) else None


def arrays_text(found: Iterable[DumpedArray]) -> str:
    """Return `bf16 8192x3, f32 32x128x128`."""
    return ", ".join(f"{array.dtype} {'x'.join(map(str, array.shape))}" for array in found)


def fields_text(fields: Iterable[LayoutArray]) -> str:
    """Return `x bf16 at 0: 64 by 384, 64 by 6, 3 by 2; …`, bytes between items."""
    axes = [(field, ", ".join(f"{count} by {step}" for count, step in field.axes)) for field in fields]
    return "; ".join(f"{field.tensor} {field.dtype} at {field.at}: {text}" for field, text in axes)
