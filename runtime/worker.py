"""What workers of both roles are: carried out by one owner, drained, asked how they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress

# Checks of block ids and np.unique import it when they are first called: with a request.
import numpy.ma  # noqa: F401

from kvplan.runtime.errors import HandleError, TransportError
from kvplan.runtime.inspection import Inspection
from kvplan.runtime.ops import logs, tracing
from kvplan.runtime.ops.drain import Drain
from kvplan.runtime.ops.health import reasons
from kvplan.runtime.owner import Duties, Owner, owned
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.transport.base import Transport


class OwnedWorker(ABC):
    """Worker number `worker` of its role's side, over one transport. What it has is its owner's alone."""

    _stage: Stage

    def __init__(self, role: str, worker: int, transport: Transport, clock: Callable[[], float]) -> None:
        self.worker, self._name = worker, f"{role} worker {worker}"
        self._transport, self._clock = transport, clock
        self._closed = self._asleep = False
        tracing.load()
        self._drain = Drain(self._name)
        self._under_way, self._exits = False, deque[BaseException]()
        duties = Duties(self._step, self._look, self._say, self._after, self._behind, self._help, self._ending)
        self._owner = Owner(self._name, duties)

    def run_once(self) -> bool:
        """Carry out one step: hear peers, progress the transport, move on with every request. Never waits.

        Whether there was anything to do, or is anything under way. A worker that was started does so by itself.
        """
        self._owner.run_once()
        return self._under_way

    @owned
    def inspect(self) -> Inspection:
        """What this worker has between two steps, as values that do not change: for debugging. No step is carried out.

        Raises HandleError if the worker's owner hangs, and as any call does in a forked child.
        """
        return self._inspected()

    @abstractmethod
    def _inspected(self) -> Inspection:
        """What it has now."""

    def _step(self) -> bool:
        """One step. Whether bytes move."""
        self._under_way = self._poll()
        return self._under_way and self._moving()

    @abstractmethod
    def _poll(self) -> bool:
        """One step. Whether there was anything to do, or is anything under way."""

    @abstractmethod
    def _moving(self) -> bool:
        """Whether bytes may be on their way: there is no descriptor to wait for them."""

    @abstractmethod
    def _look(self) -> tuple[list[int], float]:
        """What to wait for until the next step, and for how many seconds at most."""

    def _behind(self) -> bool:
        """Whether a copy of the stage waits that no thread has begun, on a machine of few cores."""
        return self._stage.behind

    def _help(self) -> None:
        """Make such a copy."""
        self._stage.help()

    def _raise_exits(self) -> None:
        """Raise what ends a program and came from the caller's code, now that all else was done."""
        with suppress(IndexError):
            raise self._exits.popleft()

    def close(self) -> None:
        """End everything: running transfers fail, readers lose this worker. Once more does nothing.

        In a forked child, and when the program has ended, nothing at all is done. Raises HandleError if its thread is
        stuck, and then nothing is given back.
        """
        if self._owner.over:
            return
        self._owner.stop()
        self._owner.call(self._close)
        self._owner.close()

    @abstractmethod
    def _close(self) -> None:
        """The last turn. Once more does nothing."""

    @abstractmethod
    def _say(self) -> None:
        """At the end of a call: say what is to be said to peers."""

    @abstractmethod
    def _after(self) -> None:
        """After a call: what belongs to the caller, which may call any worker."""

    def _ending(self) -> None:
        """The program ends: threads that this worker began are to end before."""
        return

    def rest(self, seconds: float) -> None:
        """Sleep until there may be something to do: for `seconds`, less while bytes move or if somebody speaks."""
        self._owner.rest(seconds)

    def fileno(self) -> int:
        """A descriptor that is readable while there may be something to `run_once` for, until `close`.

        It is for select, epoll or an event loop of one's own; nothing is to be read from it. Raises HandleError for a
        worker that was started, or is closed.
        """
        self._check_not_closed()
        return self._owner.fileno()

    def unhealthy(self) -> tuple[str, ...]:
        """Why this worker should be made again, empty if nothing is wrong. Never waits."""
        fault = self._owner.fault
        states = {"is closed": self._closed, "is of another process": self._owner.over, fault: fault != ""}
        return reasons(self._name, states)

    def unready(self) -> tuple[str, ...]:
        """Why no requests should come here for now, empty where they may. Never waits."""
        return self.unhealthy() + reasons(self._name, {"is suspended": self._asleep, "drains": self._drain.begun})

    def _progress(self) -> int:
        """Let the transport make progress: how many messages came through it, which nobody sends."""
        try:
            return self._transport.progress()
        except TransportError as error:
            logs.event(logs.WARNING, "progress failed", worker=self._name, error=error)
            return 0

    def _check_not_closed(self) -> None:
        if self._owner.over:
            raise HandleError(f"{self._name} is of another process, or of a program that ends: make one here")
        if self._closed:
            raise HandleError(f"{self._name} is closed: make a new one")

    def _check_open(self) -> None:
        self._check_not_closed()
        if self._owner.dead:
            raise HandleError(f"the thread that polls {self._name} has ended: close it, make a new one")
        if self._asleep:
            raise HandleError(f"{self._name} is suspended: resume it")
