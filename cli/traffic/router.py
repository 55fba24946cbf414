"""Election: which engine a request is sent to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from kvplan.cli.traffic.engines import SimulatedEngine

Router = Callable[[Sequence[SimulatedEngine]], SimulatedEngine]


def router(name: str) -> Router:
    """The router of that name, which keeps whose turn it is; among equals the first one is chosen."""
    return {"round_robin": _in_turn, "least_loaded": _least_loaded, "most_free_blocks": _most_free}[name]()


def _in_turn() -> Router:
    turns = count()
    return lambda engines: engines[next(turns) % len(engines)]


def _least_loaded() -> Router:
    return lambda engines: min(engines, key=lambda engine: engine.load)


def _most_free() -> Router:
    return lambda engines: max(engines, key=lambda engine: engine.pool.free)
