"""The part of a tensor that each worker holds, and the parts of two sides that overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.compiler.placement.shards import Interval, TokenShare, meet, shard_intervals, token_share
from kvplan.dsl.text.grouped import grouped


@dataclass(frozen=True, slots=True)
class TensorHoldings:
    """The holdings of one tensor: intervals per axis, layers, and the workers' turn of the tokens."""

    intervals: tuple[tuple[str, Interval], ...]
    layers: tuple[int, ...]
    token_shard: TokenShare


def classes(side: BoundSide, cache: BoundCache, tensor: BoundTensor) -> dict[TensorHoldings, list[int]]:
    """Group workers by their holding of a tensor, in order of worker number; empty holdings are left out."""
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
    """Return a function that finds the holdings of one side (`needs`) that overlap a holding of the other side.

    Holdings are equal or disjoint on every axis. The axis with most distinct intervals leaves few to test.
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
    """Return the interval of every axis, and of layers: a stage has all layers from its first to its last."""
    return (*(interval for _, interval in held.intervals), (min(held.layers), max(held.layers) + 1))
