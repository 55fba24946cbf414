"""Shared lines: the connections of a worker's server that both halves may use.

Who made a connection decodes, who accepted it prefills; if both engines do both, messages of the other way (`BACK`) go
over it, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import BACK, Hello, together_back
from kvplan.runtime.control.lines import MOST, DialedLine, LinePeer, PrefillLine, opened
from kvplan.runtime.control.messages import ToDecode
from kvplan.runtime.control.outbox import LineState, Outbox
from kvplan.runtime.errors import PeerLostError
from kvplan.runtime.inspection import ConnectionState

# Seconds: after some connection of a server has ended, so long and so often it is tried which of its lines that was.
DOUBT, PROBE = 1.0, 0.02
# Hands a sealed message to a connection that a peer has made.
Speak = Callable[[bytes, bytes], LineState]


class SharedLines:
    """The lines of one server. `speak` speaks through those that peers made, `watch` learns when one of these ends.

    `dialed` lines were made from here. `gone` are connections that neither half is heard over any more.
    """

    def __init__(self, speak: Speak, watch: Callable[[], None]) -> None:
        self._speak, self._watch = speak, watch
        self.dialed: dict[bytes, DialedLine] = {}
        self.gone = set[bytes]()
        # Who said hello in the last messages, by what key; the peers that the prefill half has met.
        self._knocked: dict[bytes, bytes] = {}
        self._met: dict[bytes, LinePeer] = {}
        # Connections that peers have made, and that the decode half may use, or does.
        self._accepted: dict[bytes, AcceptedLine] = {}
        self._doubt = float("-inf")

    @property
    def doubts(self) -> bool:
        """Whether a connection has ended a moment ago: it is tried which one that was."""
        return time.monotonic() < self._doubt

    def doubt(self) -> None:
        """Some connection that a peer has made has ended."""
        self._doubt = time.monotonic() + DOUBT

    def knock(self, identity: bytes, key: bytes) -> None:
        """Somebody said hello, with this public key."""
        self._knocked[identity] = key

    def forget_knocks(self, unread: Iterable[bytes]) -> None:
        """The messages of all others were taken."""
        self._knocked = {identity: self._knocked[identity] for identity in self._knocked.keys() & set(unread)}

    def meet(self, identity: bytes, hello: Hello) -> None:
        """The prefill half has met who says hello: the decode half may ask it over the same connection."""
        dialed = self.dialed.get(identity)
        key = self._knocked.get(identity, b"") if dialed is None else dialed.server_key
        peer = LinePeer(hello.name, hello.run, hello.worker, hello.answers, key)
        self._met[identity] = peer
        if dialed is None and peer.answers and identity not in self._accepted:
            self._accepted[identity] = AcceptedLine(self, identity, peer, self._speak)

    def forget(self, identity: bytes) -> None:
        """The prefill half has dropped this peer."""
        self._met.pop(identity, None)
        if (line := self._accepted.get(identity)) is not None and not line.taken:
            del self._accepted[identity]
        if (dialed := self.dialed.get(identity)) is not None and not dialed.taken:
            dialed.close()

    def attach(self, line: DialedLine, peer: LinePeer) -> None:
        """The decode half has met a worker over a line that was made from here: it may speak to the prefill half."""
        if line.shared is self:
            return
        # A peer may choose what ZeroMQ calls it: not this.
        line.shared, line.name, line.peer = self, b"dialed" + os.urandom(8), peer
        self.dialed[line.name] = line

    def detach(self, name: bytes) -> None:
        """A line that was made from here has ended, for both halves."""
        self.dialed.pop(name, None)
        self.gone.add(name)

    def serves(self, identity: bytes) -> bool:
        """Whether the prefill half has met the peer of a connection."""
        return identity in self._met

    def take(self, wanted: Callable[[LinePeer], bool], key: bytes) -> PrefillLine | None:
        """The newest line that the decode half does not use yet, to a peer that is wanted and has that public key.

        None if there is none. It is taken until it is left.
        """
        lines: list[PrefillLine] = [*self.dialed.values(), *self._accepted.values()]
        fit = (one for one in reversed(lines) if not one.taken and wanted(one.peer) and one.peer.key == key)
        line = next((one for one in fit if one.broken() is None), None)
        if line is None:
            return None
        if isinstance(line, AcceptedLine):
            self._watch()
        line.begin()
        return line

    def connections(self) -> tuple[ConnectionState, ...]:
        """The connections with peers, of either direction."""
        peers = {**{key: line.peer for key, line in {**self._accepted, **self.dialed}.items()}, **self._met}
        return tuple(self._state(key, peer) for key, peer in peers.items())

    def idle(self) -> list[DialedLine]:
        """The lines made from here that no engine of the decode half reads."""
        return [line for line in self.dialed.values() if not line.asked]

    def accepted(self, identity: bytes) -> AcceptedLine | None:
        """A connection that a peer has made, if the decode half may use it."""
        return self._accepted.get(identity)

    def hear_accepted(self, identity: bytes, frames: list[bytes]) -> None:
        """A message for the decode half. Late ones, for a line that it does not use any more, are nobody's."""
        line = self._accepted.get(identity)
        if line is not None and line.taken and frames != [BACK]:
            line.unread.extend(opened(frames, ToDecode, BACK))

    def outbox(self, identity: bytes) -> Outbox | None:
        """What is to be said through a line that was made from here, to the decode half behind it."""
        line = self.dialed.get(identity)
        return None if line is None else Outbox(line.hand_over, together_back)

    def flush(self) -> None:
        """Say what waits on connections that the decode half does not use any more."""
        for line in self._accepted.values():
            if not line.taken:
                line.flush()

    def end_accepted(self, identity: bytes) -> None:
        """The decode half does not use a peer's connection any more."""
        if identity not in self._met:
            self._accepted.pop(identity, None)

    def hear(self, line: DialedLine) -> None:
        """Take what came over a line that was made from here, unless an engine of the decode half does."""
        if not line.asked:
            line.flush()
            line.read()
            if line.broken() is not None:
                self.gone.add(line.name)

    def _state(self, key: bytes, peer: LinePeer) -> ConnectionState:
        line = self.dialed.get(key) or self._accepted.get(key)
        asks = line is not None and line.taken
        return ConnectionState(peer.engine, peer.run, peer.worker, key in self.dialed, asks, key in self._met)


