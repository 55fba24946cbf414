"""Worker: the calls that both roles share: drive, drain, suspend, close and inspect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

# Imported early: checks of block ids and np.unique would import it during the first request.
import numpy.ma  # noqa: F401

from kvplan.runtime.control.identity import Identity
from kvplan.runtime.endpoint import Endpoint, Half
from kvplan.runtime.inspection import Inspection
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import tracing
from kvplan.runtime.plans.catalog import PlanSource

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound="OwnedWorker")


def owned(method: Callable[Concatenate[W, P], T]) -> Callable[Concatenate[W, P], T]:
    """Return the method as one that the worker's owner carries out, for any caller."""

    def carried_out(worker: W, /, *arguments: P.args, **named: P.kwargs) -> T:
        return worker._owner.call(lambda: method(worker, *arguments, **named))

    update_wrapper(carried_out, method)
    return carried_out


class OwnedWorker:
    """One role of a worker. It may share its endpoint with the other role."""

    plans: PlanSource
    identity: Identity

    def __init__(self, half: Half) -> None:
        """Add the half to its endpoint. Raises RegisterError, and what the transport raises."""
        tracing.load()
        self._role, self._endpoint, self._owner = half, half.endpoint, half.endpoint.owner
        self.worker = half.endpoint.worker
        self._owner.call(lambda: self._endpoint.join(half))

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint, which a half of the other role can share."""
        return self._endpoint

    def run_once(self) -> bool:
        """Carry out one step: hear peers, progress the transport, move on with every request. Never waits.

        Return whether it did anything, or anything is in progress. A started worker steps by itself.
        """
        self._owner.run_once()
        return self._endpoint.under_way

    @owned
    def inspect(self) -> Inspection:
        """Return the worker's state between two steps, as immutable values, for debugging. Carries out no step.

        Raises HandleError if the worker's owner hangs, and like any call in a forked child.
        """
        return self._role.inspected()

    def close(self) -> None:
        """End everything: running transfers fail, readers lose this worker. A second call does nothing.

        In a forked child, and when the program has ended, this does nothing. Raises HandleError if the worker's thread
        is stuck; then nothing is released.
        """
        if self._owner.over:
            return
        self._owner.stop()
        self._owner.call(self._endpoint.close)
        self._owner.sleep.close()
        for half in self._endpoint.halves:
            half.ending()

    def rest(self, seconds: float) -> None:
        """Sleep for at most `seconds`, less while bytes move. A message or another thread's call ends the sleep."""
        self._owner.sleep.rest(seconds)

    def fileno(self) -> int:
        """Return a file descriptor that is readable while `run_once` may have something to do, until `close`.

        It is for select, epoll or the caller's event loop, which must not read from it. Raises HandleError if the
        worker was started or is closed.
        """
        self._endpoint.check_not_closed(self._role.name)
        return self._owner.fileno()

    def unhealthy(self) -> tuple[str, ...]:
        """Return the reasons to replace this worker, none if it is healthy. Never waits."""
        fault = self._owner.thread.fault
        states = {"is closed": self._endpoint.closed, "is of another process": self._owner.over, fault: fault != ""}
        return self._reasons(states)

    def unready(self) -> tuple[str, ...]:
        """Return the reasons to send no requests here for now, none if it is ready. Never waits."""
        states = {"is suspended": self._endpoint.asleep, "drains": self._endpoint.drains}
        return self.unhealthy() + self._reasons(states)

    def _reasons(self, states: Mapping[str, bool]) -> tuple[str, ...]:
        """Return the reasons that hold, each after the name of this worker."""
        return tuple(f"{self._role.name} {state}" for state, holds in states.items() if holds)

    @owned
    def drain(self, timeout: float) -> None:
        """Accept nothing new. `drained` says when nothing is left. Both halves of a worker drain together.

        A prefill half raises DrainingError for `hold` and `open`. Engines, even new ones, can still read what it holds,
        and are refused the rest; after `timeout` seconds it withdraws all. A decode half ends new requests with
        DrainingError, and raises it for connecting; requests still in progress after `timeout` seconds fail. A second
        call moves the deadline; `resume` ends the drain.
        """
        self._role.check_open()
        self._endpoint.drain(timeout)

    def drained(self) -> bool:
        """Whether the worker drains and nothing is left, so that it may be closed.

        A prefill half holds no request and writes none. A decode half has no request in progress, and no block in
        quarantine.
        """
        return self._endpoint.drained()

    @owned
    def suspend(self) -> None:
        """Drop every peer and deregister the memory, for both halves. Raises HandleError while it is in use."""
        self._role.check_open()
        self._endpoint.suspend()

    @owned
    def resume(self, pool: Pool) -> None:
        """Register memory again after `suspend`: the same memory, or another size. Peers must connect again."""
        self._endpoint.check_not_closed(self._role.name)
        self._endpoint.resume(pool)
