"""Futures that a signal's handler, which raises in whoever asks them, leaves free: others would wait for ever."""

from __future__ import annotations

import _thread
import threading
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class _Free(_thread.RLock):  # type: ignore[misc]  # final in its stub alone
    """A Condition that is taken and given back in C; the library's does so in Python, where a handler may raise."""

    def __init__(self) -> None:
        self._condition = threading.Condition(self)

    def wait(self, timeout: float | None = None) -> bool:
        return self._condition.wait(timeout)

    def notify_all(self) -> None:
        self._condition.notify_all()


class FreeFuture(Future[T]):
    """A Future of whoever polls."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Free()  # type: ignore[assignment]
