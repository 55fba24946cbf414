"""ZeroMQ sockets as the control channel needs them: bounded queues, guarded by keys, never waiting by themselves."""

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
# Connections that the system keeps for a server which has not accepted them yet.
BACKLOG = 512
# Descriptors that a server takes, as a context and its first socket: where libzmq gets none it ends the process.
DESCRIPTORS = 16
# Bytes of one frame, which libzmq makes room for before it knows who sends it, and what CURVE adds to one. A message is
# as many frames as it takes.
FRAME, OVERHEAD = 64 << 10, 256
ENOUGH = 1 << 20
DOMAIN = "kvplan"
# Milliseconds: a ZeroMQ handshake, the pings of an idle connection, and how long they may stay unanswered.
HANDSHAKE, PING, SILENCE = 5_000, 5_000, 15_000
RETRY, RETRY_MOST = 50, 1_000
REFUSED = 64
# Milliseconds: how long a connection that is closed may take to say its last words.
LINGER = 100
# Of ZeroMQ, as plain numbers: its own are members of an enum, which takes longer than the question.
EVENTS, POLLIN = 15, 1


@functools.lru_cache(maxsize=1)
def client_context(process: int) -> zmq.Context[zmq.Socket[bytes]]:
    """The context of all clients of a process; a fork has its own. Raises HandshakeError as `new_context`."""
    import zmq

    context = new_context()
    context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))
    return context


def new_context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context whose first socket can be made. Raises HandshakeError where descriptors are missing for that."""
    import zmq

    with ExitStack() as held, _descriptors_named():
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
    socket = _made(context, kind)
    for option, value in options.items():
        socket.setsockopt(option, value)
    return socket


def _made(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    """Raises HandshakeError where the process has no more descriptors, or the context no more sockets."""
    with _descriptors_named():
        return context.socket(kind)


@contextmanager
def _descriptors_named() -> Iterator[None]:
    """What a lack of descriptors raises, as HandshakeError."""
    import zmq

    try:
        yield
    except (OSError, zmq.ZMQError) as error:
        why = os.strerror(error.errno or errno.EMFILE)
        raise HandshakeError(f"no socket can be made: {why}: raise the limit of open files") from error


def watch_client(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """A socket that receives whether the connection is made, refused or lost.

    Its queue has no bound: a full one stops all connections of the context.
    """
    import zmq

    # With the first connection, rather than with the first request.
    import zmq.utils.monitor

    events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    name = f"inproc://{uuid.uuid4().hex}"
    monitor = _made(socket.context, zmq.PAIR)
    monitor.setsockopt(zmq.RCVHWM, 0)
    with _descriptors_named():
        socket.monitor(name, events | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    monitor.connect(name)
    return monitor


class Guard:
    """Who lets only those into a server's socket whom its keys allow, in a thread, until it is stopped."""

    def __init__(self) -> None:
        self._threads: Any = None

    def admit(self, socket: zmq.Socket[bytes], keys: Keys | Plain) -> None:
        """Begin, where there are keys. Raises HandshakeError; it is to be stopped then, too."""
        import zmq
        from zmq.auth.thread import ThreadAuthenticator

        if isinstance(keys, Plain):
            return
        self._threads = ThreadAuthenticator(socket.context)
        try:
            with _descriptors_named():
                self._threads.start()
        except RuntimeError as error:
            raise HandshakeError(f"no thread can be started that looks at keys: {error}: raise the limit") from error
        self._threads.configure_curve_callback(DOMAIN, _Peers(keys.allowed))
        socket.curve_server, socket.curve_publickey, socket.curve_secretkey = True, keys.public, keys.secret
        socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
        # Otherwise a missing guard lets everybody in.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def stop(self) -> None:
        """Its sockets are closed, also where its thread never began. Once more does nothing."""
        threads, self._threads = self._threads, None
        if threads is None:
            return
        if not threads.is_alive():
            # Nobody would take the word that ends a thread: it would be waited for.
            for end in (threads, threads.thread):
                if end is not None and end.pipe:
                    end.pipe.close(linger=0)
                    end.pipe = None
        threads.stop()


def end(maker: int, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes] | None, *rest: Callable[[], object]) -> None:
    """Close a socket and its monitor, if it has one, and do the `rest`, in the order in which none waits for another.

    libzmq's thread waits forever for an ended monitor to take its events, and all other sockets of the context are
    silent then. Only in the process that is their `maker`: the threads that would answer are in no other, and one that
    was forked off would wait for them forever as it ends.
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
    """Asked by the authenticator for every key that knocks; a refused one is logged once."""

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
    """What came, at most so many messages, and no more once they have ENOUGH bytes: others are heard in between."""
    return [[frame.bytes for frame in frames] for frames in received_frames(socket, most)]


def received_frames(socket: zmq.Socket[bytes], most: int) -> list[list[zmq.Frame]]:
    """`received`, with what ZeroMQ knows of each frame."""
    import zmq

    messages: list[list[zmq.Frame]] = []
    size = 0
    # To ask costs a quarter of what the exception of an empty queue does.
    while len(messages) < most and size < ENOUGH and waits(socket):
        frames = [socket.recv(zmq.NOBLOCK, copy=False)]
        while frames[-1].more:
            frames.append(socket.recv(zmq.NOBLOCK, copy=False))
        size += sum(map(len, frames))
        messages.append(frames)
    return messages


def key_of(frames: list[zmq.Frame]) -> bytes:
    """The public key that ZeroMQ's authenticator wrote down for who sent a message, empty without keys."""
    import zmq

    try:
        return str(frames[0].get("User-Id")).encode()
    except zmq.ZMQError:
        return b""


def descriptors(*sockets: zmq.Socket[bytes]) -> list[int]:
    """What becomes readable when something may have come; by edges, so that one has to look first."""
    import zmq

    return [int(one.getsockopt(zmq.FD)) for one in sockets]


def waits(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message is there to be received. To ask keeps Python's lock, which a poll of ZeroMQ would give up."""
    return bool(int(socket.get(EVENTS)) & POLLIN)


def sent(socket: zmq.Socket[bytes], to: list[bytes], message: bytes) -> LineState:
    """Hand over a message in frames behind those of `to`."""
    import zmq

    frames = [message[at : at + FRAME] for at in range(0, len(message), FRAME)]
    try:
        socket.send_multipart([*to, *frames], zmq.NOBLOCK)
    except zmq.Again:
        return LineState.FULL
    except zmq.ZMQError:
        return LineState.GONE
    return LineState.TAKEN
