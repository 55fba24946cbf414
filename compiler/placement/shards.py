"""Shards: the part of every axis that a worker holds.

Law: for t <= n the shares of n items over t workers are disjoint and cover [0, n), and so do listed ones, which may
be empty; for t > n every item is held. Holdings of two workers are equal or disjoint.
"""

from __future__ import annotations

from math import gcd

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor, BoundWorker

Interval = tuple[int, int]
# (workers that take turns, tokens per turn, this worker's turn)
TokenShare = tuple[int, int, int]


def share(items: int, workers: int, index: int, copies: str = "consecutive") -> Interval:
    """Return the half-open interval of `items` that worker `index` of `workers` holds: a share, or one item's copy."""
    if workers <= items:
        return index * items // workers, (index + 1) * items // workers
    item = index * items // workers if copies == "consecutive" else index % items
    return item, item + 1


def proportional(items: int, workers: int) -> tuple[int, ...] | None:
    """Return every worker's number of items if shares are not listed; None if workers hold copies."""
    if workers > items:
        return None
    return tuple((i + 1) * items // workers - i * items // workers for i in range(workers))


def shard_intervals(side: BoundSide, tensor: BoundTensor, worker: BoundWorker) -> dict[str, Interval]:
    """Return the global interval on every axis but the token axis; split axes by the worker's mesh coordinate."""
    sizes, at, split = dict(side.sizes), dict(worker.at), dict(tensor.split)
    held = {}
    for axis, extent in tensor.axes:
        if extent and axis in split:
            held[axis] = _part(side, tensor, axis, extent, sizes[split[axis]], at[split[axis]])
        elif extent:
            held[axis] = (0, extent)
    return held


def _part(side: BoundSide, tensor: BoundTensor, axis: str, extent: int, workers: int, index: int) -> Interval:
    listed = dict(tensor.shares).get(axis)
    if listed is None:
        return share(extent, workers, index, side.copies)
    return sum(listed[:index]), sum(listed[: index + 1])


def token_share(side: BoundSide, cache: BoundCache, worker: BoundWorker) -> TokenShare:
    """Return a worker's turn of a cache's tokens; every worker has all of a state or a ring."""
    return (side.token_shards, side.interleave_tokens, worker.token_shard) if cache.shared else (1, 1, 0)


def meet(one: TokenShare, other: TokenShare) -> bool:
    """Whether two token shares have a token in common. Their offsets repeat modulo the gcd of both periods."""
    (ways, chunk, turn), (ways2, chunk2, turn2) = one, other
    apart = turn * chunk - turn2 * chunk2
    period = gcd(ways * chunk, ways2 * chunk2)
    return (apart + chunk - 1) // period * period > apart - chunk2
