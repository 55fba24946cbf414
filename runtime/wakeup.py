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
from contextlib import suppress

from kvplan.runtime.errors import HandleError
from kvplan.runtime.ops import logs

# Seconds between two rounds that find nothing to do, while bytes move.
SHORTEST, LONGEST = 20e-6, 1e-3
# Seconds until a worker is polled at the latest: while bytes move, while anything is under way, and while nothing is.
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
        # One was closed meanwhile: whoever did that has the next word.
        time.sleep(min(seconds, LONGEST))


def _polled(wakers: Iterable[int], seconds: float) -> None:
    """As `select` waits, for any descriptors. Raises OSError where one is closed."""
    poll = select.poll()
    for one in wakers:
        poll.register(one, select.POLLIN)
    if any(event & select.POLLNVAL for _, event in poll.poll(1e3 * seconds)):
        raise OSError("a descriptor is closed")


class Bell:
    """A descriptor that is readable from when it was rung until it is drained. Nobody ever waits to do either.

    The lock keeps one thread from closing it while another rings: its number may be another connection's by then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard, self._rung = socket.socketpair()
        for end in (self._heard, self._rung):
            end.setblocking(False)

    def fileno(self) -> int:
        return self._heard.fileno()

    def ring(self) -> None:
        """Make it readable. One that is full is readable, and one that was closed has nobody to tell."""
        with self._lock, suppress(OSError):
            self._rung.send(b"\0")

    def drain(self) -> None:
        with self._lock, suppress(OSError):
            while self._heard.recv(4096):
                pass

    def close(self) -> None:
        with self._lock:
            self._heard.close()
            self._rung.close()


class WakeupDescriptor:
    """One descriptor of one worker, and the thread that makes it readable, as `look` says, until the worker is polled.

    The thread does nothing else with the worker.
    """

    def __init__(self, name: str, look: Look) -> None:
        self._look, self._polled, self._closed = look, threading.Event(), False
        self._bell, self._stirred = Bell(), Bell()
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
            rest([*wakers, self._stirred.fileno()], most)
            self._stirred.drain()
            self._polled.clear()
            if not self._closed:
                self._bell.ring()
                self._polled.wait()

    def _looked(self) -> tuple[list[int], float]:
        """What to wait for; a fault is no reason to wait for ever."""
        try:
            return self._look()
        except HandleError:
            return [], QUIET
        except Exception:
            logs.failure("look failed", thread=threading.current_thread().name)
            return [], QUIET
