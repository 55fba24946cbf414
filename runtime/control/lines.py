"""Lines: the decode half's side of a connection to one prefill worker, which either of the two has made.

A `ControlClient` is a connection that was made here. An `AcceptedLine` is one that the peer's decode half made to the
server here, and is used in the other direction. One thread at a time may use a line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import MAGIC, encode, unseal
from kvplan.runtime.control.messages import Bye
from kvplan.runtime.control.outbox import LineState, Outbox
from kvplan.runtime.errors import CardError, PeerLostError
from kvplan.runtime.wakeup import rest

# The most messages of a line that one call receives, and that wait to be received.
MOST = 256


@dataclass(frozen=True, slots=True)
class LinePeer:
    """The worker at the other end of a line, and the run of its engine.

    `answers` are the addresses of all workers of the engine, empty if it does not prefill. `key` is its public key,
    empty without keys.
    """

    engine: str
    run: str
    worker: int
    answers: tuple[str, ...]
    key: bytes = b""


NOBODY = LinePeer("", "", 0, ())


class PrefillLine(ABC):
    """A line of the decode half. While it is not `taken`, only the prefill half may use its connection.

    `name` is the prefill half's name for it. On a line made here, `back` has messages of the peer's decode half.
    """

    def __init__(self, address: str, outbox: Outbox, name: bytes = b"", peer: LinePeer = NOBODY) -> None:
        self.address, self.name, self.peer, self.taken = address, name, peer, True
        self.back = deque[Any]()
        self.unread = deque[Any]()
        self._outbox, self._gathers = outbox, False
        # The error that `broken` found.
        self.error: KvplanError | None = None

    def begin(self) -> None:
        """Take the line for the decode half, and discard earlier messages."""
        self.taken, self._gathers = True, False
        self.unread.clear()

    @abstractmethod
    def broken(self) -> KvplanError | None:
        """Return why no more messages come: KeysError, HandshakeError or PeerLostError. It is final."""

    @abstractmethod
    def read(self, most: int = MOST) -> None:
        """Read messages from the connection, for both halves."""

    @abstractmethod
    def transmit(self, message: bytes) -> LineState:
        """Send a sealed message."""

    @abstractmethod
    def close(self) -> None:
        """Close the line. A second call does nothing."""

    @abstractmethod
    def end(self) -> None:
        """End the decode half's use of the line. The line is removed once neither half uses it."""

    def filenos(self) -> list[int]:
        """Return file descriptors that may become readable when a message comes or the connection changes: hints."""
        return []

    def arriving(self) -> bool:
        """Return whether the connection has messages for `read`, for either half, or has changed."""
        return False

    def pending(self) -> bool:
        """Return whether a message or a change of the connection waits, even if `filenos` no longer signal it."""
        return len(self.unread) > 0 or self.arriving()

    def wait(self, seconds: float) -> None:
        """Wait until something may be received or the connection breaks, at most `seconds`."""
        if self.broken() is None and not self.pending():
            rest(self.filenos(), seconds)

    def send(self, message: msgspec.Struct) -> bool:
        """Send a message. Return False if the connection is broken or the outbox full.

        Raises CardError for a message that is too large.
        """
        listens = self.error is None and self._outbox.put(encode(message))
        return listens and ((self._gathers and not self._outbox.ample) or self._outbox.flush())

    def say(self, message: msgspec.Struct) -> None:
        """Send a message that must not be dropped. Raises PeerLostError if that fails, and CardError."""
        if not self.send(message):
            raise PeerLostError("its line is broken, or has been full for long: is it polled?")

    def gather(self) -> None:
        """From now on collect messages until `flush` or `receive`, which send them as one message."""
        self._gathers = True

    def flush(self) -> None:
        """Send waiting messages, as far as the connection takes them."""
        if len(self._outbox):
            self._outbox.flush()

    @property
    def polled(self) -> bool:
        """Whether an engine of the decode half reads the line in each step."""
        return self.taken and self._gathers

    @property
    def behind(self) -> bool:
        """Whether messages wait because the connection is full."""
        return self._outbox.full

    def receive(self, most: int = MOST) -> list[Any]:
        """Return at most `most` new messages: ToDecode structs and CardErrors."""
        self.flush()
        if len(self.unread) < most:
            self.read(most)
        return [self.unread.popleft() for _ in range(min(most, len(self.unread)))]

    def leave(self) -> None:
        """Send a goodbye, so that the peer expects no more messages of the decode half, and end the line."""
        self.send(Bye())
        self.flush()
        self.end()


def opened(frames: list[bytes], kind: Any, magic: bytes = MAGIC) -> list[Any]:
    """Return the structs of a message, or its CardError."""
    try:
        return unseal(frames[0] if len(frames) == 1 else b"".join(frames), kind, magic)
    except CardError as error:
        return [error]
