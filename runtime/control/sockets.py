"""ZeroMQ sockets for the control channel: with bounded queues, guarded by keys, never blocking."""

from __future__ import annotations

import errno
import functools
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kvplan.runtime.control.addresses import is_ipv6
from kvplan.runtime.control.keys import Keys, Plain, text
from kvplan.runtime.control.outbox import LineState
from kvplan.runtime.errors import HandshakeError
from kvplan.runtime.ops import logs

if TYPE_CHECKING:
    import zmq

QUEUE = 256
# Connections that the system queues until the server accepts them.
BACKLOG = 512
# File descriptors that a context and its first socket take. If libzmq gets none, it ends the process.
DESCRIPTORS = 16
# Bytes of one frame, and the bytes that CURVE adds. libzmq allocates a frame before it knows the sender, so frames are
# small and a long message has several.
FRAME, OVERHEAD = 64 << 10, 256
ENOUGH = 1 << 20
DOMAIN = "kvplan"
# Milliseconds: a ZeroMQ handshake, the pings of an idle connection, and how long they may stay unanswered.
HANDSHAKE, PING, SILENCE = 5_000, 5_000, 15_000
RETRY, RETRY_MOST = 50, 1_000
REFUSED = 64
# Milliseconds for which a closed connection may still send its last messages.
LINGER = 100
# ZeroMQ's constants as plain numbers: its enum members are slower than the call that uses them.
EVENTS, POLLIN = 15, 1


@functools.lru_cache(maxsize=1)
def client_context(process: int) -> zmq.Context[zmq.Socket[bytes]]:
    """Return the context of all clients of a process; a fork has its own. Raises HandshakeError as `new_context`."""
    import zmq

    context = new_context()
    context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))
    return context


def new_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return a context that can make its first socket. Raises HandshakeError if too few file descriptors are left."""
    import zmq

    with ExitStack() as held, _descriptor_errors():
        for _ in range(DESCRIPTORS):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    return zmq.Context()


def socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, address: str) -> zmq.Socket[bytes]:
    import zmq

    options = {
        zmq.LINGER: 0,
        zmq.BACKLOG: BACKLOG,
        zmq.MAXMSGSIZE: FRAME + OVERHEAD,
        zmq.SNDHWM: QUEUE,
        zmq.RCVHWM: QUEUE,
        zmq.IPV6: int(is_ipv6(address)),
        zmq.HANDSHAKE_IVL: HANDSHAKE,
        zmq.HEARTBEAT_IVL: PING,
        zmq.HEARTBEAT_TIMEOUT: SILENCE,
        zmq.RECONNECT_IVL: RETRY,
        zmq.RECONNECT_IVL_MAX: RETRY_MOST,
    }
    socket = _make(context, kind)
    for option, value in options.items():
        socket.setsockopt(option, value)
    return socket


def _make(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    """Make a socket. Raises HandshakeError if the process has no file descriptors left, or the context no sockets."""
    with _descriptor_errors():
        return context.socket(kind)


@contextmanager
def _descriptor_errors() -> Iterator[None]:
    """Turn errors about missing file descriptors into HandshakeError."""
    import zmq

    try:
        yield
    except (OSError, zmq.ZMQError) as error:
        why = os.strerror(error.errno or errno.EMFILE)
        raise HandshakeError(f"no socket can be made: {why}: raise the limit of open files") from error


def watch_client(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """Return a socket that receives an event when the connection is made, refused or lost.

    Its queue has no bound, because a full one would stop all connections of the context.
    """
    import zmq

    # Imported now, so that the first request does not wait for it.
    import zmq.utils.monitor

    events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    name = f"inproc://{uuid.uuid4().hex}"
    monitor = _make(socket.context, zmq.PAIR)
    monitor.setsockopt(zmq.RCVHWM, 0)
    with _descriptor_errors():
        socket.monitor(name, events | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    monitor.connect(name)
    return monitor


class Guard:
    """A thread that admits only peers with allowed keys to a server's socket, until `stop`."""

    def __init__(self) -> None:
        self._threads: Any = None

    def admit(self, socket: zmq.Socket[bytes], keys: Keys | Plain) -> None:
        """Begin, if there are keys. Raises HandshakeError; call `stop` even then."""
        import zmq
        from zmq.auth.thread import ThreadAuthenticator

        if isinstance(keys, Plain):
            return
        self._threads = ThreadAuthenticator(socket.context)
        try:
            with _descriptor_errors():
                self._threads.start()
        except RuntimeError as error:
            raise HandshakeError(f"no thread can be started that looks at keys: {error}: raise the limit") from error
        self._threads.configure_curve_callback(DOMAIN, _Peers(keys.allowed))
        socket.curve_server, socket.curve_publickey, socket.curve_secretkey = True, keys.public, keys.secret
        socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
        # Without this option, a missing guard would admit everybody.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def stop(self) -> None:
        """End the thread and close its sockets, even if it never began. A second call does nothing."""
        threads, self._threads = self._threads, None
        if threads is None:
            return
        if not threads.is_alive():
            # No thread would read the message that ends it, so `stop` would wait forever.
            for end in (threads, threads.thread):
                if end is not None and end.pipe:
                    end.pipe.close(linger=0)
                    end.pipe = None
        threads.stop()


