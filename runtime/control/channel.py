"""Control channel over ZeroMQ: a prefill worker's ControlServer (ROUTER), a decode worker's ControlClient (DEALER).

Neither ever blocks, except to wait as long as it is told: what a line does not take now is said when it has room, when
`receive` is called. Each is used by one thread at a time.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.addresses import check_address, is_loopback
from kvplan.runtime.control.card import Refusal, encode, seal, together, unseal
from kvplan.runtime.control.keys import Keys, Plain, server, text
from kvplan.runtime.control.messages import Bye, ToDecode, ToPrefill
from kvplan.runtime.control.outbox import Outbox
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
from kvplan.runtime.ops import logs

if TYPE_CHECKING:
    pass

MOST = 256
FAILURES = 4


class ControlServer:
    """Where a prefill worker answers. With keys, only the engines that these allow get in, and are heard."""

    def __init__(self, bind: str, keys: Keys | Plain) -> None:
        """Listen at `bind`, such as tcp://127.0.0.1:* or tcp://[::]:5555. Raises HandshakeError or KeysError."""
        import zmq

        _check(bind, keys)
        context, self._closed, self._keys = new_context(), False, keys
        self._outboxes: dict[bytes, Outbox] = {}
        self._unread, self._gathers = deque[tuple[bytes, Any]](), False
        self._socket = socket(context, zmq.ROUTER, bind)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        guard = Guard()
        # Also where nobody calls `close`: a context that is collected with its guard still running waits for ever.
        rest = guard.stop, context.term
        self._end = weakref.finalize(self, end, os.getpid(), self._socket, None, *rest)
        # As the program ends, its owner may still be at work.
        self._end.atexit = False
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
        self.flush()
        if not self._closed and len(self._unread) < most:
            self._read(most)
        return [self._unread.popleft() for _ in range(min(most, len(self._unread)))]

    def send(self, identity: bytes, message: msgspec.Struct) -> bool:
        """False where the peer is gone, or has not listened for long. Raises CardError for a message too large."""
        data = encode(message)
        if self._closed:
            return False
        outbox = self._outboxes.get(identity)
        if outbox is None:
            outbox = Outbox(lambda waiting: sent(self._socket, [identity], waiting), together)
            self._outboxes[identity] = outbox
        return outbox.put(data) and ((self._gathers and not outbox.ample) or self._flush(identity))

    def gather(self) -> None:
        """From now on say with `flush`, and `receive`, what was sent before it: to each peer in one message."""
        self._gathers = True

    def flush(self) -> list[bytes]:
        """Say what is to be said, as far as it is taken; returns those who are gone."""
        return [] if self._closed else [identity for identity in list(self._outboxes) if not self._flush(identity)]

    def behind(self, identity: bytes) -> bool:
        """Whether something waits until this peer takes it."""
        return identity in self._outboxes and self._outboxes[identity].full

    def forget(self, identity: bytes) -> None:
        """What waits for this peer is not said."""
        self._outboxes.pop(identity, None)

    def filenos(self) -> list[int]:
        """Descriptors that may become readable when a message comes: hints, for any thread."""
        return descriptors(self._socket)

    def pending(self) -> bool:
        """Whether a message can be received, of which `filenos` may not tell any more."""
        return not self._closed and (len(self._unread) > 0 or waits(self._socket))

    def wait(self, seconds: float) -> None:
        """Until something can be received, at most `seconds`."""
        if not self._closed and not self._unread:
            self._socket.poll(milliseconds(seconds))

    def close(self) -> None:
        """Say what waits, stop listening; connections and threads end. Once more does nothing."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        # The last words may be those that a request has ended well.
        self._socket.linger = LINGER
        self._end()

    def _listen(self, bind: str) -> None:
        import zmq

        try:
            self._socket.bind(bind)
        except zmq.ZMQError as error:
            raise HandshakeError(f"cannot listen at {bind}: {error}") from error

    def _read(self, most: int) -> None:
        keyed = [(key_of(frames), [frame.bytes for frame in frames]) for frames in received_frames(self._socket, most)]
        allowed = self._keys.allowed() if keyed and isinstance(self._keys, Keys) else {key for key, _ in keyed}
        for key, frames in keyed:
            messages = self._open(frames) if key in allowed else [self._bar(frames[0])]
            self._unread.extend((frames[0], message) for message in messages)

    def _flush(self, identity: bytes) -> bool:
        """False where nobody listens."""
        outbox = self._outboxes[identity]
        listens = outbox.flush()
        if not len(outbox):
            del self._outboxes[identity]
        return listens

    def _bar(self, identity: bytes) -> Bye:
        """Tell one whose key was taken back since it connected; its words count as a goodbye."""
        text = "its key was taken back"
        sent(self._socket, [identity], seal(Refusal(KeysError.code, text, False, b"")))
        return Bye()

    def _open(self, frames: list[bytes]) -> list[Any]:
        """The structs of a message, or why there is none. Another release is told."""
        messages = _opened(frames[1:], ToPrefill)
        if isinstance(messages[0], ProtocolError):
            sent(self._socket, [frames[0]], seal(Refusal(messages[0].code, str(messages[0]), False, b"")))
        return messages


class ControlClient:
    """A decode worker's connection to one prefill worker. With keys, the server must have `server_key`."""

    def __init__(self, address: str, keys: Keys | Plain, server_key: bytes | None = None) -> None:
        """Begin to connect. Raises HandshakeError or KeysError; who is not there (yet) is no error here."""
        import zmq

        _check(address, keys)
        if isinstance(keys, Plain) and server_key is not None:
            raise KeysError(f"{address}: a server's key was given, {text(server_key)}, but no keys of our own")
        self.address, self._closed = address, False
        self._own_key = keys.public if isinstance(keys, Keys) else b""
        self._server_key = server(keys, server_key) if isinstance(keys, Keys) else b""
        self._error: KvplanError | None = None
        self._up, self._failures = False, 0
        self._socket = socket(client_context(os.getpid()), zmq.DEALER, address)
        self._outbox = Outbox(lambda waiting: sent(self._socket, [], waiting), together)
        self._unread, self._gathers = deque[Any](), False
        if isinstance(keys, Keys):
            self._socket.curve_serverkey = self._server_key
            self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
        else:
            logs.event(logs.WARNING, "plain", client=address, risk="whoever answers there is believed")
        self._monitor = watch_client(self._socket)
        # Also where nobody calls `close`: collected one by one, the monitor may go first.
        self._end = weakref.finalize(self, end, os.getpid(), self._socket, self._monitor)
        self._end.atexit = False
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise HandshakeError(f"{address}: {error}: give the address that the worker prints") from error

    def send(self, message: msgspec.Struct) -> bool:
        """False where the connection is broken, or nobody has listened for long. Raises CardError for one too large."""
        listens = self.broken() is None and self._outbox.put(encode(message))
        return listens and ((self._gathers and not self._outbox.ample) or self._outbox.flush())

    def gather(self) -> None:
        """From now on say with `flush`, and `receive`, what was sent before it: in one message."""
        self._gathers = True

    def flush(self) -> None:
        """Say what is to be said, as far as it is taken."""
        if len(self._outbox) and not self._closed:
            self._outbox.flush()

    @property
    def behind(self) -> bool:
        """Whether something waits until the peer takes it."""
        return self._outbox.full

    def say(self, message: msgspec.Struct) -> None:
        """`send` what must be said. Raises PeerLostError where it cannot be, CardError."""
        if not self.send(message):
            raise PeerLostError("its line is broken, or has been full for long: is it polled?")

    def receive(self, most: int = MOST) -> list[Any]:
        """What came since the last call, at most `most`: ToDecode structs and CardErrors."""
        self.flush()
        if not self._closed and len(self._unread) < most:
            for frames in received(self._socket, most):
                self._unread.extend(_opened(frames, ToDecode))
        return [self._unread.popleft() for _ in range(min(most, len(self._unread)))]

    def filenos(self) -> list[int]:
        """Descriptors that may become readable when something comes, or a connection changes: hints, for any thread."""
        return descriptors(self._socket, self._monitor)

    def pending(self) -> bool:
        """Whether there is something to be received, or to be looked at, of which `filenos` may not tell any more."""
        return not self._closed and (len(self._unread) > 0 or waits(self._socket) or waits(self._monitor))

    def wait(self, seconds: float) -> None:
        """Until something can be received or the connection breaks, at most `seconds`."""
        import zmq

        if self.broken() is None and not self._unread:
            poller = zmq.Poller()
            poller.register(self._socket, zmq.POLLIN)
            poller.register(self._monitor, zmq.POLLIN)
            poller.poll(milliseconds(seconds))

    def broken(self) -> KvplanError | None:
        """Why nothing more comes: KeysError, HandshakeError, or PeerLostError once it was connected. It stays so."""
        if self._closed or not waits(self._monitor):
            return self._error
        from zmq.utils.monitor import parse_monitor_message

        for frames in received(self._monitor, MOST):
            event = parse_monitor_message(frames)
            self._error = self._error or self._meaning(int(event["event"]), int(event["value"]))
        return self._error

    def leave(self) -> None:
        """Say goodbye, so that nobody waits for this connection to speak, and end it."""
        self.send(Bye())
        self.flush()
        self.close()

    def close(self) -> None:
        """End the connection. Once more does nothing."""
        if self._closed:
            return
        self._closed = True
        self._error = self._error or PeerLostError(f"the connection to {self.address} is closed")
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
            both = f"(public key {text(self._server_key)}) does not let ours in, {text(self._own_key)}"
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
            both = f"public key {text(self._server_key)}, ours is {text(self._own_key)}"
            return KeysError(f"{self.address} does not have {both}: give the key that the server has")
        return HandshakeError(f"{self.address} ends every connection: does it ask for keys, or is it a worker at all?")


def _check(address: str, keys: Keys | Plain) -> None:
    if not isinstance(keys, Keys | Plain):
        raise KeysError(f"keys are Keys, or Plain() where anybody may connect, not a {type(keys).__name__}")
    check_address(address)
    if isinstance(keys, Plain) and keys.loopback and not is_loopback(address):
        raise KeysError(f"{address} is not on this machine, and there are no keys: make some with `kvplan keys`")


def _opened(frames: list[bytes], kind: Any) -> list[Any]:
    """The structs of a message, or why there is none."""
    try:
        return unseal(frames[0] if len(frames) == 1 else b"".join(frames), kind)
    except CardError as error:
        return [error]
