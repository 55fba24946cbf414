"""The keys that elements are multiplied with: odd 64 bit numbers mixed from coordinates, the same wherever they lie."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Interval, Ints
from kvplan.runtime.memory.coordinates import IndexDigit, LayerSheet, TensorField

MASK = (1 << 64) - 1
U64 = np.uint64
Longs = npt.NDArray[np.uint64]


def named(*words: str) -> int:
    """64 bits of the digest of some names."""
    return int.from_bytes(hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest(), "little")


def mixed(values: Longs) -> Longs:
    """A permutation of 64 bit numbers in which every bit depends on every other: the end of splitmix64."""
    found = (values ^ (values >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> U64(27))) * U64(0x94D049BB133111EB)
    return found ^ (found >> U64(31))


def of_numbers(numbers: Ints, seed: int) -> Longs:
    """A 64 bit hash of every number."""
    return mixed(numbers.astype(U64) * U64(0x9E3779B97F4A7C15) + U64(mixed(np.array([seed], U64))[0]))


def odd(numbers: Ints, seed: int) -> Ints:
    """An odd key for every number."""
    return (of_numbers(numbers, seed) | U64(1)).view(np.int64)


def of_layer(layer: int) -> int:
    """The key of a layer, a signed number of 64 bits."""
    return int(odd(np.array([layer]), named("layer"))[0])


def cropped(field: TensorField, sheet: LayerSheet, want: Mapping[str, Interval]) -> tuple[IndexDigit, ...] | None:
    """The digits of a field, each only as far as it reaches what is in `want`; None where nothing is."""
    inside = {axis: _inside(field, sheet, axis, field.digits, want) for axis in field.held}
    if not all(one.any() for one in inside.values()):
        return None
    found = []
    for at, digit in enumerate(field.digits):
        others = tuple(n for n in range(len(field.digits) + 1) if n != at)
        turns = np.flatnonzero(inside[digit.axis].any(axis=others))
        found.append(replace(digit, at=int(turns[0]), count=int(turns[-1] - turns[0]) + 1))
    return tuple(found)


def table(
    field: TensorField, sheet: LayerSheet, digits: tuple[IndexDigit, ...], want: Mapping[str, Interval], words: int
) -> Ints:
    """The key of every word of every element that `digits` reach, 0 for those not in `want`; flat, words innermost."""
    shape = (*(digit.count for digit in digits), words)
    total = np.zeros(shape, U64) + of_numbers(np.arange(words), named(field.cache, field.tensor))
    keep = np.ones(shape, np.bool_)
    for axis in field.held:
        total += of_numbers(_index(field, sheet, axis, digits), named(field.cache, field.tensor, axis))
        keep &= _inside(field, sheet, axis, digits, want)
    return np.where(keep, (mixed(total) | U64(1)).view(np.int64), 0).reshape(-1)


def _inside(
    field: TensorField, sheet: LayerSheet, axis: str, digits: tuple[IndexDigit, ...], want: Mapping[str, Interval]
) -> npt.NDArray[np.bool_]:
    low, high = want.get(axis, field.held[axis])
    index = _index(field, sheet, axis, digits)
    found: npt.NDArray[np.bool_] = (index >= low) & (index < high)
    return found


def _index(field: TensorField, sheet: LayerSheet, axis: str, digits: tuple[IndexDigit, ...]) -> Ints:
    """The global index on one axis, with a dimension for every digit and one for words, those of no use of length 1."""
    start = field.held[axis][0] + sum(moved for name, moved in sheet.moved if name == axis)
    index = np.full((1,) * (len(digits) + 1), start, np.int64)
    for at, digit in enumerate(digits):
        if digit.axis == axis:
            turns = np.arange(digit.at, digit.at + digit.count, dtype=np.int64) * digit.weight
            index = index + turns.reshape([-1 if n == at else 1 for n in range(len(digits) + 1)])
    return index
