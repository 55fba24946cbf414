"""Sleep until a worker may have something to do, and a file descriptor that signals this to a caller's event loop.

NIXL and CUDA events have no file descriptor to wait on, and ZeroMQ's is edge-triggered. So a thread waits in the place
of the loop: for messages of peers, and at most until the worker wants to be polled.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterable

from kvplan.runtime.errors import HandleError
from kvplan.runtime.ops import logs

# Seconds between two steps that find nothing to do, while bytes move.
SHORTEST, LONGEST = 20e-6, 1e-3
# A worker is polled after at most so many seconds: while bytes move, while anything is in progress, and while idle.
MOVING, BUSY, QUIET = 50e-6, 1e-3, 0.25
# The first file descriptor that `select` does not take.
SELECTABLE = 1024
# Returns file descriptors to wait on, and for how many seconds at most.
Look = Callable[[], tuple[list[int], float]]


def rest(wakers: Iterable[int], seconds: float) -> None:
    """Sleep for `seconds`, or until one of these file descriptors becomes readable."""
    found = [one for one in wakers if one >= 0]
    try:
        # `poll` only counts milliseconds, and `select` refuses large file descriptors.
        if max(found, default=0) < SELECTABLE:
            select.select(found, [], [], seconds)
        else:
            _poll(found, seconds)
    except (OSError, ValueError):
        # Another thread has closed one of them, and will act next.
        time.sleep(min(seconds, LONGEST))


def listen(bell: Bell, wakers: Iterable[int], seconds: float) -> None:
    """Sleep as `rest`, but only until the bell is rung, and not at all if it was."""
    if bell.listen():
        try:
            rest([*wakers, bell.fileno()], seconds)
        finally:
            bell.leave()


def _poll(wakers: Iterable[int], seconds: float) -> None:
    """Wait like `select`, for file descriptors of any size. Raises OSError if one is closed."""
    poll = select.poll()
    for one in wakers:
        poll.register(one, select.POLLIN)
    if any(event & select.POLLNVAL for _, event in poll.poll(1e3 * seconds)):
        raise OSError("a descriptor is closed")


class Bell:
    """A bell that stays rung until it is drained. Its file descriptor is readable while it is rung and has listeners.

    No call blocks. The lock keeps one thread from closing it while another rings, because its file descriptor's number
    may be another connection's by then. The file descriptors are made for the first listener.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: tuple[socket.socket, socket.socket] | None = None
        self._rung = self._said = self._closed = False
        self._listeners = 0

    def fileno(self) -> int:
        return -1 if self._ends is None else self._ends[0].fileno()

    def listen(self) -> bool:
        """Add a listener, until `leave`, and return True. If the bell was rung, return False and add none."""
        with self._lock:
            if self._rung:
                return False
            self._listeners += 1
            if self._ends is None and not self._closed:
                self._ends = _pair()
            return True

    def leave(self) -> None:
        with self._lock:
            self._listeners -= 1

    def ring(self) -> None:
        """Ring the bell. After `close` this notifies no listener."""
        with self._lock:
            self._rung = True
            if self._listeners and not self._said and self._ends is not None:
                self._said = True
                self._ends[1].send(b"\0")

    def drain(self) -> None:
        if not self._rung:
            return
        with self._lock:
            if self._said and self._ends is not None:
                self._ends[0].recv(1)
            self._rung = self._said = False

    def close(self) -> None:
        with self._lock:
            ends, self._ends, self._closed = self._ends, None, True
            for end in ends or ():
                end.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends


class WakeupDescriptor:
    """The file descriptor of one worker, and the thread that makes it readable until the worker is polled.

    The thread waits as `look` says, and does nothing else with the worker.
    """

    def __init__(self, name: str, look: Look) -> None:
        self._look, self._polled, self._closed = look, threading.Event(), False
        self._bell, self._stirred = Bell(), Bell()
        self._bell.listen()
        self._thread = threading.Thread(target=self._wait, name=name, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._bell.fileno()

    def polled(self) -> None:
        """Make the file descriptor unreadable after a poll, until there may be something to do again."""
        self._stirred.drain()
        self._bell.drain()
        self._polled.set()

    def stir(self) -> None:
        """Interrupt the wait, because there may be something to do now."""
        self._stirred.ring()

    def close(self) -> None:
        """End the thread and close the file descriptor. No loop may wait on it any more."""
        self._closed = True
        self.stir()
        self._polled.set()
        self._thread.join()
        self._stirred.close()
        self._bell.close()

    def _wait(self) -> None:
        while not self._closed:
            wakers, most = self._looked()
            listen(self._stirred, wakers, most)
            self._stirred.drain()
            self._polled.clear()
            if not self._closed:
                self._bell.ring()
                self._polled.wait()

    def _looked(self) -> tuple[list[int], float]:
        """Return what to wait for. After a failure the wait is QUIET seconds, so that it always ends."""
        try:
            return self._look()
        except HandleError:
            return [], QUIET
        except Exception:
            logs.failure("look failed", thread=threading.current_thread().name)
            return [], QUIET


class Sleep:
    """The sleep of the worker called `name` between its steps, and its wake-up calls.

    `look` says what to wait for. It is called only while the owner's `turn` is locked.
    """

    def __init__(self, name: str, turn: threading.Lock, look: Look) -> None:
        self._name, self._turn, self._look = name, turn, look
        self._bell = Bell()
        self._descriptor: WakeupDescriptor | None = None

    @property
    def watched(self) -> bool:
        """Whether an event loop has the file descriptor."""
        return self._descriptor is not None

    def begin(self) -> None:
        """Begin a step, which sees everything that the bell was rung for."""
        self._bell.drain()

    def rest(self, seconds: float) -> None:
        """Sleep until there may be something to do, at most `seconds`."""
        with self._turn:
            wakers, most = self._look()
        listen(self._bell, wakers, min(seconds, most))

    def wake(self) -> None:
        """End the sleep, because there may be something to do now. Any thread may call this."""
        self._bell.ring()
        self.stir()

    def stir(self) -> None:
        """Notify only an event loop that has the file descriptor."""
        if (descriptor := self._descriptor) is not None:
            descriptor.stir()

    def polled(self) -> None:
        """Notify the file descriptor's thread that a step is over."""
        if (descriptor := self._descriptor) is not None:
            descriptor.polled()

    def fileno(self) -> int:
        """Return the file descriptor, valid until `unwatch`. The caller must have the owner's turn."""
        if self._descriptor is None:
            self._descriptor = WakeupDescriptor(f"kvplan-wakeup-{self._name}", self._looked)
        return self._descriptor.fileno()

    def unwatch(self) -> None:
        """Close the file descriptor. No loop may wait on it any more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.close()

    def forget(self) -> None:
        """Leave the file descriptor to the parent, in a forked child."""
        self._descriptor = None

    def close(self) -> None:
        """Close the bell: no thread is woken any more."""
        self._bell.close()

    def _looked(self) -> tuple[list[int], float]:
        """Return what the file descriptor's thread waits for. During a turn that is nothing, for MOVING seconds."""
        if not self._turn.acquire(blocking=False):
            return [], MOVING
        try:
            return self._look()
        finally:
            self._turn.release()
