"""A small request beside a caller that computes in pure Python, by Python's switch interval."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import TYPE_CHECKING

from kvplan.bench.many import KIB, MODEL, SIDE
from kvplan.bench.peer import SECONDS, met, request
from kvplan.bench.report import Row
from kvplan.bench.sample import WARMUP

if TYPE_CHECKING:
    from kvplan.bench.peer import PeerPair

AREA = "beside a busy caller"
# Python's own switch interval and one that suits a worker, in seconds.
INTERVALS = (0.005, 0.001)
# A sample is a few requests, because each begins at a random time of the interval. Between them the caller computes.
REQUESTS, STEPS, BETWEEN = 4, 2000, 0.03


def measure(pairs: int) -> list[Row]:
    """Measure from submit to done, with the worker's own thread, while the caller never waits."""
    names = len(INTERVALS) * (WARMUP + pairs) * REQUESTS
    with met(MODEL, SIDE, SIDE, lambda _: 1, names) as pair:
        pair.decode.start()
        return [_row(pair, interval, pairs) for interval in INTERVALS]


def _row(pair: PeerPair, interval: float, pairs: int) -> Row:
    with switching(interval):
        times = [_seconds(pair) for _ in range(WARMUP + pairs)][WARMUP:]
    low, middle, high = (f"{1e3 * time:.1f}" for time in quantiles(times, n=4, method="inclusive"))
    name = f"{KIB} KiB, switch interval of {1e3 * interval:g} ms"
    return Row(AREA, name, f"{middle} ms", spread=f"{low}..{high}", pairs=pairs, details={"times": times})


@contextmanager
def switching(interval: float) -> Iterator[None]:
    """Set Python's switch interval to `interval` seconds inside the block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _seconds(pair: PeerPair) -> float:
    """Return the mean of a few requests."""
    return sum(_one(pair) for _ in range(REQUESTS)) / REQUESTS


def _one(pair: PeerPair) -> float:
    """Time one request, after the worker has had time to rest."""
    rested = time.perf_counter() + BETWEEN
    while time.perf_counter() < rested:
        _compute()
    began = time.perf_counter()
    transfer = pair.decode.submit(request(pair.plan, 1, next(pair.names)), SECONDS)
    while not transfer.ended:
        _compute()
    took = time.perf_counter() - began
    transfer.wait()
    return took


def _compute() -> int:
    return sum(number * number for number in range(STEPS))
