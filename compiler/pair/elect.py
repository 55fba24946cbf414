"""Elect: which of the prefill workers that hold the same interval a decode worker reads.

Law: every interval a decode worker needs is read from exactly one holder per layer; the readers of an interval
are spread over its m holders as evenly as numbers allow (counts differ by at most one).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.shards import Interval, TokenShare, meet, shard_intervals, share, token_share
from kvplan.dsl.text.grouped import grouped


@dataclass(frozen=True, slots=True)
class TensorHoldings:
    """What workers hold of one tensor: intervals per axis, layers, and their turn of the tokens."""

    intervals: tuple[tuple[str, Interval], ...]
    layers: tuple[int, ...]
    token_shard: TokenShare


@dataclass(frozen=True, slots=True)
class ReaderChoice:
    """Decode worker `reader` takes `layers` of one tensor from prefill worker `holder`; `told` are only told."""

    reader: int
    holder: int
    layers: tuple[int, ...]
    told: tuple[int, ...]


# Reads of a plan, each of a decode worker from a prefill worker for a pair of groups: 16 for each of 1,024 workers.
MOST_READS = 1 << 14

Rule = Callable[[Sequence[int], Sequence[int], int, tuple[int, ...]], list[tuple[int, tuple[int, ...]]]]


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


def check_whole(word: str, cache: BoundCache, tensor: BoundTensor, held: Iterable[TensorHoldings]) -> None:
    """Refuse (C135) a side whose workers do not hold a tensor together. Holdings are equal or disjoint: they add up."""
    whole = prod(extent for _, extent in tensor.axes if extent) * len(cache.layers)
    found = sum((_volume(one) for one in held), Fraction(0))
    if found != whole:
        said = f"all {word} workers together hold {float(found / whole):.0%} of {tensor.name!r} of {cache.name!r}"
        raise Refused("C135", said, "share tokens out over workers that hold copies, or over an axis of their own")


def _volume(held: TensorHoldings) -> Fraction:
    """Items times layers times the part of all tokens that a holding is."""
    items = prod(stop - start for _, (start, stop) in held.intervals)
    return items * len(held.layers) * Fraction(1, held.token_shard[0])


def elect(
    rule: Rule, holders: Mapping[TensorHoldings, Sequence[int]], needs: Mapping[TensorHoldings, Sequence[int]]
) -> dict[TensorHoldings, list[ReaderChoice]]:
    """For every holding of one tensor, its readers' choices. Raises Refused (C141) for more than a plan may have."""
    chosen: dict[TensorHoldings, list[ReaderChoice]] = {}
    count, find = 0, overlapping(needs)
    for what, workers in holders.items():
        wanted = {reader: need for need in find(what) for reader in needs[need]}
        count += len(wanted)
        check_reads(count)
        readers = sorted(wanted)
        chosen[what] = [
            choice
            for j, reader in enumerate(readers)
            for choice in _choices(rule, what, workers, readers, j, wanted[reader])
        ]
    return chosen


def check_reads(count: int) -> None:
    """Refuse (C141) more reads than a plan may have, before there are any."""
    if count > MOST_READS:
        said = "decode workers read too often from prefill workers, each for every pair of groups"
        help = (
            f"at most {MOST_READS:,} times: share tokens out over fewer workers, give smaller meshes, or fewer groups"
        )
        raise Refused("C141", said, help)


def _choices(
    rule: Rule, what: TensorHoldings, holders: Sequence[int], readers: Sequence[int], j: int, need: TensorHoldings
) -> list[ReaderChoice]:
    there = set(what.layers)
    common = need.layers if need.layers == what.layers else tuple(n for n in need.layers if n in there)
    taken = rule(holders, readers, j, common)
    read = {holder for holder, layers in taken if layers}
    told = tuple(holder for holder in within_reach(holders, len(readers), j) if holder not in read)
    return [ReaderChoice(readers[j], holder, layers, told) for holder, layers in taken if layers]


def within_reach(holders: Sequence[int], readers: int, j: int) -> Sequence[int]:
    """The holders between reader j's own and the next reader's: those it reads or tells."""
    first = j * len(holders) // readers
    return holders[first : max(first + 1, (j + 1) * len(holders) // readers)]


def one_each(
    holders: Sequence[int], readers: Sequence[int], j: int, layers: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    """Reader j takes everything from holder floor(j·m/r)."""
    return [(holders[j * len(holders) // len(readers)], layers)]


def spread(
    holders: Sequence[int], readers: Sequence[int], j: int, layers: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    """Reader j's layers are shared out over the holders within its reach, to use more links."""
    reach = within_reach(holders, len(readers), j)[: len(layers)]
    cuts = (share(len(layers), len(reach), i) for i in range(len(reach)))
    return [(holder, layers[start:stop]) for holder, (start, stop) in zip(reach, cuts, strict=True)]


RULES: Mapping[str, Rule] = {"one": one_each, "spread": spread}
# Compile options with the values they may have, the default first.
DIRECT, AUTO = "direct", "auto"
OPTIONS: Mapping[str, tuple[str, ...]] = {"elect": tuple(RULES), "strategy": (DIRECT, AUTO, "unpack", "pack")}
# The option that names the machine by whose profile a strategy is chosen, where that is not the default one.
MACHINE = "machine"
