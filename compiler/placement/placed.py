"""A side with all its workers placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.placement.place import place
from kvplan.compiler.placement.shards import Interval, shard_intervals
from kvplan.compiler.placement.tree import PlacedCache


@dataclass(frozen=True, slots=True)
class PlacedSide:
    """A side with the units of every worker, and the intervals that each holds by (cache, tensor)."""

    side: BoundSide
    units: tuple[tuple[PlacedCache, ...], ...]
    holds: tuple[Mapping[tuple[str, str], Mapping[str, Interval]], ...]


def placed(side: BoundSide) -> PlacedSide:
    """Place a side's workers; workers with equally large holdings are placed once. Raises Refused."""
    alike: dict[object, tuple[PlacedCache, ...]] = {}
    units, holds = [], []
    for worker in side.workers:
        held = {(c.name, t.name): shard_intervals(side, t, worker) for c in side.caches for t in c.tensors}
        key = (worker.layers, tuple(stop - start for each in held.values() for start, stop in each.values()))
        if key not in alike:
            alike[key] = place(side, worker)
        units.append(alike[key])
        holds.append(held)
    return PlacedSide(side, tuple(units), tuple(holds))
