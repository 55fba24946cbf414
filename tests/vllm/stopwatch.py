"""Time that an engine spends in its connector: every public method of both halves is timed, calls within calls once.

Runs in vLLM's environment.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any


class Stopwatch:
    """Seconds in the methods of what it was put on: the scheduler's half of a connector, and the worker's."""

    def __init__(self) -> None:
        self.seconds, self._inside = 0.0, False

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
                self.seconds += time.perf_counter() - began
                self._inside = False

        return timed
