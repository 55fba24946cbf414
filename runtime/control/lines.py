"""Lines: how a decode half speaks to one prefill worker, over a connection that either of the two has made.

A `ControlClient` is a connection that was made from here. An `AcceptedLine` is one that the peer made to the server
here, used the other way. Each is used by one thread at a time.
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

# Messages of a line that are received at once, or wait until they are.
MOST = 256


@dataclass(frozen=True, slots=True)
class LinePeer:
    """Who is at the other end of a line: a worker of this run of an engine, whose workers all answer at `answers`.

    They are empty if the engine does not prefill. `key` is its public key, empty without keys.
    """

    engine: str
    run: str
    worker: int
    answers: tuple[str, ...]
    key: bytes = b""


NOBODY = LinePeer("", "", 0, ())


class PrefillLine(ABC):
    """What a decode half does with a line. One that is not `taken` is used by nobody, or by the prefill half alone.

    The prefill half knows it by `name`. Over one that was made from here, `back` is what the peer's decode half asked.
    """

    def __init__(self, address: str, outbox: Outbox, name: bytes = b"", peer: LinePeer = NOBODY) -> None:
        self.address, self.name, self.peer, self.taken = address, name, peer, True
        self.back = deque[Any]()
        self.unread = deque[Any]()
        self._outbox, self._gathers = outbox, False
        # What `broken` found.
        self.error: KvplanError | None = None

    def begin(self) -> None:
        """The decode half uses the line from now on. What was said before it is nothing to it."""
        self.taken, self._gathers = True, False
        self.unread.clear()

    @abstractmethod
    def broken(self) -> KvplanError | None:
        """Why nothing more comes: KeysError, HandshakeError, or PeerLostError. It stays so."""

    @abstractmethod
    def read(self, most: int = MOST) -> None:
        """Take what came over the connection, for either half."""

    @abstractmethod
    def transmit(self, message: bytes) -> LineState:
        """Transmit a sealed message."""

    @abstractmethod
    def close(self) -> None:
        """Have nothing more to do with the connection. Once more does nothing."""

    @abstractmethod
    def end(self) -> None:
        """The decode half does not use the line any more, which ends with the last half that does."""

    @abstractmethod
    def filenos(self) -> list[int]:
        """Descriptors that may become readable when something comes, or a connection changes: hints, for any thread."""

    @abstractmethod
    def arriving(self) -> bool:
        """Whether the connection has something to read, for either half, or has changed."""

    def pending(self) -> bool:
        """Whether a message or a change of the connection waits, even if `filenos` signals it no more."""
        return len(self.unread) > 0 or self.arriving()

    def wait(self, seconds: float) -> None:
        """Until something may be received, or the connection breaks, at most `seconds`."""
        if self.broken() is None and not self.pending():
            rest(self.filenos(), seconds)

    def send(self, message: msgspec.Struct) -> bool:
        """False where the connection was found broken, or nobody has listened for long.

        Raises CardError for a message that is too large.
        """
        listens = self.error is None and self._outbox.put(encode(message))
        return listens and ((self._gathers and not self._outbox.ample) or self._outbox.flush())

    def say(self, message: msgspec.Struct) -> None:
        """`send` what must be said. Raises PeerLostError where it cannot be, CardError."""
        if not self.send(message):
            raise PeerLostError("its line is broken, or has been full for long: is it polled?")

    def gather(self) -> None:
        """From now on say with `flush`, and `receive`, what was sent before it: in one message."""
        self._gathers = True

    def flush(self) -> None:
        """Say what is to be said, as far as it is taken."""
        if len(self._outbox):
            self._outbox.flush()

    @property
    def polled(self) -> bool:
        """Whether an engine of the decode half reads the line in each step."""
        return self.taken and self._gathers

    @property
    def behind(self) -> bool:
        """Whether something waits until the peer takes it."""
        return self._outbox.full

    def receive(self, most: int = MOST) -> list[Any]:
        """What came since the last call, at most `most`: ToDecode structs and CardErrors."""
        self.flush()
        if len(self.unread) < most:
            self.read(most)
        return [self.unread.popleft() for _ in range(min(most, len(self.unread)))]

    def leave(self) -> None:
        """Say goodbye, so that nobody waits for this half to speak, and end it."""
        self.send(Bye())
        self.flush()
        self.end()


def opened(frames: list[bytes], kind: Any, magic: bytes = MAGIC) -> list[Any]:
    """The structs of a message, or why there is none."""
    try:
        return unseal(frames[0] if len(frames) == 1 else b"".join(frames), kind, magic)
    except CardError as error:
        return [error]
