"""Asking: how callers' requests reach a decode half, alone or together, and how callers wait for their end."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

from kvplan.plan.errors import BadRequestError, KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.runtime.checksum.checksum import Sample
from kvplan.runtime.clock import seconds
from kvplan.runtime.decode import spans
from kvplan.runtime.decode.half import DecodeHalf
from kvplan.runtime.decode.meetings import WaitingRequest, WantedPeer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.errors import LimitedError, TransferError, cause_text
from kvplan.runtime.ops import logs, tracing


class _Batch(threading.local):
    """What this thread has submitted within `together`, None outside of it."""

    asks: list[Callable[[], None]] | None = None


class Asking:
    """The callers' end of a decode half: any thread may call it. It is the worker that a transfer knows."""

    def __init__(self, half: DecodeHalf) -> None:
        self._half, self._owner, self._batch = half, half.endpoint.owner, _Batch()

    def begin(
        self,
        request: Request,
        timeout: float,
        peer: WantedPeer,
        sample: Sample | None,
        wait: float | None,
        *,
        streamed: bool,
    ) -> Transfer:
        """Ask for a request, now or with others. Never raises for what the request holds."""
        now, began = self._half.clock(), tracing.start()
        transfer = Transfer(request, now, now, streamed, sample, worker=self)
        ask = partial(self._ask_for, transfer, timeout, peer, sample, wait)
        if self._batch.asks is not None:
            self._batch.asks.append(ask)
        else:
            self._owner.ask(ask)
        spans.follow(transfer, self._half.endpoint.worker, began)
        return transfer

    @contextmanager
    def together(self) -> Iterator[None]:
        """Ask for all that this thread begins within at once."""
        if self._batch.asks is not None:
            yield
            return
        self._batch.asks = []
        try:
            yield
        finally:
            self.ask_batched()
            self._batch.asks = None

    def ask_batched(self) -> None:
        """Ask for what this thread has submitted within `together` so far."""
        if asks := self._batch.asks:
            self._batch.asks = []
            self._owner.ask(lambda: [ask() for ask in asks])

    def run_once(self) -> bool:
        """Carry out one step."""
        self.ask_batched()
        return self._owner.run_once()

    @property
    def driven(self) -> bool:
        """Whether its work is done without anybody asking: by its thread, or by the loop that has its descriptor."""
        return self._owner.driven

    def cancel(self, transfer: Transfer, error: RequestError) -> None:
        """End a running transfer with `error`."""
        self._owner.call(lambda: self._half.driver.fail(transfer, error))

    def exit(self, error: BaseException) -> None:
        """A callback raised what ends a program: it is raised when all callbacks were called."""
        self._half.exits.append(error)

    def wait(self, transfer: Transfer) -> None:
        """Until a transfer has ended, which its deadline bounds."""
        self.ask_batched()
        self._owner.wait(transfer.future, lambda: transfer.ended)

    def _ask_for(
        self, transfer: Transfer, timeout: float, peer: WantedPeer, sample: Sample | None, wait: float | None
    ) -> None:
        """Begin a request; what is wrong with it ends it."""
        half = self._half
        try:
            half.check_taking()
            if not isinstance(sample, Sample | None):
                raise BadRequestError(f"a checksum is a Sample or None, not of type {type(sample).__name__}")
            if not isinstance(peer, str | Future | None):
                raise BadRequestError(f"a peer is a name, or of `connect_soon`, not of type {type(peer).__name__}")
            transfer.deadline += seconds(timeout, BadRequestError)
            transfer.held_by = math.inf if wait is None else transfer.began + seconds(wait, BadRequestError)
            if not transfer.ended:
                self._start(WaitingRequest(transfer, peer, half.meetings.under_way()))
        except KvplanError as error:
            half.driver.refuse(transfer, error)
        except Exception as error:
            logs.failure("request not begun", worker=half.name)
            half.driver.fail(transfer, TransferError(f"the request was not begun: {cause_text(error)}"))

    def _start(self, request: WaitingRequest) -> None:
        """Begin a request, or have it wait until its engine is met."""
        half = self._half
        if (engine := request.engine(half.engines)) is not None:
            half.driver.begin(request.transfer, engine)
        elif half.running() < half.limits.requests:
            half.meetings.wait(request)
        else:
            raise LimitedError(f"{half.running()} requests are under way or wait: wait for some")
