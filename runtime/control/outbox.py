"""Outbox: messages that a connection has not taken yet, in order. A full line is waited for, never an end.

What waits together is said together: one sealed message for all of it costs both sides what one for the first does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from kvplan.runtime.control.card import MAGIC, together
from kvplan.runtime.machine import TextEnum

MOST, MOST_BYTES = 1 << 16, 256 << 20
# What is said together: so many messages, of so many bytes. One that has more is said alone. Of many requests the first
# are on their way while the others are still being asked for, so that both sides work at the same time.
TOGETHER, TOGETHER_BYTES = 32, 48 << 10


class LineState(TextEnum):
    """What became of a message that was handed to a line: it took it, takes none for now, or has nobody behind it."""

    TAKEN = "taken"
    FULL = "full"
    GONE = "gone"


class Outbox:
    """What is to be said through one line. `transmit` gives it messages, sealed together as `magic` says.

    `full` says that the line took no more when it was last asked.
    """

    def __init__(self, transmit: Callable[[bytes], LineState], magic: bytes = MAGIC) -> None:
        self._transmit, self._magic = transmit, magic
        self._waiting, self._bytes = deque[bytes](), 0
        self.full = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: bytes) -> bool:
        """Say this after all that waits, with the next `flush`. False where 65,536 messages or 256 MiB wait."""
        if self._waiting and (len(self._waiting) >= MOST or self._bytes + len(message) > MOST_BYTES):
            return False
        self._waiting.append(message)
        self._bytes += len(message)
        return True

    @property
    def ample(self) -> bool:
        """Whether as much waits as is said together."""
        return self._bytes >= TOGETHER_BYTES or len(self._waiting) >= TOGETHER

    def flush(self) -> bool:
        """Hand over what the line takes; False where nobody listens, and then nothing waits any more."""
        state = LineState.TAKEN
        while self._waiting and state is LineState.TAKEN:
            head = self._head()
            state = self._transmit(together(head, self._magic))
            if state is LineState.TAKEN:
                self._forget(head)
        if state is LineState.GONE:
            self._waiting.clear()
            self._bytes = 0
        self.full = state is LineState.FULL
        return state is not LineState.GONE

    def _head(self) -> list[bytes]:
        """The first messages that wait, as many as are said together: one at least."""
        head, size = [self._waiting[0]], len(self._waiting[0])
        for message in islice(self._waiting, 1, TOGETHER):
            # A large one goes alone: with others it might be above what a message may have.
            if (size := size + len(message)) > TOGETHER_BYTES:
                break
            head.append(message)
        return head

    def _forget(self, head: list[bytes]) -> None:
        for message in head:
            self._waiting.popleft()
            self._bytes -= len(message)
