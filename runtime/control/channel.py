"""Control channel over ZeroMQ: a worker's ControlServer (ROUTER), and the ControlClients (DEALER) of its decode half.

Neither ever blocks, except to wait as long as it is told: what a line does not take now is said when it has room, when
`receive` is called. Each is used by one thread at a time.

A connection goes both ways. Who made it decodes, who accepted it prefills; if both engines do both, messages of the
other way (`BACK`) go over it, too. A prefill half knows all connections by what its server calls them, whoever made
them.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.addresses import check_address, is_loopback
from kvplan.runtime.control.card import BACK, MAGIC, Hello, Refusal, encode, seal, together, together_back, unseal
from kvplan.runtime.control.keys import Keys, Plain, server, text
from kvplan.runtime.control.lines import MOST, LinePeer, PrefillLine
from kvplan.runtime.control.messages import Bye, ToDecode, ToPrefill
from kvplan.runtime.control.outbox import LineState, Outbox
from kvplan.runtime.control.sockets import (
    LINGER,
    Guard,
    client_context,
    descriptors,
    end,
    key_of,
    milliseconds,
    new_context,
    received,
    received_frames,
    sent,
    socket,
    waits,
    watch_client,
)
from kvplan.runtime.errors import CardError, HandshakeError, KeysError, PeerLostError, ProtocolError
from kvplan.runtime.inspection import ConnectionState
from kvplan.runtime.ops import logs

FAILURES = 4
# Seconds: after some connection of a server has ended, so long and so often it is tried which of its lines that was.
DOUBT, PROBE = 1.0, 0.02


class ControlServer:
    """Where a prefill worker answers. With keys, only the engines that these allow get in, and are heard."""

    def __init__(self, bind: str, keys: Keys | Plain) -> None:
        """Listen at `bind`, such as tcp://127.0.0.1:* or tcp://[::]:5555. Raises HandshakeError or KeysError."""
        import zmq

        _check(bind, keys)
        context, self._closed, self._keys = new_context(), False, keys
        self._outboxes: dict[bytes, Outbox] = {}
        self._unread, self._gathers = deque[tuple[bytes, Any]](), False
        # Who said hello in the last messages, by what key; the peers that the prefill half has met.
        self._knocked: dict[bytes, bytes] = {}
        self._met: dict[bytes, LinePeer] = {}
        # What the decode half may use, or does: connections that peers have made, and those that were made from here.
        self._accepted: dict[bytes, AcceptedLine] = {}
        self._dialed: dict[bytes, ControlClient] = {}
        self._gone = set[bytes]()
        self._doubt = float("-inf")
        self._socket = socket(context, zmq.ROUTER, bind)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        guard = Guard()
        self._monitor: Any = None
        # Also where nobody calls `close`: a context that is collected with its guard still running waits for ever.
        self._rest = guard.stop, context.term
        self._finalize()
        try:
            guard.admit(self._socket, keys)
            self._listen(bind)
        except HandshakeError:
            self.close()
            raise
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        if isinstance(keys, Plain):
            logs.event(
                logs.WARNING, "plain", server=self.address, risk="anybody who reaches it may read and write memory"
            )

    def receive(self, most: int = MOST) -> list[tuple[bytes, Any]]:
        """What came since the last call, at most `most`: who sent it, and a ToPrefill struct or a CardError."""
        self._gone.update(self._flush_all())
        # Asked once, for connections of either maker: those that are read first leave the others their turn.
        room = not self._closed and len(self._unread) < most
        if room:
            self._read(most)
        for key, line in list(self._dialed.items()):
            self._hear_back(key, line, room)
        for accepted in self._accepted.values():
            if not accepted.taken:
                accepted.flush()
        return [self._unread.popleft() for _ in range(min(most, len(self._unread)))]

    def send(self, identity: bytes, message: msgspec.Struct) -> bool:
        """False where the peer is gone, or has not listened for long. Raises CardError for a message too large."""
        data = encode(message)
        if self._closed:
            return False
        outbox = self._outboxes.get(identity)
        if outbox is None:
            outbox = self._outboxes[identity] = self._outbox(identity)
        return outbox.put(data) and ((self._gathers and not outbox.ample) or self._flush(identity))

    def gather(self) -> None:
        """From now on say with `flush`, and `receive`, what was sent before it: to each peer in one message."""
        self._gathers = True

    def flush(self) -> list[bytes]:
        """Say what is to be said, as far as it is taken; returns those who are gone."""
        gone = [*self._gone, *self._flush_all()]
        self._gone.clear()
        return gone

    def behind(self) -> list[bytes]:
        """The peers for whom something waits until they take it."""
        return [identity for identity, outbox in self._outboxes.items() if outbox.full]

    def meet(self, identity: bytes, hello: Hello) -> None:
        """The prefill half has met who says hello: the decode half may ask it over the same connection."""
        dialed = self._dialed.get(identity)
        key = self._knocked.get(identity, b"") if dialed is None else dialed.server_key
        peer = LinePeer(hello.name, hello.run, hello.worker, hello.answers, key)
        self._met[identity] = peer
        if dialed is None and peer.answers and identity not in self._accepted:
            self._accepted[identity] = AcceptedLine(self, identity, peer)

    def forget(self, identity: bytes) -> None:
        """The prefill half has dropped this peer: what waits for it is not said."""
        self._outboxes.pop(identity, None)
        self._met.pop(identity, None)
        if (line := self._accepted.get(identity)) is not None and not line.taken:
            del self._accepted[identity]
        if (dialed := self._dialed.get(identity)) is not None and not dialed.taken:
            dialed.close()

    def attach(self, line: ControlClient, peer: LinePeer) -> None:
        """The decode half has met a worker over a line that was made from here: it may speak to the prefill half."""
        if line.server is self:
            return
        # A peer may choose what ZeroMQ calls it: not this.
        line.server, line.name, line.peer = self, b"dialed" + os.urandom(8), peer
        self._dialed[line.name] = line

    def detach(self, line: ControlClient) -> None:
        """A line that was made from here has ended, for both halves."""
        self._dialed.pop(line.name, None)
        self._gone.add(line.name)

    def serves(self, identity: bytes) -> bool:
        """Whether the prefill half has met the peer of a connection."""
        return identity in self._met

    def take(self, wanted: Callable[[LinePeer], bool], key: bytes) -> PrefillLine | None:
        """The newest line that the decode half does not use yet, to a peer that is wanted and has that public key.

        None if there is none. It is taken until it is left.
        """
        lines = [*self._dialed.values(), *self._accepted.values()]
        fit = (one for one in reversed(lines) if not one.taken and wanted(one.peer) and one.peer.key == key)
        line = next((one for one in fit if one.broken() is None), None)
        if line is None:
            return None
        if isinstance(line, AcceptedLine):
            self._watch()
        line.begin()
        return line

    def connections(self) -> tuple[ConnectionState, ...]:
        """The connections with peers, whoever made them."""
        peers = {**{key: line.peer for key, line in {**self._accepted, **self._dialed}.items()}, **self._met}
        return tuple(self._state(key, peer) for key, peer in peers.items())

    def _state(self, key: bytes, peer: LinePeer) -> ConnectionState:
        line = self._dialed.get(key) or self._accepted.get(key)
        asks = line is not None and line.taken
        return ConnectionState(peer.engine, peer.run, peer.worker, key in self._dialed, asks, key in self._met)

    def filenos(self) -> list[int]:
        """Descriptors that may become readable when a message comes: hints, for any thread."""
        own = [self._socket] if self._monitor is None else [self._socket, self._monitor]
        return [*descriptors(*own), *(one for line in self._idle() for one in line.filenos())]

    def pending(self) -> bool:
        """Whether a message can be received, of which `filenos` may not tell any more."""
        if self._closed:
            return False
        read = len(self._unread) > 0 or any(line.back for line in self._dialed.values())
        return read or waits(self._socket) or any(line.pending() for line in self._idle())

    @property
    def doubts(self) -> bool:
        """Whether a connection has ended a moment ago: it is tried which one that was."""
        return time.monotonic() < self._doubt

    def hand_over(self, identity: bytes, message: bytes) -> LineState:
        """Hand a sealed message to a connection that a peer has made."""
        return LineState.GONE if self._closed else sent(self._socket, [identity], message)

    def wait(self, seconds: float) -> None:
        """Until something can be received, at most `seconds`."""
        if not self._closed and not self._unread:
            self._socket.poll(milliseconds(seconds))

    def close(self) -> None:
        """Say what waits, stop listening; connections and threads end. Once more does nothing."""
        if self._closed:
            return
        self._flush_all()
        self._closed = True
        for line in list(self._dialed.values()):
            line.close()
        # The last words may be those that a request has ended well.
        self._socket.linger = LINGER
        self._end()

    def end_accepted(self, identity: bytes) -> None:
        """The decode half does not use a peer's connection any more."""
        if identity not in self._met:
            self._accepted.pop(identity, None)

    def lost(self, identity: bytes) -> None:
        """A peer's connection has ended: neither half is heard over it any more."""
        self._gone.add(identity)

    def _idle(self) -> list[ControlClient]:
        """The lines made from here that no engine of the decode half reads."""
        return [line for line in self._dialed.values() if not line.asked]

    def _finalize(self) -> None:
        self._end = weakref.finalize(self, end, os.getpid(), self._socket, self._monitor, *self._rest)
        # As the program ends, its owner may still be at work.
        self._end.atexit = False

    def _watch(self) -> None:
        """Learn from now on when any connection ends: ZeroMQ does not say which."""
        if self._monitor is None:
            self._end.detach()
            self._monitor = watch_client(self._socket)
            self._finalize()

    def _listen(self, bind: str) -> None:
        import zmq

        try:
            self._socket.bind(bind)
        except zmq.ZMQError as error:
            raise HandshakeError(f"cannot listen at {bind}: {error}") from error

    def _read(self, most: int) -> None:
        self._look_after()
        keyed = [(key_of(frames), [frame.bytes for frame in frames]) for frames in received_frames(self._socket, most)]
        allowed = self._keys.allowed() if keyed and isinstance(self._keys, Keys) else {key for key, _ in keyed}
        if keyed:
            unread = {identity for identity, _ in self._unread}
            self._knocked = {identity: key for identity, key in self._knocked.items() if identity in unread}
        for key, (identity, *frames) in keyed:
            # A peer may choose what ZeroMQ calls it.
            if identity in self._dialed:
                continue
            if key not in allowed:
                self._unread.append((identity, self._bar(identity)))
            elif frames and frames[0].startswith(BACK):
                self._accepted_hears(identity, frames)
            else:
                messages = self._open(identity, frames)
                if any(isinstance(message, Hello) for message in messages):
                    self._knocked[identity] = key
                self._unread.extend((identity, message) for message in messages)

    def _look_after(self) -> None:
        if self._monitor is not None and waits(self._monitor):
            import zmq
            from zmq.utils.monitor import parse_monitor_message

            events = {int(parse_monitor_message(frames)["event"]) for frames in received(self._monitor, MOST)}
            if zmq.EVENT_DISCONNECTED in events:
                self._doubt = time.monotonic() + DOUBT

    def _accepted_hears(self, identity: bytes, frames: list[bytes]) -> None:
        """A message for the decode half. Late ones, for a line that it does not use any more, are nobody's."""
        line = self._accepted.get(identity)
        if line is not None and line.taken and frames != [BACK]:
            line.unread.extend(_opened(frames, ToDecode, BACK))

    def _hear_back(self, identity: bytes, line: ControlClient, room: bool) -> None:
        """What came for the prefill half over a line that was made from here."""
        if not line.asked:
            line.flush()
            line.read()
            if line.broken() is not None:
                self._gone.add(identity)
        # The line reads no more until this is taken.
        if not (line.back and room):
            return
        messages, line.back = list(line.back), deque()
        if isinstance(self._keys, Keys) and line.server_key not in self._keys.allowed():
            messages = [self._bar(identity)]
        self._unread.extend((identity, message) for message in messages)

    def _outbox(self, identity: bytes) -> Outbox:
        if (line := self._dialed.get(identity)) is not None:
            return Outbox(line.hand_over, together_back)
        return Outbox(lambda waiting: self.hand_over(identity, waiting), together)

    def _flush_all(self) -> list[bytes]:
        return [] if self._closed else [identity for identity in list(self._outboxes) if not self._flush(identity)]

    def _flush(self, identity: bytes) -> bool:
        """False where nobody listens."""
        outbox = self._outboxes[identity]
        listens = outbox.flush()
        if not len(outbox):
            del self._outboxes[identity]
        if not listens and identity in self._accepted:
            self._accepted[identity].lose_connection()
        return listens

    def _bar(self, identity: bytes) -> Bye:
        """Tell one whose key was taken back since it connected; its words count as a goodbye, in both halves."""
        refusal, line = Refusal(KeysError.code, "its key was taken back", False, b""), self._dialed.get(identity)
        if line is not None:
            line.hand_over(together_back([encode(refusal)]))
            return Bye()
        sent(self._socket, [identity], seal(refusal))
        if identity in self._accepted:
            self._accepted[identity].lose(KeysError(f"the key of {self._accepted[identity].address} was taken back"))
        return Bye()

    def _open(self, identity: bytes, frames: list[bytes]) -> list[Any]:
        """The structs of a message, or why there is none. Another release is told."""
        messages = _opened(frames, ToPrefill)
        if isinstance(messages[0], ProtocolError):
            sent(self._socket, [identity], seal(Refusal(messages[0].code, str(messages[0]), False, b"")))
        return messages


