"""Checks of descriptors before a transport sees them: NIXL accepts what wraps around 2^64, and dies of it later."""

from __future__ import annotations

import numpy as np

from kvplan.plan.types import Ints
from kvplan.runtime.errors import AddressError
from kvplan.runtime.memory.arrays import TOP


def check_spans(spans: Ints) -> None:
    """Raises AddressError where a row (address, bytes, ...) is empty, leaves the address space, or is not int64."""
    if spans.dtype != np.int64:
        raise AddressError(f"descriptors are int64, not {spans.dtype}: a cast would change addresses in silence")
    address, size = spans[:, 0], spans[:, 1]
    bad = (address < 1) | (size < 1) | (size > TOP - 1 - np.maximum(address, 0))
    _refuse(spans, bad)


def check_rows(rows: Ints) -> None:
    """Raises AddressError where a strided row (address, bytes, device, stride, count) is empty, or wraps."""
    check_spans(rows)
    device, stride, count = rows[:, 2], rows[:, 3], rows[:, 4]
    room = TOP - 1 - rows[:, 0] - rows[:, 1]
    _refuse(rows, (device < 0) | (stride < 1) | (count < 1) | (count - 1 > room // np.maximum(stride, 1)))


def _refuse(rows: Ints, bad: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    if bad.any():
        raise AddressError(f"descriptor {rows[bad.argmax()].tolist()} is empty, or leaves the address space")
