"""Times of a request of 1024 tokens in microseconds, from a plan's moves and a machine's profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kvplan.compiler.cost.cost import Moves, StagedMoves
from kvplan.compiler.cost.profile import transfer_us, wire_us
from kvplan.dsl.schema.machine import MachineProfile


def by_stage(move: Moves, strategy: str) -> StagedMoves | None:
    """Return the staged cost of `move` by a strategy; None if it goes direct.

    With `unpack`, reads that can only be packed are packed.
    """
    found = {stage.strategy: stage for stage in move.staged}
    return found.get(strategy) or (found.get("pack") if strategy == "unpack" else None)


def moved(moves: Iterable[Moves], strategy: str) -> tuple[int, int]:
    """Return descriptors and bytes on the wire, of all decode workers together."""
    ways = [(len(move.workers), by_stage(move, strategy) or move) for move in moves]
    return sum(workers * way.descriptors for workers, way in ways), sum(workers * way.bytes for workers, way in ways)


def times_us(moves: Iterable[Moves], strategy: str, profile: MachineProfile) -> dict[int, float]:
    """Return the time from submit to done by decode worker, each moving alone, with all states."""
    times: Counter[int] = Counter()
    for move in moves:
        stage = by_stage(move, strategy)
        times.update(dict.fromkeys(move.workers, stage.us if stage else wire_us(profile, move.descriptors, move.bytes)))
    return {worker: transfer_us(profile, 0, 0) + us for worker, us in times.items()}
