"""Transfer: the caller's handle of one request: poll it, wait for it, await it, or be called back."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.runtime.endpoint import Half
from kvplan.runtime.errors import EXITS, CancelledTransferError, HandleError
from kvplan.runtime.ops import logs
from kvplan.runtime.protocol.loads import Load


def _running() -> Future[None]:
    """Return a future that cannot be cancelled."""
    future = Future[None]()
    future.set_running_or_notify_cancel()
    return future


@dataclass(slots=True, eq=False, kw_only=True)
class Transfer(Load):
    """A request that is being moved, as its caller has it: the protocol's load, and ways to wait for its end.

    `future` is done after the step in which it ended. `fail`, called in a turn of the worker's owner, ends it.
    """

    worker: Half = field(repr=False)
    fail: Callable[[Load, KvplanError], None] = field(repr=False)
    future: Future[None] = field(default_factory=_running, repr=False)

    def query(self) -> bool:
        """Return whether everything has arrived, so that `offer` takes a transfer as its event. Raises its error."""
        try:
            self.poll()
        except EXITS as error:
            # Another caller's callback raised it: the poll of this event must not fail because of that.
            self.worker.exits.append(error)
        return self.ended and self._result() is self

    def poll(self) -> bool:
        """Return whether this transfer has ended. If nothing drives its worker, carry out one step first."""
        if not (self.ended or self.worker.owner.driven):
            self.worker.owner.run_once()
        return self.ended

    def wait(self) -> Transfer:
        """Block until the transfer ends, at its deadline at the latest. Raises its error."""
        self.worker.owner.wait(self.future, lambda: self.ended)
        return self._result()

    def __await__(self) -> Generator[Any, None, Transfer]:
        import asyncio

        self.worker.owner.hand_over()
        if not (self.ended or self.worker.owner.driven):
            text = "call start(), or have the loop call run_once when fileno() is readable"
            raise HandleError(f"nobody carries out the work of request {self.request.id}: {text}")
        try:
            yield from asyncio.wrap_future(self.future).__await__()
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._result()

    def on_end(self, callback: Callable[[Transfer], None]) -> None:
        """Call `callback` with this transfer when it has ended, in the thread that carried out its last step.

        If it has ended already, the callback is called at once.
        """
        if self.future.done():
            callback(self)
        else:
            self.future.add_done_callback(partial(_tell, callback, self))

    def cancel(self) -> None:
        """Give the request up. Its blocks stay in quarantine while a write may still land."""
        error = CancelledTransferError(f"request {self.request.id} was cancelled")
        self.worker.owner.call(lambda: self.fail(self, error))

    def _result(self) -> Transfer:
        if self.error is not None:
            raise self.error
        return self


def _tell(callback: Callable[[Transfer], None], transfer: Transfer, _: Future[None]) -> None:
    try:
        callback(transfer)
    except EXITS as error:
        transfer.worker.exits.append(error)
    except BaseException:
        logs.failure("callback failed", request=transfer.request.id)
