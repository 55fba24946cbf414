"""Locks of workers, and what is done at the end of a `with` that has one.

No foreign code runs under a lock: a handler, a callback or an event may ask any worker, which may wait for this one.
A signal's handler that raises, as Ctrl-C does, runs as a function of Python begins, after a call, and as a loop goes
round, in the main thread. A lock that such a thread kept would stop all others for ever.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from itertools import starmap
from typing import Any, Protocol
from weakref import WeakValueDictionary


class WorkerLock(_thread.RLock):  # type: ignore[misc]  # final in its stub alone
    """A lock that one thread may take several times, by `with`: that takes and gives it back in C, between signals."""

    def __init__(self) -> None:
        _LOCKS[id(self)] = self


# Asked, not counted: a count that a signal came before or after would be wrong for ever.
_LOCKS = WeakValueDictionary[int, WorkerLock]()


def taken() -> bool:
    """Whether this thread has the lock of any worker."""
    for reference in _LOCKS.valuerefs():
        lock: Any = reference()
        if lock is not None and lock._is_owned():
            return True
    return False


class Then:
    """Makes a call at the end of a `with`, as in `with Then(last), lock, Then(first):`."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._call()


class Takeable(Protocol):
    """A lock."""

    def acquire(self, blocking: bool = ..., timeout: float = ..., /) -> bool: ...

    def release(self) -> None: ...


def if_free(lock: Takeable, call: Callable[[], object]) -> bool:
    """Make a call with a lock where nobody has it; whether it was made."""
    got = list[bool]()
    try:
        # Taken and noted in one call of C: a signal comes before both or after both.
        got.extend(starmap(lock.acquire, [(False,)]))
        if got[0]:
            call()
        return got[0]
    finally:
        if got and got[0]:
            lock.release()
