"""Objects that a worker makes for itself, as their class is used: for tests that no inspection helps."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import pytest

from kvplan.runtime import wakeup
from kvplan.runtime.ops import logs

T = TypeVar("T")


def instances(patch: pytest.MonkeyPatch, kind: type[T]) -> list[T]:
    """Every object of a class that is made from now on."""
    found, init = list[T](), kind.__init__

    def made(self: T, *given: Any, **named: Any) -> None:
        found.append(self)
        init(self, *given, **named)

    patch.setattr(kind, "__init__", made)
    return found


def end_thread(patch: pytest.MonkeyPatch, thread: threading.Thread) -> None:
    """Have an owner's thread end by an error: its next rest fails, and so does saying that."""

    def failing(real: Any) -> Any:
        return lambda *given, **named: 1 / 0 if threading.current_thread() is thread else real(*given, **named)

    patch.setattr("kvplan.runtime.wakeup.rest", failing(wakeup.rest))
    patch.setattr(logs, "failure", failing(logs.failure))
