"""Which part of a tensor each worker has, and which parts of two sides overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.compiler.placement.shards import Interval, TokenShare, meet, shard_intervals, token_share
from kvplan.dsl.text.grouped import grouped


@dataclass(frozen=True, slots=True)
class TensorHoldings:
    """What workers hold of one tensor: intervals per axis, layers, and their turn of the tokens."""

    intervals: tuple[tuple[str, Interval], ...]
    layers: tuple[int, ...]
    token_shard: TokenShare


def classes(side: BoundSide, cache: BoundCache, tensor: BoundTensor) -> dict[TensorHoldings, list[int]]:
    """Workers by what they hold of a tensor, holders in order of worker number; nothing held is left out."""
    found: dict[TensorHoldings, list[int]] = {}
    stages = {w.layers: tuple(n for n in cache.layers if n in w.layers) for w in side.workers}
    for worker in side.workers:
        held = tuple(shard_intervals(side, tensor, worker).items())
        what = TensorHoldings(held, stages[worker.layers], token_share(side, cache, worker))
        if what.layers and all(start < stop for _, (start, stop) in what.intervals):
            found.setdefault(what, []).append(worker.number)
    return found


def overlap(one: TensorHoldings, other: TensorHoldings) -> bool:
    for (_, (a, b)), (_, (c, d)) in zip(one.intervals, other.intervals, strict=True):
        if a >= d or c >= b:
            return False
    return meet(one.token_shard, other.token_shard) and not set(one.layers).isdisjoint(other.layers)


def overlapping(needs: Iterable[TensorHoldings]) -> Callable[[TensorHoldings], list[TensorHoldings]]:
    """What finds those of `needs`, the holdings of one side, that overlap a holding of the other.

    They are equal or disjoint on every axis: on the one that tells most of them apart only those near are tested.
    """
    every = list(needs)
    by_axis = [grouped(zip(found, every, strict=True)) for found in zip(*map(_intervals, every), strict=True)]
    if not by_axis:
        return lambda what: []
    axis, alike = max(enumerate(by_axis), key=lambda each: len(each[1]))
    parts = sorted(alike)
    starts, stops = [start for start, _ in parts], [stop for _, stop in parts]

    def find(what: TensorHoldings) -> list[TensorHoldings]:
        start, stop = _intervals(what)[axis]
        near = parts[bisect_right(stops, start) : bisect_left(starts, stop)]
        return [need for part in near for need in alike[part] if overlap(what, need)]

    return find


def _intervals(held: TensorHoldings) -> tuple[Interval, ...]:
    """Of every axis, and of layers: a stage has all of them between its first and its last one."""
    return (*(interval for _, interval in held.intervals), (min(held.layers), max(held.layers) + 1))
