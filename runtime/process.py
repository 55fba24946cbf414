"""The end and the fork of the process: the rules for workers and transports.

When a program ends, owners end first: a thread inside a C++ call would abort the process when the interpreter ends. A
forked child touches no object of its parent: it has none of the threads that would answer, and destructors of NIXL's
objects would act on file descriptors that both processes share.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet


class Ending(Protocol):
    """An object that must end before the interpreter does, and must not be touched in a forked child."""

    def end(self) -> None: ...

    def forget(self) -> None: ...


_LIVE = WeakSet[Any]()
_KEPT = WeakSet[Any]()


def add(one: Ending) -> None:
    """Have `one` end before the interpreter does, if it still exists then."""
    _LIVE.add(one)


def keep(one: object) -> None:
    """Never collect `one` in a forked child: it belongs to a library that does not handle forks."""
    _KEPT.add(one)


def _end() -> None:
    for one in list(_LIVE):
        with suppress(Exception):
            one.end()


def _forked() -> None:
    """Keep all objects of the parent alive in the child, even when its interpreter ends."""
    for one in (*_KEPT, *_LIVE):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
    for one in _LIVE:
        one.forget()
    _LIVE.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forked)
