"""Time two actions in turns, so that disturbances of the machine affect both."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles

PAIRS, WARMUP = 15, 2


@dataclass(frozen=True, slots=True)
class Ratio:
    """`ours` and `theirs` are medians in seconds; `ratio` is the median of ours / theirs over all pairs.

    `low` and `high` are the quartiles of that ratio, `least` and `most` its extremes.
    """

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    least: float
    most: float
    pairs: int


def interleave(
    ours: Callable[[], object], theirs: Callable[[], object], pairs: int = PAIRS, warmup: int = WARMUP
) -> Ratio:
    """Time `ours` and `theirs` in turns, `pairs` times each; they alternate in going first."""
    for _ in range(warmup):
        ours(), theirs()
    times = [_both(ours, theirs, swap=bool(turn % 2)) for turn in range(pairs)]
    return summary(times)


def summary(times: list[tuple[float, float]]) -> Ratio:
    """Return medians and spread of pairs of times in seconds; needs two pairs or more."""
    ratios = sorted(mine / other for mine, other in times)
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    mine, other = (median(column) for column in zip(*times, strict=True))
    return Ratio(mine, other, middle, low, high, ratios[0], ratios[-1], len(times))


def clock(action: Callable[[], object]) -> float:
    """Return the seconds of one call, without garbage collection."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter()
        action()
        return time.perf_counter() - start
    finally:
        if enabled:
            gc.enable()


def _both(ours: Callable[[], object], theirs: Callable[[], object], swap: bool) -> tuple[float, float]:
    if not swap:
        return clock(ours), clock(theirs)
    other = clock(theirs)
    return clock(ours), other
