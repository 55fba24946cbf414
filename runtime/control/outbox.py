"""Outbox: sealed messages that a connection has not taken yet, in order. A full line is waited for, never an end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kvplan.runtime.machine import TextEnum

MOST, MOST_BYTES = 1 << 16, 256 << 20


class LineState(TextEnum):
    """What became of a message that was handed to a line: it took it, takes none for now, or has nobody behind it."""

    TAKEN = "taken"
    FULL = "full"
    GONE = "gone"


class Outbox:
    """What is to be said through one line. `hand_over` gives it one message."""

    def __init__(self, hand_over: Callable[[bytes], LineState]) -> None:
        self._hand_over, self._waiting, self._bytes = hand_over, deque[bytes](), 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: bytes) -> bool:
        """Say this after all that waits. False where nobody listens, or 65,536 messages or 256 MiB wait."""
        if self._waiting and (len(self._waiting) >= MOST or self._bytes + len(message) > MOST_BYTES):
            return False
        self._waiting.append(message)
        self._bytes += len(message)
        return self.flush()

    def flush(self) -> bool:
        """Hand over what the line takes; False where nobody listens, and then nothing waits any more."""
        while self._waiting:
            state = self._hand_over(self._waiting[0])
            if state is LineState.FULL:
                return True
            self._bytes -= len(self._waiting.popleft())
            if state is LineState.GONE:
                self._waiting.clear()
                self._bytes = 0
                return False
        return True
