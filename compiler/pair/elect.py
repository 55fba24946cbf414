"""Elect: which of the prefill workers that hold the same interval a decode worker reads.

Law: every interval a decode worker needs is read from exactly one holder per layer; the readers of an interval
are spread over its m holders as evenly as numbers allow (counts differ by at most one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.shards import Interval, TokenShare, meet, shard_intervals, share, token_share


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
    """For every holding of one tensor, its readers' choices."""
    chosen: dict[TensorHoldings, list[ReaderChoice]] = {}
    for what, workers in holders.items():
        wanted = {reader: need for need, readers in needs.items() if overlap(what, need) for reader in readers}
        readers = sorted(wanted)
        chosen[what] = [
            choice
            for j, reader in enumerate(readers)
            for choice in _choices(rule, what, workers, readers, j, wanted[reader])
        ]
    return chosen


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
