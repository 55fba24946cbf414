"""Elect the prefill worker that a decode worker reads, among those that hold the same interval.

Law: every interval a decode worker needs is read from exactly one holder per layer; the readers of an interval
are spread over its m holders as evenly as numbers allow (counts differ by at most one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from kvplan.compiler.bound import BoundCache, BoundTensor
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.holdings import TensorHoldings, overlapping
from kvplan.compiler.placement.shards import share


@dataclass(frozen=True, slots=True)
class ReaderChoice:
    """Decode worker `reader` reads `layers` of one tensor from prefill worker `holder` and only notifies `notified`."""

    reader: int
    holder: int
    layers: tuple[int, ...]
    notified: tuple[int, ...]


# The most reads of a plan (decode worker, prefill worker, pair of groups): 16 for each of 1,024 workers.
MOST_READS = 1 << 14

Rule = Callable[[Sequence[int], Sequence[int], int, tuple[int, ...]], list[tuple[int, tuple[int, ...]]]]


def check_whole(word: str, cache: BoundCache, tensor: BoundTensor, held: Iterable[TensorHoldings]) -> None:
    """Refuse (C135) workers that together lack part of a tensor. Holdings are disjoint or equal, so they add up."""
    whole = prod(extent for _, extent in tensor.axes if extent) * len(cache.layers)
    found = sum((_volume(one) for one in held), Fraction(0))
    if found != whole:
        said = f"all {word} workers together hold {float(found / whole):.0%} of {tensor.name!r} of {cache.name!r}"
        raise Refused("C135", said, "share tokens out over workers that hold copies, or over an axis of their own")


def _volume(held: TensorHoldings) -> Fraction:
    """Return the volume of a holding: items times layers times its fraction of all tokens."""
    items = prod(stop - start for _, (start, stop) in held.intervals)
    return items * len(held.layers) * Fraction(1, held.token_shard[0])


def elect(
    rule: Rule, holders: Mapping[TensorHoldings, Sequence[int]], needs: Mapping[TensorHoldings, Sequence[int]]
) -> dict[TensorHoldings, list[ReaderChoice]]:
    """Return the readers' choices for every holding of one tensor. Raises Refused (C141) if there are too many."""
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
    """Refuse (C141) more reads than a plan may have, before any is made."""
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
    notified = tuple(holder for holder in within_reach(holders, len(readers), j) if holder not in read)
    return [ReaderChoice(readers[j], holder, layers, notified) for holder, layers in taken if layers]


def within_reach(holders: Sequence[int], readers: int, j: int) -> Sequence[int]:
    """Return the holders from reader j's own up to the next reader's: reader j reads or notifies them."""
    first = j * len(holders) // readers
    return holders[first : max(first + 1, (j + 1) * len(holders) // readers)]


def one_each(
    holders: Sequence[int], readers: Sequence[int], j: int, layers: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    """Let reader j take everything from holder floor(j·m/r)."""
    return [(holders[j * len(holders) // len(readers)], layers)]


def spread(
    holders: Sequence[int], readers: Sequence[int], j: int, layers: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    """Divide reader j's layers among the holders within its reach, to use more links."""
    reach = within_reach(holders, len(readers), j)[: len(layers)]
    cuts = (share(len(layers), len(reach), i) for i in range(len(reach)))
    return [(holder, layers[start:stop]) for holder, (start, stop) in zip(reach, cuts, strict=True)]


RULES: Mapping[str, Rule] = {"one": one_each, "spread": spread}