class AcceptedLine(PrefillLine):
    """A connection that a peer's decode half made to the server here, over which its prefill half is asked."""

    def __init__(self, shared: SharedLines, identity: bytes, peer: LinePeer, speak: Speak) -> None:
        address = peer.answers[min(peer.worker, len(peer.answers) - 1)]
        super().__init__(address, Outbox(self._hand_over, together_back), peer)
        self._shared, self._identity, self._speak = shared, identity, speak
        self.taken, self._probed = False, float("-inf")

    def broken(self) -> KvplanError | None:
        """As the base says. Which connection of a server has ended is found by trying all of them."""
        if self.error is None and self._shared.doubts and time.monotonic() - self._probed > PROBE:
            self._probed = time.monotonic()
            self._hand_over(BACK)
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

    def wait(self, seconds: float) -> None:
        """As `read`: who drives the server waits."""

    def close(self) -> None:
        self.lose(PeerLostError(f"the connection of {self.address} is closed"))
        self.end()

    def filenos(self) -> list[int]:
        return []

    def pending(self) -> bool:
        return len(self.unread) > 0

    def end(self) -> None:
        self.taken = False
        self._shared.end_accepted(self._identity)

    def _hand_over(self, waiting: bytes) -> LineState:
        state = self._speak(self._identity, waiting)
        if state is LineState.GONE:
            self.lose_connection()
            self._shared.gone.add(self._identity)
        return state
