"""Election: the engine that a request is sent to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from kvplan.traffic.engines import SimulatedEngine

Router = Callable[[Sequence[SimulatedEngine]], SimulatedEngine]


def router(name: str) -> Router:
    """Return the router of that name, which keeps the turn; among equals it chooses the first one."""
    turns = count()
    known: dict[str, Router] = {
        "round_robin": lambda engines: engines[next(turns) % len(engines)],
        "least_loaded": lambda engines: min(engines, key=lambda engine: engine.load),
        "most_free_blocks": lambda engines: max(engines, key=lambda engine: engine.pool.free),
    }
    return known[name]
