"""Time that an engine spends in its connector: every public method of both halves is timed, calls within calls once.

Runs in vLLM's environment.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from statistics import median
from typing import Any


class Stopwatch:
    """Seconds a step in the methods of what it was put on: the scheduler's half of a connector, and the worker's."""

    def __init__(self) -> None:
        self._seconds, self._inside = 0.0, False
        self._steps: list[float] = []

    @property
    def seconds(self) -> float:
        """The median of the steps: a mean would be that of what else the machine does."""
        return median(self._steps) if self._steps else 0.0

    def step(self) -> None:
        """A step of the engine is over."""
        self._steps.append(self._seconds)
        self._seconds = 0.0

    def put_on(self, connector: Any) -> None:
        for name, method in inspect.getmembers(connector, inspect.ismethod):
            if not name.startswith("_"):
                setattr(connector, name, self._timed(method))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return method(*args, **kwargs)
            self._inside, began = True, time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._seconds += time.perf_counter() - began
                self._inside = False

        return timed
