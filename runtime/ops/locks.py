"""Locks of workers: what is logged while one is held reaches the handlers of the process when it is not held any more.

No foreign code runs under a lock: a handler, a callback or an event may ask any worker, which may wait for this one.
"""

from __future__ import annotations

import threading
from itertools import starmap

from kvplan.runtime.ops import logs


class WorkerLock:
    """A lock that one thread may take several times."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        depth, taken = logs.depth(), list[bool]()
        try:
            logs.hold_back(depth + 1)
            # Taken and noted in one call of C: a signal's handler that raises, as Ctrl-C does, comes before both or
            # after both. A lock that such a thread kept would stop all others for ever.
            taken.extend(starmap(self._lock.acquire, [()]))
        except BaseException:
            if taken:
                self._lock.release()
            logs.hold_back(depth)
            raise

    def __exit__(self, *_: object) -> None:
        # First of all: until then a handler that raises would leave it taken.
        try:
            self._lock.release()
        finally:
            logs.let_go()
