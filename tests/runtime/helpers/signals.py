"""A signal's handler that raises, where one runs: as a function of Python begins, and after a call of C."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class Signal(BaseException):
    """What the handler raises."""


class Timeout(Exception):
    """The same, as somebody's alarm does."""


class Handler:
    """Raises at the place of this number, from 0, of all that it `run`s, or nowhere. `count` are the places."""

    def __init__(self, number: int | None = None, error: type[BaseException] = Signal) -> None:
        self.count, self._number, self._error = 0, number, error

    def run(self, call: Callable[[], T]) -> T:
        sys.setprofile(self._note)
        try:
            return call()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_return"):
            self.count += 1
            if self.count - 1 == self._number:
                raise self._error


def calls(call: Callable[[], object]) -> int:
    """At how many places of a call a handler may raise."""
    handler = Handler()
    handler.run(call)
    return handler.count


def interrupted(call: Callable[[], object], number: int) -> bool:
    """Have a handler raise at the place of this number; whether the call was ended by it."""
    try:
        Handler(number).run(call)
    except Signal:
        return True
    return False


def free(lock: Any) -> bool:
    """Whether another thread gets a lock."""
    got = list[bool]()

    def take() -> None:
        if taken := lock.acquire(blocking=False):
            lock.release()
        got.append(taken)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return got[0]
