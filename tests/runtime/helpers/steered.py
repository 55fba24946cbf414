"""A clock and an event that a test moves."""

from __future__ import annotations


class Clock:
    """Stands still until a test adds to `time`."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Flag:
    """An event that completes when a test sets `done`."""

    def __init__(self) -> None:
        self.done = False

    def query(self) -> bool:
        return self.done
