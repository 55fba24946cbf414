"""Health and readiness of workers: why a worker should be made anew, and why it takes no requests for now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ProbedWorker(Protocol):
    """What says why it is not well, one reason a text, none where it is. Neither may wait for a lock."""

    def unhealthy(self) -> tuple[str, ...]: ...

    def unready(self) -> tuple[str, ...]: ...


def reasons(worker: str, states: Mapping[str, bool]) -> tuple[str, ...]:
    """Those states that hold, each behind the name of the worker."""
    return tuple(f"{worker} {state}" for state, holds in states.items() if holds)
