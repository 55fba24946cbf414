"""Wakeup descriptor: readable while a worker may have something to do, for those who have an event loop of their own.

NIXL and CUDA events have no descriptor to wait on, and ZeroMQ's becomes readable by edges. So a thread waits in the
loop's place: for what peers say, and until the worker wants to be polled at the latest. It asks the worker what to wait
for, and does nothing else with it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from kvplan.runtime.ops import logs
from kvplan.runtime.polling import LONGEST, rest

# Seconds until a worker is polled at the latest: while bytes move, while anything is under way, and while nothing is.
MOVING, BUSY, QUIET = 50e-6, 1e-3, 0.25
# Descriptors to wait on, and for how many seconds at most.
Look = Callable[[], tuple[list[int], float]]


class Bell:
    """A descriptor that is readable from when it was rung until it is drained. Nobody ever waits to do either.

    One at a time has it, lest it is closed in another's call: its number may be another connection's by then.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._heard, self._rung = socket.socketpair()
        for end in (self._heard, self._rung):
            end.setblocking(False)

    def fileno(self) -> int:
        return self._heard.fileno()

    def ring(self) -> None:
        """Make it readable, which a full one is; one that was closed has nobody to tell."""
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


class Flag:
    """An Event for one that waits, whose lock no signal's handler can leave taken: it is the lock, in C."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def set(self) -> None:
        with suppress(RuntimeError):
            self._lock.release()

    def clear(self) -> None:
        self._lock.acquire(blocking=False)

    def wait(self) -> None:
        """Wait until it is set; it is not, then."""
        self._lock.acquire()


class PollingPause:
    """The pauses of who polls a worker: for as long as `look` says at most, and until a descriptor that it names tells.

    Shorter ones count only while bytes move, of which no descriptor tells. `stir` ends one.
    """

    def __init__(self, look: Look) -> None:
        self._look, self._bell = look, Bell()

    def rest(self, pause: float = LONGEST) -> None:
        """Wait until there may be something to do: while bytes move for `pause` seconds at most."""
        wakers, most = self._look()
        rest([*wakers, self._bell.fileno()], min(pause, most) if most <= MOVING else most)
        self._bell.drain()

    def stir(self) -> None:
        """There may be something to do now."""
        self._bell.ring()

    def close(self) -> None:
        """After the thread has ended, or from within it."""
        self._bell.close()


class WakeupDescriptor:
    """One descriptor of one worker, and the thread that makes it readable. It is not made before it is asked for."""

    def __init__(self, name: str, look: Look) -> None:
        self._look, self._heard, self._closed = look, Flag(), False
        self._bell = Bell()
        self._pause = PollingPause(self._looked)
        self._thread = threading.Thread(target=self._wait, name=name, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._bell.fileno()

    def polled(self) -> None:
        """The worker was polled: it is not readable any more, until there may be something to do again."""
        self._bell.drain()
        self._heard.set()

    def stir(self) -> None:
        """There may be something to do now."""
        self._pause.stir()

    def end(self) -> None:
        """End the thread."""
        self._closed = True
        self.stir()
        self._heard.set()
        self._thread.join()
        self._pause.close()

    def close(self) -> None:
        """End the thread, then the descriptor, which nobody may wait on any more."""
        self.end()
        self._bell.close()

    def _wait(self) -> None:
        while not self._closed:
            self._pause.rest()
            self._heard.clear()
            if not self._closed:
                self._bell.ring()
                self._heard.wait()

    def _looked(self) -> tuple[list[int], float]:
        """What to wait for; a fault is no reason to wait for ever."""
        try:
            return self._look()
        except Exception:
            logs.failure("look failed", thread=threading.current_thread().name)
            return [], QUIET


class LoopPolling:
    """Polls a worker from an asyncio event loop when its descriptor says so."""

    def __init__(self, poll: Callable[[], bool], wakeup: WakeupDescriptor, loop: asyncio.AbstractEventLoop) -> None:
        self._poll, self._wakeup, self._loop, self._over = poll, wakeup, loop, False
        loop.add_reader(wakeup.fileno(), self._round)

    @property
    def alive(self) -> bool:
        """Whether its loop runs."""
        return self._loop.is_running()

    def close(self) -> None:
        """Poll no more; the descriptor ends in the loop, which may be another thread's, unless that has ended."""
        self._over = True
        self._wakeup.end()
        if self._loop.is_running() and _running() is not self._loop:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end)
                return
        self._end()

    def _end(self) -> None:
        # A loop that was closed waits for nothing any more.
        with suppress(RuntimeError):
            self._loop.remove_reader(self._wakeup.fileno())
        self._wakeup.close()

    def _round(self) -> None:
        """A failure ends neither the loop nor the answers to other peers; while a worker is closed it is none."""
        try:
            if not self._over:
                self._poll()
        except Exception:
            if not self._over:
                logs.failure("poll failed", thread="event loop")


def _running() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Wakeup:
    """How a worker is polled by who has a loop: through `fileno`, or `attach`ed to asyncio's. Safe to use from threads.

    `look` says what to wait for, `poll` is the worker's. Nothing is made before it is asked for.
    """

    def __init__(self, name: str, look: Look, poll: Callable[[], bool]) -> None:
        self._name, self._look, self._poll = name, look, poll
        self._lock = threading.Lock()
        self._descriptor: WakeupDescriptor | None = None
        self._loop: LoopPolling | None = None

    @property
    def attached(self) -> bool:
        """Whether a loop that runs polls the worker."""
        loop = self._loop
        return loop is not None and loop.alive

    def fileno(self) -> int:
        return self._made().fileno()

    def attach(self) -> LoopPolling | WakeupDescriptor | None:
        """Have the running event loop poll. What did before is for who holds no lock that `look` takes to close."""
        loop = asyncio.get_running_loop()
        descriptor = WakeupDescriptor(self._name, self._look)
        return self._replaced(descriptor, LoopPolling(self._poll, descriptor, loop))

    def polled(self) -> None:
        if (descriptor := self._descriptor) is not None:
            descriptor.polled()

    def stir(self) -> None:
        if (descriptor := self._descriptor) is not None:
            descriptor.stir()

    def close(self) -> None:
        """End the descriptor, and what polls by it. Who calls holds no lock that `look` takes."""
        if (before := self._replaced(None, None)) is not None:
            before.close()

    def _replaced(
        self, descriptor: WakeupDescriptor | None, loop: LoopPolling | None
    ) -> LoopPolling | WakeupDescriptor | None:
        """Have these in the place of those before, of which the one that closes both is returned."""
        with self._lock:
            before = self._loop or self._descriptor
            self._descriptor, self._loop = descriptor, loop
        return before

    def _made(self) -> WakeupDescriptor:
        with self._lock:
            self._descriptor = self._descriptor or WakeupDescriptor(self._name, self._look)
            return self._descriptor