class AcceptedLine(PrefillLine):
    """A connection that a peer's decode half made to the server here, over which its prefill half is asked."""

    def __init__(self, server: ControlServer, identity: bytes, peer: LinePeer) -> None:
        address = peer.answers[min(peer.worker, len(peer.answers) - 1)]
        super().__init__(address, Outbox(self._hand_over, together_back), peer)
        self._server, self._identity = server, identity
        self.taken, self._probed = False, float("-inf")

    def broken(self) -> KvplanError | None:
        """As the base says. Which connection of a server has ended is found by trying all of them."""
        if self.error is None and self._server.doubts and time.monotonic() - self._probed > PROBE:
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
        self._server.end_accepted(self._identity)

    def _hand_over(self, waiting: bytes) -> LineState:
        state = self._server.hand_over(self._identity, waiting)
        if state is LineState.GONE:
            self.lose_connection()
            self._server.lost(self._identity)
        return state


class ControlClient(PrefillLine):
    """A decode worker's connection to one prefill worker. With keys, the server must have `server_key`.

    If a `server` here knows it, as `name`, the peer's decode half may ask over it: `back` is what it said.
    """

    def __init__(self, address: str, keys: Keys | Plain, server_key: bytes | None = None) -> None:
        """Begin to connect. Raises HandshakeError or KeysError; who is not there (yet) is no error here."""
        import zmq

        _check(address, keys)
        if isinstance(keys, Plain) and server_key is not None:
            raise KeysError(f"{address}: a server's key was given, {text(server_key)}, but no keys of our own")
        super().__init__(address, Outbox(self.hand_over, together))
        self._closed = False
        self.server: ControlServer | None = None
        self.name, self.back = b"", deque[Any]()
        self._own_key = keys.public if isinstance(keys, Keys) else b""
        self.server_key = server(keys, server_key) if isinstance(keys, Keys) else b""
        self._up, self._failures = False, 0
        self._socket = socket(client_context(os.getpid()), zmq.DEALER, address)
        if isinstance(keys, Keys):
            self._socket.curve_serverkey = self.server_key
            self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
        else:
            logs.event(logs.WARNING, "plain", client=address, risk="whoever answers there is believed")
        self._monitor = watch_client(self._socket)
        self._descriptors = descriptors(self._socket, self._monitor)
        # Also where nobody calls `close`: collected one by one, the monitor may go first.
        self._end = weakref.finalize(self, end, os.getpid(), self._socket, self._monitor)
        self._end.atexit = False
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise HandshakeError(f"{address}: {error}: give the address that the worker prints") from error

    def hand_over(self, message: bytes) -> LineState:
        """Hand a sealed message over. ZeroMQ connects again by itself, maybe to a successor: that is not waited for."""
        return LineState.GONE if self._closed or self.error is not None else sent(self._socket, [], message)

    def read(self, most: int = MOST) -> None:
        # What one half does not take keeps the other from reading, rather than memory.
        if self._closed or len(self.back) >= MOST or len(self.unread) >= MOST:
            return
        for frames in received(self._socket, most):
            if not frames[0].startswith(BACK):
                if self.taken:
                    self.unread.extend(_opened(frames, ToDecode))
            elif frames != [BACK]:
                self.back.extend(_opened(frames, ToPrefill, BACK))

    def filenos(self) -> list[int]:
        """Descriptors that may become readable when something comes, or a connection changes: hints, for any thread."""
        return [] if self._closed else self._descriptors

    def pending(self) -> bool:
        """Whether there is something to be received, or to be looked at, of which `filenos` may not tell any more."""
        return not self._closed and (len(self.unread) > 0 or waits(self._socket) or waits(self._monitor))

    def wait(self, seconds: float) -> None:
        """Until something can be received or the connection breaks, at most `seconds`."""
        import zmq

        if self.broken() is None and not self.unread:
            poller = zmq.Poller()
            poller.register(self._socket, zmq.POLLIN)
            poller.register(self._monitor, zmq.POLLIN)
            poller.poll(milliseconds(seconds))

    def broken(self) -> KvplanError | None:
        """Why nothing more comes: KeysError, HandshakeError, or PeerLostError once it was connected. It stays so."""
        if self._closed or not waits(self._monitor):
            return self.error
        from zmq.utils.monitor import parse_monitor_message

        for frames in received(self._monitor, MOST):
            event = parse_monitor_message(frames)
            self.error = self.error or self._meaning(int(event["event"]), int(event["value"]))
        return self.error

    def end(self) -> None:
        """As the base says: the prefill half may have met the peer of this connection, too."""
        self.taken = False
        if self.server is None or self.error is not None or not self.server.serves(self.name):
            self.close()

    def close(self) -> None:
        """End the connection. Once more does nothing."""
        if self._closed:
            return
        self._closed = True
        if self.server is not None:
            self.server.detach(self)
        self.error = self.error or PeerLostError(f"the connection to {self.address} is closed")
        self._socket.linger = LINGER
        self._end()

    def _meaning(self, event: int, value: int) -> KvplanError | None:
        """What an event of the socket means for the connection."""
        import zmq

        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._up = True
        if event == zmq.EVENT_DISCONNECTED and self._up:
            return PeerLostError(f"the connection to {self.address} is lost: connect again")
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            both = f"(public key {text(self.server_key)}) does not let ours in, {text(self._own_key)}"
            return KeysError(f"{self.address} {both}: make it one of that side's peers")
        if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            return self._other_keys(value)
        self._failures += event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        return self._other_keys(value) if self._failures >= FAILURES else None

    def _other_keys(self, value: int) -> KvplanError:
        import zmq

        if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            own = f"with keys (ours is {text(self._own_key)})" if self._own_key else "without keys"
            return KeysError(f"{self.address}: this side is {own}, the other is not: give keys to both")
        if self._own_key:
            both = f"public key {text(self.server_key)}, ours is {text(self._own_key)}"
            return KeysError(f"{self.address} does not have {both}: give the key that the server has")
        return HandshakeError(f"{self.address} ends every connection: does it ask for keys, or is it a worker at all?")


def _check(address: str, keys: Keys | Plain) -> None:
    if not isinstance(keys, Keys | Plain):
        raise KeysError(f"keys are Keys, or Plain() where anybody may connect, not a {type(keys).__name__}")
    check_address(address)
    if isinstance(keys, Plain) and keys.loopback and not is_loopback(address):
        raise KeysError(f"{address} is not on this machine, and there are no keys: make some with `kvplan keys`")


def _opened(frames: list[bytes], kind: Any, magic: bytes = MAGIC) -> list[Any]:
    """The structs of a message, or why there is none."""
    try:
        return unseal(frames[0] if len(frames) == 1 else b"".join(frames), kind, magic)
    except CardError as error:
        return [error]
