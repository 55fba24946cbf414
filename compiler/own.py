"""Own: which part of every axis a worker holds.

Law: for t <= n the shares of n items over t workers are disjoint and cover [0, n); for t > n every item is held,
and holdings of two workers are equal or disjoint.
"""

from __future__ import annotations

from functools import lru_cache
from math import lcm

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor, BoundWorker

Interval = tuple[int, int]


def share(items: int, workers: int, index: int, copies: str = "consecutive") -> Interval:
    """The half-open interval of `items` that worker `index` of `workers` holds: a share, or a copy of one item."""
    if workers <= items:
        return index * items // workers, (index + 1) * items // workers
    item = index * items // workers if copies == "consecutive" else index % items
    return item, item + 1


def holding(side: BoundSide, tensor: BoundTensor, worker: BoundWorker) -> dict[str, Interval]:
    """Global interval on every axis but the token axis, split axes by the worker's mesh coordinate."""
    sizes, at, split = dict(side.sizes), dict(worker.at), dict(tensor.split)
    held = {}
    for axis, extent in tensor.axes:
        if extent and axis in split:
            held[axis] = share(extent, sizes[split[axis]], at[split[axis]], side.copies)
        elif extent:
            held[axis] = (0, extent)
    return held


def token_share(side: BoundSide, cache: BoundCache, worker: BoundWorker) -> tuple[int, int, int]:
    """(workers that take turns, tokens per turn, this worker's turn) of a cache's tokens."""
    if side.tokens_over is None or cache.store != "tokens":
        return 1, 1, 0
    return dict(side.sizes)[side.tokens_over], side.chunk, dict(worker.at)[side.tokens_over]


@lru_cache(maxsize=4096)
def meet(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether two token shares have a token in common, over one period of both."""
    (ways, chunk, turn), (ways2, chunk2, turn2) = one, other
    period = lcm(ways * chunk, ways2 * chunk2)
    starts = range(turn * chunk, period, ways * chunk)
    return any(_touches(start, start + chunk, ways2, chunk2, turn2) for start in starts)


def _touches(start: int, end: int, ways: int, chunk: int, turn: int) -> bool:
    if end - start >= ways * chunk:
        return True
    return any(n % ways == turn for n in range(start // chunk, (end - 1) // chunk + 1))