def end(maker: int, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes] | None, *rest: Callable[[], object]) -> None:
    """Close a socket and its monitor, if it has one, and do the `rest`, in an order in which none waits for another.

    libzmq's thread would wait forever for a closed monitor to take its events, and all other sockets of the context
    would be silent. This does nothing except in the process `maker`: a forked child has none of libzmq's threads, and
    would wait for them forever.
    """
    if os.getpid() != maker:
        return
    if monitor is not None:
        socket.disable_monitor()
        monitor.close(linger=0)
    socket.close()
    for step in rest:
        step()


class _Peers:
    """The authenticator's callback: it checks the key of each new connection, and logs a refused key once."""

    def __init__(self, allowed: Callable[[], frozenset[bytes]]) -> None:
        self._allowed, self._refused = allowed, set[bytes]()

    def callback(self, domain: str, key: bytes) -> bool:
        if key in self._allowed():
            return True
        if key not in self._refused and len(self._refused) < REFUSED:
            self._refused.add(key)
            logs.event(logs.WARNING, "key refused", public=text(key))
        return False


def received(socket: zmq.Socket[bytes], most: int) -> list[list[bytes]]:
    """Receive at most `most` messages, and stop after ENOUGH bytes, so that other sockets get their turn."""
    return [[frame.bytes for frame in frames] for frames in received_frames(socket, most)]


def received_frames(socket: zmq.Socket[bytes], most: int) -> list[list[zmq.Frame]]:
    """Receive as `received`, but return ZeroMQ's frames with their metadata."""
    import zmq

    messages: list[list[zmq.Frame]] = []
    size = 0
    # `waits` costs a quarter of the exception that an empty queue raises.
    while len(messages) < most and size < ENOUGH and waits(socket):
        frames = [socket.recv(zmq.NOBLOCK, copy=False)]
        while frames[-1].more:
            frames.append(socket.recv(zmq.NOBLOCK, copy=False))
        size += sum(map(len, frames))
        messages.append(frames)
    return messages


def key_of(frames: list[zmq.Frame]) -> bytes:
    """Return the public key that ZeroMQ's authenticator noted for the sender of a message, empty without keys."""
    import zmq

    try:
        return str(frames[0].get("User-Id")).encode()
    except zmq.ZMQError:
        return b""


def descriptors(*sockets: zmq.Socket[bytes]) -> list[int]:
    """Return the sockets' file descriptors. They are edge-triggered: check `waits` before waiting on them."""
    import zmq

    return [int(one.getsockopt(zmq.FD)) for one in sockets]


def waits(socket: zmq.Socket[bytes]) -> bool:
    """Return whether a message can be received. This keeps Python's lock, which ZeroMQ's poll would release."""
    return bool(int(socket.get(EVENTS)) & POLLIN)


def sent(socket: zmq.Socket[bytes], to: list[bytes], message: bytes) -> LineState:
    """Send a message in frames after those of `to`."""
    import zmq

    frames = [message[at : at + FRAME] for at in range(0, len(message), FRAME)]
    try:
        socket.send_multipart([*to, *frames], zmq.NOBLOCK)
    except zmq.Again:
        return LineState.FULL
    except zmq.ZMQError:
        return LineState.GONE
    return LineState.TAKEN
