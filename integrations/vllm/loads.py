"""Decode's side of a worker: it loads requests from prefill engines, and says which arrived or failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event

from kvplan.integrations.shared.meetings import PrefillMeetings, trusted
from kvplan.integrations.shared.names import AGAIN, REMADE, again
from kvplan.integrations.vllm.clearing import BlockClearing
from kvplan.integrations.vllm.holds import Mark, unmarked
from kvplan.integrations.vllm.measures import BYTES, FAILED, SECONDS, nothing
from kvplan.integrations.vllm.metadata import LoadOrder, RemotePrefill, StepOrders
from kvplan.integrations.vllm.tables import BlockTables, stored, table
from kvplan.plan.errors import KvplanError
from kvplan.plan.request import Request
from kvplan.runtime.clock import now
from kvplan.runtime.decode.prefill_engine import Peer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.errors import LeaseError, WithdrawnError
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.events import ComputeEvent
from kvplan.runtime.protocol.loads import TransferState


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Seconds: until a load must have ended, until prefill must hold it, until a prefill engine must be met."""

    load: float
    hold: float
    connect: float


@dataclass(slots=True)
class StepResults:
    """Requests by result: blocks sent or free again, loads that arrived, and loads among these that failed."""

    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


class DecodeSide:
    """This worker's loads from other engines. Transfers end on the polling thread and are kept until `ended` reports
    them.

    A load begins only after the device has reached the event that `mark` made when the step began.
    """

    def __init__(
        self,
        worker: DecodeWorker,
        tables: BlockTables,
        times: LoadTimes,
        mode: str,
        clearing: BlockClearing | None = None,
        mark: Mark = unmarked,
    ) -> None:
        self.worker, self._tables, self._times, self._mode = worker, tables, times, mode
        self._clearing, self._mark = clearing, mark
        self._after: ComputeEvent | None = None
        # Loads that wait for the device, each with its event, in order.
        self._waiting: list[tuple[LoadOrder, ComputeEvent]] = []
        self._meetings = PrefillMeetings(worker)
        self._loads: dict[str, Transfer] = {}
        self._ended: deque[tuple[LoadOrder, Transfer, float]] = deque()
        self._failed: list[tuple[LoadOrder, Transfer]] = []
        self._refused: list[str] = []
        # Requests whose cancelled loads are not reported yet: these are not retried.
        self._cancelled: set[str] = set()
        # Requests that were given up before they failed, and are not counted as failures.
        self._given_up: set[str] = set()
        self._news = Event()
        self.measures = nothing()

    @property
    def busy(self) -> bool:
        """Whether a load may end."""
        return bool(self._loads or self._failed or self._refused or self._waiting)

    @property
    def pending(self) -> int:
        """How many loads wait for prefill, for the device or for bytes."""
        return len(self._loads) + len(self._waiting)

    @property
    def quarantined(self) -> int:
        """How many failed loads have blocks that may still be written."""
        return len(self._failed)

    @property
    def measured(self) -> bool:
        """Whether there are measures of loads that ended."""
        return bool(self.measures[SECONDS] or self.measures[FAILED])

    def wait(self, seconds: float) -> None:
        """Wait until a load ends, but no longer than `seconds`."""
        self._news.wait(seconds)

    def step(self, orders: StepOrders) -> None:
        """Begin a step: its loads wait for the work that the device was given before."""
        self._after = self._mark() if orders.loads else None

    def begin(self, orders: StepOrders) -> None:
        if self._after is not None:
            self._waiting += [(order, self._after) for order in orders.loads]
        elif orders.loads:
            with self.worker.together():
                for order in orders.loads:
                    self._begin(order)
        self._after = None
        for request in orders.cancels:
            self._cancel(request)

    def ended(self, results: StepResults) -> None:
        """Add loads that arrived, and failed ones once nothing can be written to their blocks any more."""
        if self._waiting:
            self._begin_waiting()
        self._news.clear()
        while self._ended:
            order, transfer, taken = self._ended.popleft()
            del self._loads[order.request]
            if transfer.error is None:
                self._cancelled.discard(order.request)
                results.received.add(order.request)
                self.measures[SECONDS].append(taken)
                self.measures[BYTES].append(transfer.bytes)
            else:
                self._failed.append((order, transfer))
        if self._failed or self._refused:
            self._settle(results)

    def _begin_waiting(self) -> None:
        """Begin the loads whose events the device has reached."""
        waiting, self._waiting = self._waiting, []
        for order, after in waiting:
            try:
                passed = after.query()
            except Exception as error:  # See `PrefillSide._hold`.
                self._refuse(order, error)
                continue
            if passed:
                self._begin(order)
            else:
                self._waiting.append((order, after))

    def _cancel(self, request: str) -> None:
        """Give up a load, including one that has failed and is not reported yet."""
        for order in [order for order, _ in self._waiting if order.request == request]:
            self._waiting = [one for one in self._waiting if one[0] is not order]
            self._release(order)
            self._refused.append(request)
            self._given_up.add(request)
        if (transfer := self._loads.get(request)) is not None:
            transfer.cancel()
        if transfer is not None or any(order.request == request for order, _ in self._failed):
            self._cancelled.add(request)

    def _settle(self, results: StepResults) -> None:
        waiting: list[tuple[LoadOrder, Transfer]] = []
        settled: list[tuple[LoadOrder, Transfer]] = []
        for order, transfer in self._failed:
            if self.worker.settled(transfer):
                settled.append((order, transfer))
            else:
                waiting.append((order, transfer))
        self._failed = waiting
        over = [(order, transfer) for order, transfer in settled if not self._retry(order, transfer.error)]
        for order, _ in over:
            self._release(order)
        lost = {*self._refused, *(order.request for order, _ in over)}
        self._given_up |= {order.request for order, transfer in over if transfer.state is TransferState.CANCELLED}
        self.measures[FAILED].extend([1.0] * len(lost - self._given_up))
        self._refused, self._given_up = [], set()
        self._cancelled -= lost
        results.received |= lost
        results.failed |= lost

    def _retry(self, order: LoadOrder, error: KvplanError | None) -> bool:
        """Retry a load of a prompt that prefill no longer keeps, or holds in other blocks. Return whether one began."""
        remote = order.remote
        asked_before = remote.request.endswith(AGAIN) or order.request in self._cancelled
        if not remote.early or asked_before or not isinstance(error, LeaseError | WithdrawnError):
            return False
        self._begin(replace(order, remote=replace(remote, request=again(remote.request))))
        return True

    def _begin(self, order: LoadOrder) -> None:
        """Begin a load, or fail it. A load without tokens tells prefill that its blocks are not needed."""
        if not order.blocks:
            self._release(order)
            return
        try:
            if self._clearing is not None:
                self._clearing.clear(order)
            transfer = self._submit(order, self._request(order))
        except Exception as error:  # See `PrefillSide._hold`.
            self._refuse(order, error)
            return
        self._loads[order.request] = transfer
        transfer.on_end(partial(self._end, order))

    def _refuse(self, order: LoadOrder, error: Exception) -> None:
        logs.event(logs.WARNING, "load refused", **_names(order), error=error)
        self._refused.append(order.request)

    def _request(self, order: LoadOrder) -> Request:
        remote, (first, end) = order.remote, order.tokens
        held = stored(remote.groups, remote.blocks)
        prefill = {group.name: table(group.store, ids, remote.tokens) for group, ids in held}
        decode = self._tables.of(order.blocks, end, first)
        # Cleared parts must stay zero.
        return Request(remote.held_name, order.tokens, prefill, decode, whole_last_page=self._clearing is None)

    def _submit(self, order: LoadOrder, request: Request) -> Transfer:
        # Decode knows no blocks of a prompt that prefill may still be computing: offers bring them.
        begin = self.worker.open if order.remote.early and request.decode else self.worker.submit
        return begin(request, self._times.load, self._meeting(order.remote), wait=self._wait(order.remote))

    def _wait(self, remote: RemotePrefill) -> float:
        """Return how long prefill may take to hold a request; one that it has yet to compute may wait in its queue."""
        if not remote.early:
            return self._times.hold
        return min(REMADE, self._times.hold) if remote.request.endswith(AGAIN) else self._times.load

    def _release(self, order: LoadOrder) -> None:
        """Tell prefill to free its blocks, because the request moves nothing. If that fails, a lease ends the hold."""
        release = Request(order.remote.held_name, (0, 0), {}, {})
        tell(partial(self._submit, order, release), partial(_log_untold, order))

    def _end(self, order: LoadOrder, transfer: Transfer) -> None:
        """Record the end of a load, on the polling thread."""
        if transfer.error is not None:
            level = logs.INFO if transfer.state is TransferState.CANCELLED else logs.WARNING
            logs.event(level, "load failed", **_names(order), error=transfer.error)
        self._ended.append((order, transfer, now() - transfer.began))
        self._news.set()

    def _meeting(self, remote: RemotePrefill) -> Future[Peer]:
        """Return the meeting with a request's prefill engine: the existing one if it lasts. Raises KvplanError."""
        return self._meetings.meeting((remote.engine, remote.address), partial(self._meet, remote))

    def _meet(self, remote: RemotePrefill) -> Future[Peer]:
        """Begin to meet a prefill engine. Raises KvplanError."""
        key, connect = trusted(self.worker.keys, remote.key, f"prefill engine {remote.engine!r}"), self._times.connect
        return self.worker.connect_soon(remote.address, connect, key, self._mode, remote.engine or None)


def tell(submit: Callable[[], Transfer], untold: Callable[[Exception], None]) -> None:
    """Submit a request that moves nothing. `untold` is called with an error after which its holder may not know that.

    With R046 or R048 the holder has answered, and holds nothing.
    """
    try:
        transfer = submit()
    except Exception as error:  # See `PrefillSide._hold`.
        untold(error)
        return
    transfer.on_end(partial(_report, untold))


def _report(untold: Callable[[Exception], None], transfer: Transfer) -> None:
    if transfer.error is not None and not isinstance(transfer.error, LeaseError | WithdrawnError):
        untold(transfer.error)


def _log_untold(order: LoadOrder, error: Exception) -> None:
    logs.event(logs.INFO, "prefill not told", **_names(order), error=error)


def _names(order: LoadOrder) -> dict[str, str]:
    """Return decode's name of a request and the name by which prefill holds it, for a line of the log."""
    return {"request": order.request, "held": order.remote.held_name}
