"""Fit the costs of a transfer, a slice, a descriptor and a byte to the times of transfers of several kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimedTransfer:
    """A transfer, or the median of some of one kind, from submit to done; `cold` after an idle time."""

    slices: int
    descriptors: int
    bytes: int
    seconds: float
    cold: bool = False


@dataclass(frozen=True, slots=True)
class TransferRates:
    """Seconds of a transfer, a slice, a descriptor and a byte, and the extra seconds of a `cold` transfer.

    `error` is the largest relative error of any time.
    """

    transfer: float
    slice: float
    descriptor: float
    byte: float
    cold: float
    error: float


def fitted(timed: Sequence[TimedTransfer]) -> TransferRates:
    """Fit the rates with the least errors, relative to each time, so that short ones count as much."""
    counts = np.array([(1, each.slices, each.descriptors, each.bytes, each.cold) for each in timed], float)
    shares = counts / np.array([[each.seconds] for each in timed])
    rates = _nonnegative(shares)
    transfer, slice_, descriptor, byte, cold = rates.tolist()
    return TransferRates(transfer, slice_, descriptor, byte, cold, float(np.abs(shares @ rates - 1).max()))


def _nonnegative(shares: Floats) -> Floats:
    """Return rates of at least 0 whose shares add up to 1 most nearly; a rate that would be negative becomes 0."""
    rates, left = np.zeros(shares.shape[1]), np.flatnonzero(shares.any(axis=0)).tolist()
    while left:
        # Scaled by column, because bytes and transfers are many powers of ten apart.
        scale = np.abs(shares[:, left]).max(axis=0)
        solved = np.linalg.lstsq(shares[:, left] / scale, np.ones(len(shares)), rcond=None)[0] / scale
        if (solved >= 0).all():
            rates[left] = solved
            break
        left.pop(int(np.argmin(solved * scale)))
    return rates
