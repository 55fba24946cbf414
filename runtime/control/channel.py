"""Control channel over ZeroMQ: a worker's ControlServer (ROUTER), and the ControlClients (DEALER) of its decode half.

Neither ever blocks, except in a wait of given length: a message that a line does not take now is sent by a later
`receive`, when the line has room. Each is used by one thread at a time.

A connection carries messages both ways. Usually its maker decodes and its accepter prefills. If both engines do both,
messages between the other halves (`BACK`) use it, too. A prefill half knows every connection by its server's name for
it, whichever side made it.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from functools import partial
from typing import Any

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.addresses import check_address, is_loopback
from kvplan.runtime.control.card import BACK, Hello, Refusal, encode, seal, together
from kvplan.runtime.control.keys import Keys, Plain, server, text
from kvplan.runtime.control.lines import MOST, LinePeer, PrefillLine, opened
from kvplan.runtime.control.messages import Bye, ToDecode, ToPrefill
from kvplan.runtime.control.outbox import LineState, Outbox
from kvplan.runtime.control.shared import SharedLines
from kvplan.runtime.control.sockets import (
    LINGER,
    Guard,
    client_context,
    descriptors,
    end,
    key_of,
    new_context,
    received,
    received_frames,
    sent,
    socket,
    waits,
    watch_client,
)
from kvplan.runtime.errors import HandshakeError, KeysError, PeerLostError, ProtocolError
from kvplan.runtime.ops import logs
from kvplan.runtime.wakeup import rest

FAILURES = 4


class ControlServer:
    """The server of a prefill worker. With keys, only the engines that these allow may connect and are heard."""

    def __init__(self, bind: str, keys: Keys | Plain) -> None:
        """Listen at `bind`, such as tcp://127.0.0.1:* or tcp://[::]:5555. Raises HandshakeError or KeysError."""
        import zmq

        _check(bind, keys)
        context, self._closed, self._keys = new_context(), False, keys
        self._outboxes: dict[bytes, Outbox] = {}
        self._unread, self._gathers = deque[tuple[bytes, Any]](), False
        self.lines = SharedLines(self.transmit)
        self._socket = socket(context, zmq.ROUTER, bind)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        guard = Guard()
        # Needed if `close` is never called: a context that is collected while its guard runs waits forever.
        self._end = weakref.finalize(self, end, os.getpid(), self._socket, None, guard.stop, context.term)
        # Not at exit: the owner may still be at work then.
        self._end.atexit = False
        try:
            guard.admit(self._socket, keys)
            self._socket.bind(bind)
        except zmq.ZMQError as error:
            self.close()
            raise HandshakeError(f"cannot listen at {bind}: {error}") from error
        except HandshakeError:
            self.close()
            raise
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        if isinstance(keys, Plain):
            logs.event(
                logs.WARNING, "no keys", server=self.address, risk="anybody who reaches it may read and write memory"
            )

    def receive(self, most: int = MOST) -> list[tuple[bytes, Any]]:
        """Return at most `most` new messages: the sender, and a ToPrefill struct or a CardError."""
        self.lines.gone.update(self._flush_all())
        # Computed once for all connections, so that those read first do not starve the others.
        room = not self._closed and len(self._unread) < most
        if room:
            self._read(most)
        for line in list(self.lines.dialed.values()):
            self.lines.hear(line)
            # The line reads no more until `back` is taken.
            if line.back and room:
                self._hear_back(line)
        self.lines.flush()
        return [self._unread.popleft() for _ in range(min(most, len(self._unread)))]

    def send(self, identity: bytes, message: msgspec.Struct) -> bool:
        """Send a message. Return False if the peer is lost or its outbox full. Raises CardError if it is too large."""
        data = encode(message)
        if self._closed:
            return False
        outbox = self._outboxes.get(identity)
        if outbox is None:
            # Compared with None, because an empty outbox is false.
            dialed = self.lines.outbox(identity)
            outbox = Outbox(partial(self.transmit, identity)) if dialed is None else dialed
            self._outboxes[identity] = outbox
        return outbox.put(data) and ((self._gathers and not outbox.ample) or self._flush(identity))

    def gather(self) -> None:
        """From now on collect messages until `flush` or `receive`, which send them to each peer as one message."""
        self._gathers = True

    def flush(self) -> list[bytes]:
        """Send waiting messages as far as lines take them. Return the lost peers."""
        gone = [*self.lines.gone, *self._flush_all()]
        self.lines.gone.clear()
        return gone

    def behind(self) -> list[bytes]:
        """Return the peers whose lines are full, so that messages for them wait."""
        return [identity for identity, outbox in self._outboxes.items() if outbox.full]

    def forget(self, identity: bytes) -> None:
        """Discard the messages that wait for a peer, because the prefill half has dropped it."""
        self._outboxes.pop(identity, None)
        self.lines.forget(identity)

    def filenos(self) -> list[int]:
        """Return file descriptors that may become readable when a message comes. They are hints, for any thread."""
        idle = (line for line in self.lines.dialed.values() if not line.polled)
        return [*descriptors(self._socket), *(one for line in idle for one in line.filenos())]

    def pending(self) -> bool:
        """Return whether a message can be received, even if `filenos` no longer signal it."""
        if self._closed:
            return False
        read = len(self._unread) > 0 or waits(self._socket)
        return read or any(line.back or line.arriving() for line in self.lines.dialed.values())

    def transmit(self, identity: bytes, message: bytes) -> LineState:
        """Send a sealed message over a connection that a peer has made."""
        return LineState.GONE if self._closed else sent(self._socket, [identity], message)

    def wait(self, seconds: float) -> None:
        """Wait until something may be received, at most `seconds`."""
        if not self._closed and not self.pending():
            rest(self.filenos(), seconds)

    def close(self) -> None:
        """Send waiting messages, stop listening, and end connections and threads. A second call does nothing."""
        if self._closed:
            return
        self._flush_all()
        self._closed = True
        for line in list(self.lines.dialed.values()):
            line.close()
        # The last messages may be those that confirm a request.
        self._socket.linger = LINGER
        self._end()

    def _read(self, most: int) -> None:
        keyed = [(key_of(frames), [frame.bytes for frame in frames]) for frames in received_frames(self._socket, most)]
        allowed = self._keys.allowed() if keyed and isinstance(self._keys, Keys) else {key for key, _ in keyed}
        if keyed:
            unread = {identity for identity, _ in self._unread}
            self.lines.forget_hellos(unread)
        for key, (identity, *frames) in keyed:
            # A peer may choose its ZeroMQ identity, even that of a line that was made here.
            if identity in self.lines.dialed:
                continue
            if key not in allowed:
                self._unread.append((identity, self._refuse_removed(identity)))
            elif frames and frames[0].startswith(BACK):
                self.lines.hear_accepted(identity, frames)
            else:
                messages = self._open(identity, frames)
                if any(isinstance(message, Hello) for message in messages):
                    self.lines.hello_keys[identity] = key
                self._unread.extend((identity, message) for message in messages)

    def _hear_back(self, line: PrefillLine) -> None:
        """Queue the messages for the prefill half that came over a line made here."""
        messages, line.back = list(line.back), deque()
        if isinstance(self._keys, Keys) and line.peer.key not in self._keys.allowed():
            line.transmit(together([encode(_key_removed())], BACK))
            messages = [Bye()]
        self._unread.extend((line.name, message) for message in messages)

    def _flush_all(self) -> list[bytes]:
        return [] if self._closed else [identity for identity in list(self._outboxes) if not self._flush(identity)]

    def _flush(self, identity: bytes) -> bool:
        """Send waiting messages to a peer. Return False if it is lost."""
        outbox = self._outboxes[identity]
        listens = outbox.flush()
        if not len(outbox):
            del self._outboxes[identity]
        if not listens and (line := self.lines.accepted.get(identity)) is not None:
            line.lose_connection()
        return listens

    def _refuse_removed(self, identity: bytes) -> Bye:
        """Notify a peer whose key was removed after it connected. Its messages count as a goodbye, in both halves."""
        sent(self._socket, [identity], seal(_key_removed()))
        if (line := self.lines.accepted.get(identity)) is not None:
            line.lose(KeysError(f"the key of {line.address} was taken back"))
        return Bye()

    def _open(self, identity: bytes, frames: list[bytes]) -> list[Any]:
        """Return the structs of a message, or its error. A peer of another release is notified."""
        messages = opened(frames, ToPrefill)
        if isinstance(messages[0], ProtocolError):
            sent(self._socket, [identity], seal(Refusal(messages[0].code, str(messages[0]), False, b"")))
        return messages


