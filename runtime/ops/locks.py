"""Locks of workers: what is logged while one is held reaches the handlers of the process when it is not held any more.

No foreign code runs under a lock: a handler, a callback or an event may ask any worker, which may wait for this one.
"""

from __future__ import annotations

import threading

from kvplan.runtime.ops import logs


class WorkerLock:
    """A lock that one thread may take several times."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        logs.hold_back()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        logs.let_go()
