"""Sleep until a worker may have something to do, and a descriptor that says so to an event loop of somebody's own.

NIXL and CUDA events have no descriptor to wait on, and ZeroMQ's becomes readable by edges. So a thread waits in the
loop's place: for what peers say, and until the worker wants to be polled at the latest.
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
# Seconds until a worker is polled at the latest: while bytes move, while anything is in progress, and while nothing is.
MOVING, BUSY, QUIET = 50e-6, 1e-3, 0.25
# The first descriptor that `select` does not take.
SELECTABLE = 1024
# Descriptors to wait on, and for how many seconds at most.
Look = Callable[[], tuple[list[int], float]]


def rest(wakers: Iterable[int], seconds: float) -> None:
    """Sleep for `seconds`, less if one of these descriptors becomes readable."""
    found = [one for one in wakers if one >= 0]
    try:
        # `poll` counts in milliseconds, `select` takes no descriptor from its size on.
        if max(found, default=0) < SELECTABLE:
            select.select(found, [], [], seconds)
        else:
            _polled(found, seconds)
    except (OSError, ValueError):
        # One was closed meanwhile: the closing thread acts next.
        time.sleep(min(seconds, LONGEST))


def listen(bell: Bell, wakers: Iterable[int], seconds: float) -> None:
    """`rest`, and not where a bell was rung, nor longer than until it is."""
    if bell.listen():
        try:
            rest([*wakers, bell.fileno()], seconds)
        finally:
            bell.leave()


def _polled(wakers: Iterable[int], seconds: float) -> None:
    """As `select` waits, for any descriptors. Raises OSError where one is closed."""
    poll = select.poll()
    for one in wakers:
        poll.register(one, select.POLLIN)
    if any(event & select.POLLNVAL for _, event in poll.poll(1e3 * seconds)):
        raise OSError("a descriptor is closed")


class Bell:
    """What was rung stays rung until it is drained. Its descriptor is readable then, while somebody listens.

    Nobody ever waits to do either. The lock keeps one thread from closing it while another rings: its number may be
    another connection's by then. It has descriptors once somebody listens.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: tuple[socket.socket, socket.socket] | None = None
        self._rung = self._said = self._closed = False
        self._listeners = 0

    def fileno(self) -> int:
        return -1 if self._ends is None else self._ends[0].fileno()

    def listen(self) -> bool:
        """Wait for it from now on, until as many `leave`; False, and nothing else, where it was rung."""
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
        """One that was closed has nobody to tell."""
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
    """One descriptor of one worker, and the thread that makes it readable, as `look` says, until the worker is polled.

    The thread does nothing else with the worker.
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
        """The worker was polled: the descriptor is not readable until there may be something to do again."""
        self._stirred.drain()
        self._bell.drain()
        self._polled.set()

    def stir(self) -> None:
        """There may be something to do now."""
        self._stirred.ring()

    def close(self) -> None:
        """End the thread, then the descriptor, which nobody may wait on any more."""
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
        """What to wait for; a fault is no reason to wait forever."""
        try:
            return self._look()
        except HandleError:
            return [], QUIET
        except Exception:
            logs.failure("look failed", thread=threading.current_thread().name)
            return [], QUIET


class Sleep:
    """Where the worker called `name` sleeps between its steps, and what wakes it.

    What it waits for is what `look` says, asked in a `turn` of its owner's alone.
    """

    def __init__(self, name: str, turn: threading.Lock, look: Look) -> None:
        self._name, self._turn, self._look = name, turn, look
        self._bell = Bell()
        self._descriptor: WakeupDescriptor | None = None

    @property
    def watched(self) -> bool:
        """Whether a loop has its descriptor."""
        return self._descriptor is not None

    def begin(self) -> None:
        """A step begins: it sees all that it was woken for."""
        self._bell.drain()

    def rest(self, seconds: float) -> None:
        """Sleep until there may be something to do, and no longer than `seconds`."""
        with self._turn:
            wakers, most = self._look()
        listen(self._bell, wakers, min(seconds, most))

    def wake(self) -> None:
        """There may be something to do now. Any thread may say so."""
        self._bell.ring()
        self.stir()

    def stir(self) -> None:
        """The same, for a loop that has the descriptor."""
        if (descriptor := self._descriptor) is not None:
            descriptor.stir()

    def polled(self) -> None:
        """A step is over."""
        if (descriptor := self._descriptor) is not None:
            descriptor.polled()

    def fileno(self) -> int:
        """The descriptor, until `unwatch`. In a turn of its owner's."""
        if self._descriptor is None:
            self._descriptor = WakeupDescriptor(f"kvplan-wakeup-{self._name}", self._looked)
        return self._descriptor.fileno()

    def unwatch(self) -> None:
        """End the descriptor, which nobody may wait on any more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.close()

    def forget(self) -> None:
        """This is a forked child: the descriptor is its parent's."""
        self._descriptor = None

    def close(self) -> None:
        """Nobody is woken any more."""
        self._bell.close()

    def _looked(self) -> tuple[list[int], float]:
        """What to wait for, for the descriptor's thread. During somebody's turn it is asked again."""
        if not self._turn.acquire(blocking=False):
            return [], MOVING
        try:
            return self._look()
        finally:
            self._turn.release()
