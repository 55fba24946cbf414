"""Shared lines: the connections of a worker's server that both halves may use.

Who made a connection decodes, who accepted it prefills; if both engines do both, messages of the other way (`BACK`) go
over it, too.
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

# Seconds between two empty messages over a connection that a peer has made: they find out whether it still stands.
CONNECTION_PROBE_SECONDS = 0.25
# Hands a sealed message to a connection that a peer has made.
Speak = Callable[[bytes, bytes], LineState]


class SharedLines:
    """The lines of one server. `speak` speaks through those that peers made.

    `dialed` lines were made from here; `accepted` ones by peers, and the decode half may use them, or does. The prefill
    half has `met` the peers of some. `gone` are connections that neither half is heard over any more. `hello_keys` are
    who said hello in the last messages, by what public key.
    """

    def __init__(self, speak: Speak) -> None:
        self._speak = speak
        self.dialed: dict[bytes, PrefillLine] = {}
        self.gone = set[bytes]()
        self.hello_keys: dict[bytes, bytes] = {}
        self.met: dict[bytes, LinePeer] = {}
        self.accepted: dict[bytes, AcceptedLine] = {}

    def forget_hellos(self, unread: Iterable[bytes]) -> None:
        """The messages of all others were taken."""
        self.hello_keys = {identity: self.hello_keys[identity] for identity in self.hello_keys.keys() & set(unread)}

    def meet(self, identity: bytes, hello: Hello) -> None:
        """The prefill half has met who says hello: the decode half may ask it over the same connection."""
        dialed = self.dialed.get(identity)
        key = self.hello_keys.get(identity, b"") if dialed is None else dialed.peer.key
        peer = LinePeer(hello.name, hello.run, hello.worker, hello.answers, key)
        self.met[identity] = peer
        if dialed is None and peer.answers and identity not in self.accepted:
            self.accepted[identity] = AcceptedLine(self, identity, peer, self._speak)

    def forget(self, identity: bytes) -> None:
        """The prefill half has dropped this peer."""
        self.met.pop(identity, None)
        if (line := self.accepted.get(identity)) is not None and not line.taken:
            del self.accepted[identity]
        if (dialed := self.dialed.get(identity)) is not None and not dialed.taken:
            dialed.close()

    def take(self, wanted: Callable[[LinePeer], bool], key: bytes) -> PrefillLine | None:
        """The newest line that the decode half does not use yet, to a peer that is wanted and has that public key.

        None if there is none. It is taken until it is left.
        """
        lines: list[PrefillLine] = [*self.dialed.values(), *self.accepted.values()]
        fit = (one for one in reversed(lines) if not one.taken and wanted(one.peer) and one.peer.key == key)
        line = next((one for one in fit if one.broken() is None), None)
        if line is not None:
            line.begin()
        return line

    def connections(self) -> tuple[ConnectionState, ...]:
        """The connections with peers, of either direction."""
        peers = {**{key: line.peer for key, line in {**self.accepted, **self.dialed}.items()}, **self.met}
        return tuple(self._state(key, peer) for key, peer in peers.items())

    def hear_accepted(self, identity: bytes, frames: list[bytes]) -> None:
        """A message for the decode half. Late ones, for a line that it does not use any more, are nobody's."""
        line = self.accepted.get(identity)
        if line is not None and line.taken and frames != [BACK]:
            line.unread.extend(opened(frames, ToDecode, BACK))

    def outbox(self, identity: bytes) -> Outbox | None:
        """What is to be said through a line that was made from here, to the decode half behind it."""
        line = self.dialed.get(identity)
        return None if line is None else Outbox(line.transmit, BACK)

    def flush(self) -> None:
        """Say what waits on connections that the decode half does not use any more."""
        for line in self.accepted.values():
            if not line.taken:
                line.flush()

    def hear(self, line: PrefillLine) -> None:
        """Take what came over a line that was made from here. An engine of the decode half that asks does the rest."""
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
    """A connection that a peer's decode half made to the server here, over which its prefill half is asked."""

    def __init__(self, shared: SharedLines, identity: bytes, peer: LinePeer, speak: Speak) -> None:
        address = peer.answers[min(peer.worker, len(peer.answers) - 1)]
        super().__init__(address, Outbox(self.transmit, BACK), identity, peer)
        self._shared, self._speak = shared, speak
        self.taken, self._probed = False, float("-inf")

    def broken(self) -> KvplanError | None:
        """As the base says. ZeroMQ does not say which connection of a server has ended: it is tried, now and then."""
        if self.error is None and time.monotonic() - self._probed > CONNECTION_PROBE_SECONDS:
            self._probed = time.monotonic()
            self.transmit(BACK)
        return self.error

    def lose(self, error: KvplanError) -> None:
        """Nothing more is said or heard."""
        self.error = self.error or error

    def lose_connection(self) -> None:
        self.lose(PeerLostError(f"the connection of {self.address} is lost: connect again"))

    def read(self, most: int = MOST) -> None:
        """The server has read it."""

    def receive(self, most: int = MOST) -> list[Any]:
        """All that the server has read: it reads no more than it is asked to at once."""
        return super().receive(max(most, len(self.unread)))

    def filenos(self) -> list[int]:
        return []

    def arriving(self) -> bool:
        """Never: the server reads it."""
        return False

    def close(self) -> None:
        """Only its maker closes a connection."""

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
