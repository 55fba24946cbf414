"""Shared lines: the connections of a worker's server that both halves may use.

Usually the maker of a connection decodes and its accepter prefills. If both engines do both, messages between the other
halves (`BACK`) use it, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import BACK, Hello
from kvplan.runtime.control.lines import MOST, LinePeer, PrefillLine, opened
from kvplan.runtime.control.messages import ToDecode
from kvplan.runtime.control.outbox import LineState, Outbox
from kvplan.runtime.errors import PeerLostError
from kvplan.runtime.inspection import ConnectionState

# Seconds between two empty messages over a connection that a peer has made. They test whether it still works.
CONNECTION_PROBE_SECONDS = 0.25
# Sends a sealed message over a connection that a peer has made.
Speak = Callable[[bytes, bytes], LineState]


class SharedLines:
    """The lines of one server. `speak` sends over those that peers made.

    `dialed` lines were made here. `accepted` ones were made by peers, and the decode half may use them. `met` has the
    decode workers that the prefill half has met, by connection. `gone` are ended connections that the prefill half does
    not know of yet. `hello_keys` has the public key of each connection whose hello was just read.
    """

    def __init__(self, speak: Speak) -> None:
        self._speak = speak
        self.dialed: dict[bytes, PrefillLine] = {}
        self.gone = set[bytes]()
        self.hello_keys: dict[bytes, bytes] = {}
        self.met: dict[bytes, LinePeer] = {}
        self.accepted: dict[bytes, AcceptedLine] = {}

    def forget_hellos(self, unread: Iterable[bytes]) -> None:
        """Drop the keys of all hellos except the unread ones."""
        self.hello_keys = {identity: self.hello_keys[identity] for identity in self.hello_keys.keys() & set(unread)}

    def meet(self, identity: bytes, hello: Hello) -> None:
        """Note that the prefill half has met a peer, so that the decode half may ask it over the same connection."""
        dialed = self.dialed.get(identity)
        key = self.hello_keys.get(identity, b"") if dialed is None else dialed.peer.key
        peer = LinePeer(hello.name, hello.run, hello.worker, hello.answers, key)
        self.met[identity] = peer
        if dialed is None and peer.answers and identity not in self.accepted:
            self.accepted[identity] = AcceptedLine(self, identity, peer, self._speak)

    def forget(self, identity: bytes) -> None:
        """Remove a peer that the prefill half has dropped."""
        self.met.pop(identity, None)
        if (line := self.accepted.get(identity)) is not None and not line.taken:
            del self.accepted[identity]
        if (dialed := self.dialed.get(identity)) is not None and not dialed.taken:
            dialed.close()

    def take(self, wanted: Callable[[LinePeer], bool], key: bytes) -> PrefillLine | None:
        """Take the newest line that the decode half does not use, to a peer that is wanted and has this public key.

        Return None if no line fits. The line is taken until `leave`.
        """
        lines: list[PrefillLine] = [*self.dialed.values(), *self.accepted.values()]
        fit = (one for one in reversed(lines) if not one.taken and wanted(one.peer) and one.peer.key == key)
        line = next((one for one in fit if one.broken() is None), None)
        if line is not None:
            line.begin()
        return line

    def connections(self) -> tuple[ConnectionState, ...]:
        """Return the connections with peers, in both directions."""
        peers = {**{key: line.peer for key, line in {**self.accepted, **self.dialed}.items()}, **self.met}
        return tuple(self._state(key, peer) for key, peer in peers.items())

    def hear_accepted(self, identity: bytes, frames: list[bytes]) -> None:
        """Queue a message for the decode half, or drop it if the decode half no longer uses the line."""
        line = self.accepted.get(identity)
        if line is not None and line.taken and frames != [BACK]:
            line.unread.extend(opened(frames, ToDecode, BACK))

    def outbox(self, identity: bytes) -> Outbox | None:
        """Return a new outbox for the decode half at the other end of a line made here, None for any other line."""
        line = self.dialed.get(identity)
        return None if line is None else Outbox(line.transmit, BACK)

    def flush(self) -> None:
        """Send waiting messages of accepted lines that the decode half no longer uses."""
        for line in self.accepted.values():
            if not line.taken:
                line.flush()

    def hear(self, line: PrefillLine) -> None:
        """Read from a line that was made here. If no engine of the decode half polls it, also flush and check it."""
        line.read()
        if not line.polled:
            line.flush()
            if line.broken() is not None:
                self.gone.add(line.name)

    def _state(self, key: bytes, peer: LinePeer) -> ConnectionState:
        line = self.dialed.get(key) or self.accepted.get(key)
        asks = line is not None and line.taken
        return ConnectionState(peer.engine, peer.run, peer.worker, key in self.dialed, asks, key in self.met)


class AcceptedLine(PrefillLine):
    """A line to a peer's prefill half, over a connection that the peer's decode half made to the server here."""

    def __init__(self, shared: SharedLines, identity: bytes, peer: LinePeer, speak: Speak) -> None:
        address = peer.answers[min(peer.worker, len(peer.answers) - 1)]
        super().__init__(address, Outbox(self.transmit, BACK), identity, peer)
        self._shared, self._speak = shared, speak
        self.taken, self._probed = False, float("-inf")

    def broken(self) -> KvplanError | None:
        """See `PrefillLine.broken`. ZeroMQ does not report the end of a server's connection, so this sends a probe."""
        if self.error is None and time.monotonic() - self._probed > CONNECTION_PROBE_SECONDS:
            self._probed = time.monotonic()
            self.transmit(BACK)
        return self.error

    def lose(self, error: KvplanError) -> None:
        """Mark the line as broken."""
        self.error = self.error or error

    def lose_connection(self) -> None:
        self.lose(PeerLostError(f"the connection of {self.address} is lost: connect again"))

    def read(self, most: int = MOST) -> None:
        """Do nothing: the server reads the connection."""

    def receive(self, most: int = MOST) -> list[Any]:
        """Return all that the server has read, which bounds its own reads."""
        return super().receive(max(most, len(self.unread)))

    def close(self) -> None:
        """Do nothing: only its maker closes a connection."""

    def end(self) -> None:
        self.taken = False
        if self.name not in self._shared.met:
            self._shared.accepted.pop(self.name, None)

    def transmit(self, message: bytes) -> LineState:
        state = self._speak(self.name, message)
        if state is LineState.GONE:
            self.lose_connection()
            self._shared.gone.add(self.name)
        return state
