"""Outbox: messages that a connection has not taken yet, in order. They wait while the line is full.

Messages that wait together are sent as one sealed message, which costs both sides no more than one of them would.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from kvplan.runtime.control.card import MAGIC, together
from kvplan.runtime.machine import TextEnum

MOST, MOST_BYTES = 1 << 16, 256 << 20
# The most messages, and bytes, that are sent as one. A larger message is sent alone. The limit lets the peer begin with
# the first of many requests while this side still asks for the others.
TOGETHER, TOGETHER_BYTES = 32, 48 << 10


class LineState(TextEnum):
    """The answer of a line to a message: the line took it, is full for now, or has lost its peer."""

    TAKEN = "taken"
    FULL = "full"
    GONE = "gone"


class Outbox:
    """The waiting messages of one line. `transmit` sends several as one, which begins with `magic`.

    It is `full` if the line took no more at the last `flush`.
    """

    def __init__(self, transmit: Callable[[bytes], LineState], magic: bytes = MAGIC) -> None:
        self._transmit, self._magic = transmit, magic
        self._waiting, self._bytes = deque[bytes](), 0
        self.full = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: bytes) -> bool:
        """Append a message for the next `flush`. Return False if 65,536 messages or 256 MiB already wait."""
        if self._waiting and (len(self._waiting) >= MOST or self._bytes + len(message) > MOST_BYTES):
            return False
        self._waiting.append(message)
        self._bytes += len(message)
        return True

    @property
    def ample(self) -> bool:
        """Whether enough messages wait to fill one sealed message."""
        return self._bytes >= TOGETHER_BYTES or len(self._waiting) >= TOGETHER

    def flush(self) -> bool:
        """Send what the line takes. If its peer is lost, discard all messages and return False."""
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
        """Return the waiting messages that are sent next as one: at least the first."""
        head, size = [self._waiting[0]], len(self._waiting[0])
        for message in islice(self._waiting, 1, TOGETHER):
            # A large one goes alone, because together with others it might exceed the size limit of a message.
            if (size := size + len(message)) > TOGETHER_BYTES:
                break
            head.append(message)
        return head

    def _forget(self, head: list[bytes]) -> None:
        for message in head:
            self._waiting.popleft()
            self._bytes -= len(message)
