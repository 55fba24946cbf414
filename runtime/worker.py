"""What workers of both roles are: polled by a thread, an event loop or their caller, drained, asked how they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

# Checks of block ids and np.unique import it when they are first called: with a request, under a lock.
import numpy.ma  # noqa: F401

from kvplan.runtime.errors import HandleError, TransportError
from kvplan.runtime.ops import logs, tracing
from kvplan.runtime.ops.drain import Drain
from kvplan.runtime.ops.health import reasons
from kvplan.runtime.ops.locks import WorkerLock
from kvplan.runtime.polling import PollingThread
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.wakeup import PollingPause, Wakeup


class PolledWorker(ABC):
    """Worker number `worker` of its role's side, over one transport. What it has is its lock's."""

    def __init__(self, role: str, worker: int, transport: Transport, clock: Callable[[], float]) -> None:
        self.worker, self._name = worker, f"{role} worker {worker}"
        self._transport, self._clock = transport, clock
        self._lock, self._closed, self._asleep = WorkerLock(), False, False
        self._thread: PollingThread | None = None
        self._pause: PollingPause | None = None
        tracing.load()
        self._drain = Drain(self._name)
        self._wakeup = Wakeup(f"kvplan-wakeup-{role}-{worker}", self._look, self.poll)

    @abstractmethod
    def poll(self) -> bool:
        """Do what there is to do, and say whether there was anything. Never blocks."""

    @abstractmethod
    def _look(self) -> tuple[list[int], float]:
        """What a wakeup waits for, and for how many seconds at most."""

    def fileno(self) -> int:
        """A descriptor that is readable while there may be something to `poll` for, until `close` or `attach`.

        It is for select, epoll or an event loop of one's own; nothing is to be read from it.
        """
        with self._lock:
            self._check_not_closed()
            return self._wakeup.fileno()

    def attach(self) -> None:
        """Have the running asyncio event loop poll whenever there may be something to do, until `detach` or `close`."""
        with self._lock:
            self._check_not_closed()
            before = self._wakeup.attach()
        if before is not None:
            before.close()

    def detach(self) -> None:
        """Have no event loop poll any more; what `fileno` returned is closed."""
        self._wakeup.close()

    def unhealthy(self) -> tuple[str, ...]:
        """Why this worker should be made anew, empty where nothing is wrong. Never waits."""
        fault = self._thread.fault if self._thread else ""
        return reasons(self._name, {"is closed": self._closed, fault: fault != ""})

    def unready(self) -> tuple[str, ...]:
        """Why no requests should come here for now, empty where they may. Never waits."""
        return self.unhealthy() + reasons(self._name, {"is suspended": self._asleep, "drains": self._drain.begun})

    def _begin_thread(self, poll: Callable[[], bool]) -> None:
        """Poll from a thread of its own until `_end_thread`; `poll` says whether to poll again at once."""
        self._pause = PollingPause(self._look)
        name = f"kvplan-{self._name.replace(' worker ', '-')}"
        self._thread = PollingThread(poll, name, self._pause.rest, self._pause.stir)

    def _end_thread(self) -> None:
        """Raises HandleError where it is stuck, and then it is left as it is."""
        if (thread := self._thread) is None:
            return
        thread.stop()
        (pause, self._pause), self._thread = (self._pause, None), None
        if pause is not None:
            pause.close()

    def _end_polling(self) -> None:
        """No thread and no loop polls any more; to be called once more when no other can begin. Raises HandleError."""
        self._end_thread()
        self._wakeup.close()

    def _stir(self) -> None:
        """There may be something to do now: whoever polls is to do so."""
        self._wakeup.stir()
        if (pause := self._pause) is not None:
            pause.stir()

    def _changed(self) -> None:
        """After the lock: what was logged under it is handed over, and whoever polls is to do so."""
        logs.hand_over()
        self._stir()

    def _progress(self) -> int:
        """Let the transport make progress: how many messages came through it, which nobody sends."""
        try:
            return self._transport.progress()
        except TransportError as error:
            logs.event(logs.WARNING, "progress failed", worker=self._name, error=error)
            return 0

    def _check_not_closed(self) -> None:
        if self._closed:
            raise HandleError(f"{self._name} is closed: make a new one")

    def _check_open(self) -> None:
        self._check_not_closed()
        if self._thread is not None and self._thread.dead:
            raise HandleError(f"the thread that polls {self._name} has ended: close it, make a new one")
        if self._asleep:
            raise HandleError(f"{self._name} is suspended: resume it")
