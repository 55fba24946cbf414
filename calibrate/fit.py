"""What transfers of several kinds took, as what a transfer, a slice, a descriptor and a byte take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimedTransfer:
    """A transfer, or the median of some of a kind, from submit to done; `cold` where there was nothing to do before."""

    slices: int
    descriptors: int
    bytes: int
    seconds: float
    cold: bool = False


@dataclass(frozen=True, slots=True)
class TransferRates:
    """Seconds that a transfer, a slice, a descriptor and a byte take, and those that a `cold` transfer takes longer.

    `error` is the largest part that any time is off.
    """

    transfer: float
    slice: float
    descriptor: float
    byte: float
    cold: float
    error: float


def fitted(timed: Sequence[TimedTransfer]) -> TransferRates:
    """The rates by which the times are least off, each by its part of the time, so that short ones count as much."""
    counts = np.array([(1, each.slices, each.descriptors, each.bytes, each.cold) for each in timed], float)
    shares = counts / np.array([[each.seconds] for each in timed])
    rates = _nonnegative(shares)
    transfer, slice_, descriptor, byte, cold = rates.tolist()
    return TransferRates(transfer, slice_, descriptor, byte, cold, float(np.abs(shares @ rates - 1).max()))


def _nonnegative(shares: Floats) -> Floats:
    """Rates of which none is below 0 whose shares add up to 1 most nearly: what would be below 0 takes no time."""
    rates, left = np.zeros(shares.shape[1]), np.flatnonzero(shares.any(axis=0)).tolist()
    while left:
        # By columns of one size: bytes and transfers are many powers of ten apart.
        scale = np.abs(shares[:, left]).max(axis=0)
        solved = np.linalg.lstsq(shares[:, left] / scale, np.ones(len(shares)), rcond=None)[0] / scale
        if (solved >= 0).all():
            rates[left] = solved
            break
        left.pop(int(np.argmin(solved * scale)))
    return rates
