"""Worker: what callers do with a worker in either role: drive, drain, suspend, close, inspect it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

# Checks of block ids and np.unique import it when they are first called: with a request.
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
    """Let the worker's owner carry out this method, for any caller."""

    def carried_out(worker: W, /, *arguments: P.args, **named: P.kwargs) -> T:
        return worker._owner.call(lambda: method(worker, *arguments, **named))

    update_wrapper(carried_out, method)
    return carried_out


class OwnedWorker:
    """One role of a worker, over an endpoint that it may share with the other role."""

    plans: PlanSource
    identity: Identity

    def __init__(self, half: Half) -> None:
        """Take part in the half's endpoint. Raises RegisterError, and what the transport raises."""
        tracing.load()
        self._role, self._endpoint, self._owner = half, half.endpoint, half.endpoint.owner
        self.worker = half.endpoint.worker
        self._owner.call(lambda: self._endpoint.join(half))

    @property
    def endpoint(self) -> Endpoint:
        """What this worker shares with a half that is made beside it."""
        return self._endpoint

    def run_once(self) -> bool:
        """Carry out one step: hear peers, progress the transport, move on with every request. Never waits.

        Whether there was anything to do, or is anything in progress. A worker that was started does so by itself.
        """
        self._owner.run_once()
        return self._endpoint.under_way

    @owned
    def inspect(self) -> Inspection:
        """What this worker has between two steps, as values that do not change: for debugging. No step is carried out.

        Raises HandleError if the worker's owner hangs, and as any call does in a forked child.
        """
        return self._role.inspected()

    def close(self) -> None:
        """End everything: running transfers fail, readers lose this worker. Once more does nothing.

        In a forked child, and when the program has ended, nothing at all is done. Raises HandleError if its thread is
        stuck, and then nothing is given back.
        """
        if self._owner.over:
            return
        self._owner.stop()
        self._owner.call(self._endpoint.close)
        self._owner.sleep.close()
        for half in self._endpoint.halves:
            half.ending()

    def rest(self, seconds: float) -> None:
        """Sleep until there may be something to do: for `seconds`, less while bytes move or if somebody speaks."""
        self._owner.sleep.rest(seconds)

    def fileno(self) -> int:
        """A descriptor that is readable while there may be something to `run_once` for, until `close`.

        It is for select, epoll or an event loop of one's own; nothing is to be read from it. Raises HandleError for a
        worker that was started, or is closed.
        """
        self._endpoint.check_not_closed(self._role.name)
        return self._owner.fileno()

    def unhealthy(self) -> tuple[str, ...]:
        """Why this worker should be made again, empty if nothing is wrong. Never waits."""
        fault = self._owner.thread.fault
        states = {"is closed": self._endpoint.closed, "is of another process": self._owner.over, fault: fault != ""}
        return self._reasons(states)

    def unready(self) -> tuple[str, ...]:
        """Why no requests should come here for now, empty where they may. Never waits."""
        states = {"is suspended": self._endpoint.asleep, "drains": self._endpoint.drains}
        return self.unhealthy() + self._reasons(states)

    def _reasons(self, states: Mapping[str, bool]) -> tuple[str, ...]:
        """The reasons that hold, each behind the name of this worker."""
        return tuple(f"{self._role.name} {state}" for state, holds in states.items() if holds)

    @owned
    def drain(self, timeout: float) -> None:
        """Take nothing new. `drained` says when nothing is left.

        A prefill half raises DrainingError for `hold` and `open`; what was held before goes on, for engines that
        connect now, too, and is withdrawn after `timeout` seconds. A decode half ends new requests with DrainingError,
        and raises it for connecting; what is still in progress after `timeout` seconds fails. Once more moves the
        deadline; `resume` ends it. A worker drains with both halves.
        """
        self._role.check_open()
        self._endpoint.drain(timeout)

    def drained(self) -> bool:
        """Whether it drains, and nothing is left: it may be closed.

        A prefill half holds no request and writes none. A decode half has no request in progress, and no block in
        quarantine.
        """
        return self._endpoint.drained()

    @owned
    def suspend(self) -> None:
        """Give the memory back: every peer is dropped, every registration ended. Raises HandleError while in use.

        A worker is suspended with both halves.
        """
        self._role.check_open()
        self._endpoint.suspend()

    @owned
    def resume(self, pool: Pool) -> None:
        """Register memory again after `suspend`: the same memory, or of another size. Peers must be met again."""
        self._endpoint.check_not_closed(self._role.name)
        self._endpoint.resume(pool)