class ControlClient(PrefillLine):
    """A decode worker's connection to one prefill worker. With keys, the server must have `server_key`."""

    def __init__(self, address: str, keys: Keys | Plain, server_key: bytes | None = None) -> None:
        """Begin to connect. Raises HandshakeError or KeysError, but not if the server does not answer yet."""
        import zmq

        _check(address, keys)
        if isinstance(keys, Plain) and server_key is not None:
            raise KeysError(f"{address}: a server's key was given, {text(server_key)}, but no keys of our own")
        expected = server(keys, server_key) if isinstance(keys, Keys) else b""
        super().__init__(address, Outbox(self.transmit))
        self.server_key = expected
        # The lines of this worker's server, once this line is one of them.
        self.shared: SharedLines | None = None
        self._closed, self._own_key = False, keys.public if isinstance(keys, Keys) else b""
        self._up, self._failures = False, 0
        self._socket = socket(client_context(os.getpid()), zmq.DEALER, address)
        if isinstance(keys, Keys):
            self._socket.curve_serverkey = self.server_key
            self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
        else:
            logs.event(logs.WARNING, "no keys", client=address, risk="any process that answers there is trusted")
        self._monitor = watch_client(self._socket)
        self._descriptors = descriptors(self._socket, self._monitor)
        # Needed if `close` is never called: the monitor might be collected before the socket.
        self._end = weakref.finalize(self, end, os.getpid(), self._socket, self._monitor)
        self._end.atexit = False
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise HandshakeError(f"{address}: {error}: give the address that the worker prints") from error

    def transmit(self, message: bytes) -> LineState:
        """Send a sealed message, unless the connection broke: ZeroMQ reconnects by itself, maybe to a successor."""
        return LineState.GONE if self._closed or self.error is not None else sent(self._socket, [], message)

    def read(self, most: int = MOST) -> None:
        # If one half does not take its messages, the other cannot read either. This bounds the memory in use.
        if self._closed or len(self.back) >= MOST or len(self.unread) >= MOST:
            return
        for frames in received(self._socket, most):
            if not frames[0].startswith(BACK):
                if self.taken:
                    self.unread.extend(opened(frames, ToDecode))
            elif frames != [BACK]:
                self.back.extend(opened(frames, ToPrefill, BACK))

    def filenos(self) -> list[int]:
        return [] if self._closed else self._descriptors

    def arriving(self) -> bool:
        return not self._closed and (waits(self._socket) or waits(self._monitor))

    def broken(self) -> KvplanError | None:
        """Return why no more messages come: KeysError, HandshakeError, or PeerLostError once connected. It is final."""
        if self._closed or not waits(self._monitor):
            return self.error
        from zmq.utils.monitor import parse_monitor_message

        for frames in received(self._monitor, MOST):
            event = parse_monitor_message(frames)
            self.error = self.error or self._error_of(int(event["event"]), int(event["value"]))
        return self.error

    def share(self, lines: SharedLines, peer: LinePeer) -> None:
        """Add this line, over which a peer was met, to `lines`: the peer's decode half may ask the server over it."""
        if self.shared is None:
            # Random, because a peer may choose its ZeroMQ identity and must not hit this name.
            self.shared, self.name, self.peer = lines, b"dialed" + os.urandom(8), peer
            lines.dialed[self.name] = self

    def end(self) -> None:
        """See `PrefillLine.end`. The connection stays while the prefill half has also met its peer."""
        self.taken = False
        if self.shared is None or self.error is not None or self.name not in self.shared.met:
            self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self.shared is not None:
            self.shared.dialed.pop(self.name, None)
            self.shared.gone.add(self.name)
        self.error = self.error or PeerLostError(f"the connection to {self.address} is closed")
        self._socket.linger = LINGER
        self._end()

    def _error_of(self, event: int, value: int) -> KvplanError | None:
        """Return the error that a socket event means for the connection, if any."""
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


def _key_removed() -> Refusal:
    return Refusal(KeysError.code, "its key was taken back", False, b"")
