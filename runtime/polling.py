"""Who polls: a thread of the runtime's own, or one task of an event loop for all that is awaited there."""

from __future__ import annotations

import asyncio
import atexit
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from kvplan.runtime.errors import HandleError
from kvplan.runtime.ops import logs

SHORTEST, LONGEST = 20e-6, 1e-3
# Seconds after which a round that has not ended is taken for one that never will.
STUCK = 30.0
# Seconds that a round has to end in when its thread is told to.
STOP = 10.0
# Seconds after which who waits looks again whether anybody polls.
LOOK = 0.5
# The first descriptor that `select` does not take.
SELECTABLE = 1024


def rest(wakers: Iterable[int], seconds: float) -> None:
    """Sleep for `seconds`, less where one of these descriptors becomes readable."""
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


class Polled(Protocol):
    """A worker that moves only when it is polled."""

    def poll(self) -> bool: ...

    def running(self) -> int: ...

    @property
    def driven(self) -> bool: ...


class Awaited(Protocol):
    """What ends some time, if its worker is polled."""

    @property
    def worker(self) -> Polled: ...

    @property
    def ended(self) -> bool: ...

    def on_end(self, callback: Callable[[Any], None]) -> None: ...

    def cancel(self) -> None: ...


class PollingThread:
    """Calls `poll` until it is stopped; pauses, spent in `rest`, grow to a millisecond while there is nothing to do.

    Whoever makes some of them longer ends one in `wake`.
    """

    def __init__(
        self,
        poll: Callable[[], bool],
        name: str,
        rest: Callable[[float], None] = time.sleep,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._poll, self._rest, self._wake = poll, rest, wake
        # No Event: a signal's handler that raises within its `set` leaves its lock taken.
        self._stopped = False
        self._round_began = time.monotonic()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        atexit.register(self._end)
        self._thread.start()

    @property
    def dead(self) -> bool:
        """Whether it has ended, and nobody told it to: nothing polls any more."""
        return not self._thread.is_alive() and not self._stopped

    @property
    def fault(self) -> str:
        """What is wrong with it, in words that follow a worker's name; empty where nothing is."""
        if self.dead:
            return "is polled by a thread that has ended"
        seconds = time.monotonic() - self._round_began
        stuck = seconds > STUCK and self._thread.is_alive()
        return f"is polled by a thread that has been stuck for {seconds:.0f} s" if stuck else ""

    def stop(self) -> None:
        """End it, and wait until it has; from within it, only tell it to. Raises HandleError where it does not end."""
        self._stopped = True
        atexit.unregister(self._end)
        if threading.current_thread() is self._thread:
            return
        self._end()
        if self._thread.is_alive():
            # What it is in may still use the memory and the transport: they are left to it, and end with the process.
            raise HandleError(f"{self._thread.name} is stuck in a poll for more than {STOP:g} s: end the process")

    def _end(self) -> None:
        """Tell it to end, and wait for that as long as a round may take; also where a program ends without `stop`.

        The sockets of whoever did not close them are closed after that, and a thread that is in a call of C++ as the
        interpreter ends aborts the process.
        """
        self._stopped = True
        # In a process that was forked off it does not run, and whoever had locks there does not either.
        if self._thread.is_alive():
            self._wake()
            self._thread.join(STOP)

    def _loop(self) -> None:
        pause = SHORTEST
        while not self._stopped:
            pause = self._round(pause)

    def _round(self, pause: float) -> float:
        """A poll and a pause; the next pause. A failure ends neither the thread nor the answers to other peers.

        Nor does what ends programs, SystemExit or a CancelledError of somebody's callback: this is not their thread.
        """
        self._round_began = time.monotonic()
        try:
            pause = SHORTEST if self._poll() else min(2 * pause, LONGEST)
            self._rest(pause)
            return pause
        except BaseException:
            if not self._stopped:
                logs.failure("poll failed", thread=threading.current_thread().name)
            time.sleep(LONGEST)
            return LONGEST


# One task per event loop and worker, however many transfers are awaited: each of them would poll for all others.
_DRIVERS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Task[None]]] = (
    weakref.WeakKeyDictionary()
)


async def ended(transfer: Awaited) -> None:
    """Wait until a transfer has ended. If the waiting task is cancelled, so is the transfer."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def end(_: Awaited) -> None:
        # In a loop that was closed nobody waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set, future)

    transfer.on_end(end)
    try:
        # Asked, too: a signal's handler that raises in who polls may have come before `end` did anything.
        while not (future.done() or transfer.ended):
            if transfer.worker.driven:
                await asyncio.wait([future], timeout=LOOK)
                continue
            task = _driver(loop, transfer.worker)
            await asyncio.wait([future, task], timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                task.result()
    except asyncio.CancelledError:
        transfer.cancel()
        raise


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _driver(loop: asyncio.AbstractEventLoop, worker: Polled) -> asyncio.Task[None]:
    tasks = _DRIVERS.setdefault(loop, {})
    if id(worker) not in tasks or tasks[id(worker)].done():
        tasks[id(worker)] = task = loop.create_task(_poll(worker))
        task.add_done_callback(lambda _: tasks.pop(id(worker), None) if tasks.get(id(worker)) is task else None)
    return tasks[id(worker)]


async def _poll(worker: Polled) -> None:
    """Poll while anything runs."""
    pause = SHORTEST
    while worker.running():
        pause = SHORTEST if worker.poll() else min(2 * pause, LONGEST)
        await asyncio.sleep(pause)
