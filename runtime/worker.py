"""What workers of both roles are: halves over an endpoint, carried out by its owner, asked how they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress

# Checks of block ids and np.unique import it when they are first called: with a request.
import numpy.ma  # noqa: F401

from kvplan.runtime.control.identity import Identity
from kvplan.runtime.endpoint import Endpoint, Half
from kvplan.runtime.errors import HandleError
from kvplan.runtime.inspection import Inspection
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import tracing
from kvplan.runtime.ops.drain import Drain
from kvplan.runtime.ops.health import reasons
from kvplan.runtime.owner import owned
from kvplan.runtime.plans.catalog import PlanSource
from kvplan.runtime.staging.buffers import Stage


class OwnedWorker(ABC):
    """A half of what an engine's worker does, over an endpoint that it may share with the other half."""

    def __init__(self, role: str, endpoint: Endpoint) -> None:
        self.worker, self._name = endpoint.worker, f"{role} worker {endpoint.worker}"
        self._endpoint, self._owner, self._transport, self._clock = (
            endpoint, endpoint.owner, endpoint.transport, endpoint.clock
        )  # fmt: skip
        tracing.load()
        self._drain, self._exits = Drain(self._name), deque[BaseException]()

    def _join(self) -> None:
        """Take this half's part in the endpoint. Raises RegisterError, and what the transport raises."""
        half = Half(
            accept=self._accept,
            begin=self._begin_over,
            poll=self._poll,
            moving=self._moving,
            look=self._look,
            say=self._say,
            after=self._after,
            uses=self._uses,
            unused=self._check_unused,
            drain=self._begin_drain,
            drained=self._is_drained,
            leave=self._leave,
            closed=self._end,
            ending=self._ending,
        )
        self._owner.call(lambda: self._endpoint.join(half))

    plans: PlanSource
    identity: Identity

    @property
    def endpoint(self) -> Endpoint:
        """What this worker shares with a half that is made beside it."""
        return self._endpoint

    @property
    def generation(self) -> int:
        """Registrations of the memory since the first one."""
        return self._endpoint.generation

    @property
    def _pool(self) -> Pool:
        return self._endpoint.pool

    @property
    def _stage(self) -> Stage:
        return self._endpoint.stage

    @property
    def _closed(self) -> bool:
        return self._endpoint.closed

    @property
    def _asleep(self) -> bool:
        return self._endpoint.asleep

    def run_once(self) -> bool:
        """Carry out one step: hear peers, progress the transport, move on with every request. Never waits.

        Whether there was anything to do, or is anything under way. A worker that was started does so by itself.
        """
        self._owner.run_once()
        return self._endpoint.under_way

    @owned
    def inspect(self) -> Inspection:
        """What this worker has between two steps, as values that do not change: for debugging. No step is carried out.

        Raises HandleError if the worker's owner hangs, and as any call does in a forked child.
        """
        return self._inspected()

    @abstractmethod
    def _inspected(self) -> Inspection:
        """What it has now."""

    @abstractmethod
    def _poll(self) -> bool:
        """One step. Whether there was anything to do, or is anything under way."""

    @abstractmethod
    def _moving(self) -> bool:
        """Whether bytes may be on their way: there is no descriptor to wait for them."""

    @abstractmethod
    def _look(self) -> tuple[list[int], float]:
        """What to wait for until the next step, and for how many seconds at most."""

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
        self._owner.call(self._endpoint.close)
        self._owner.close()

    @abstractmethod
    def _accept(self, pool: Pool) -> None:
        """Raises RegisterError if this half cannot use the memory."""

    @abstractmethod
    def _begin_over(self) -> None:
        """The memory is registered: nobody is met, and nothing is under way."""

    @abstractmethod
    def _uses(self, peer: str) -> bool:
        """Whether this half needs the transport to know a peer."""

    @abstractmethod
    def _check_unused(self) -> None:
        """Raises HandleError if the memory cannot be given back now."""

    @abstractmethod
    def _leave(self, why: str) -> None:
        """Drop every peer; `why` follows this half's name in what its requests end with."""

    @abstractmethod
    def _end(self) -> None:
        """The worker is closed, and its transport: nothing moves any more."""

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

    @owned
    def drain(self, timeout: float) -> None:
        """Take nothing new. `drained` says when nothing is left.

        A prefill half raises DrainingError for `hold` and `open`; what was held before goes on, for engines that
        connect now, too, and is withdrawn after `timeout` seconds. A decode half ends new requests with DrainingError,
        and raises it for connecting; what is still under way after `timeout` seconds fails. Once more moves the
        deadline; `resume` ends it. A worker drains with both halves.
        """
        self._check_open()
        self._endpoint.drain(timeout)

    def drained(self) -> bool:
        """Whether it drains, and nothing is left: it may be closed.

        A prefill half holds no request and writes none. A decode half has no request under way, and no block in
        quarantine.
        """
        return self._endpoint.drained()

    @abstractmethod
    def _is_drained(self) -> bool:
        """Whether this half drains, and has nothing left."""

    def _begin_drain(self, timeout: float) -> None:
        self._drain.begin(timeout, self._clock())

    @owned
    def suspend(self) -> None:
        """Give the memory back: every peer is dropped, every registration ended. Raises HandleError while in use.

        A worker is suspended with both halves.
        """
        self._check_open()
        self._endpoint.suspend()

    @owned
    def resume(self, pool: Pool) -> None:
        """Register memory again after `suspend`: the same memory, or of another size. Peers must be met again."""
        self._check_not_closed()
        self._endpoint.resume(pool)

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
