"""What the process does to workers and transports: it ends, or it forks. One rule for each.

When a program ends, owners end first: a thread that is in a call of C++ as the interpreter ends aborts the process. In
a forked child nothing of its parent's is touched: no thread that would answer is in it, and what NIXL's objects do as
they end they would do to descriptors that both processes have.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet


class Ending(Protocol):
    """What has to end before the interpreter does, and is not to be touched in a forked child."""

    def end(self) -> None: ...

    def forget(self) -> None: ...


_LIVE = WeakSet[Any]()
_KEPT = WeakSet[Any]()


def add(one: Ending) -> None:
    """Have `one` end before the interpreter does, if it still is there then."""
    _LIVE.add(one)


def keep(one: object) -> None:
    """Have `one`, an object of a library that knows nothing of forks, never be collected in a forked child."""
    _KEPT.add(one)


def _end() -> None:
    for one in list(_LIVE):
        with suppress(Exception):
            one.end()


def _forked() -> None:
    """In the child: what the parent has is never collected here, not even as the interpreter ends."""
    for one in (*_KEPT, *_LIVE):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
    for one in _LIVE:
        one.forget()
    _LIVE.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forked)
