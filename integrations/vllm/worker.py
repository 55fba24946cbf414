"""A worker's half: its prefill and its decode side. It takes a step's orders and reports results without waiting."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event

from kvplan.integrations.shared.meetings import PrefillMeetings, trusted
from kvplan.integrations.shared.names import AGAIN, REMADE, again
from kvplan.integrations.vllm.clearing import BlockClearing
from kvplan.integrations.vllm.measures import BYTES, EXPIRED, FAILED, SECONDS, Measures, nothing
from kvplan.integrations.vllm.metadata import HoldOrder, LoadOrder, RemotePrefill, StepOrders
from kvplan.integrations.vllm.offers import PromptOffers
from kvplan.integrations.vllm.tables import BlockTables, stored, table
from kvplan.plan.errors import KvplanError
from kvplan.plan.request import Request
from kvplan.runtime.clock import now
from kvplan.runtime.decode.prefill_engine import Peer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.errors import LeaseError, WithdrawnError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.events import ComputeEvent
from kvplan.runtime.prefill.worker import PrefillWorker

# Makes an event after all work that the device was given, or none if the device has done it.
Mark = Callable[[], ComputeEvent | None]


def unmarked() -> None:
    """Return no event: a step that is over has done all its work."""


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Seconds: until a load must have ended, until prefill must hold it, until a prefill engine must be met."""

    load: float
    hold: float
    connect: float


# How long a step without tokens waits for a load to end, in seconds. Engines step without pause while any request
# is loading, which would starve the thread that moves it. The wait grows while nothing ends, because requests
# that are held may wait for seconds; a new request may wait as long for its first step.
SHORTEST_REST, LONGEST_REST = 0.001, 0.004


@dataclass(slots=True)
class StepResults:
    """Requests by result: blocks sent or free again, loads that arrived, and loads among these that failed."""

    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


class PrefillSide:
    """This worker's holds for other engines. Each begins once the device has reached the event of `mark`."""

    def __init__(
        self, worker: PrefillWorker, tables: BlockTables, offers: PromptOffers | None = None, mark: Mark = unmarked
    ) -> None:
        self.worker, self._tables, self._mark = worker, tables, mark
        self.offers = offers or PromptOffers(worker, tables)
        self._held: dict[str, HoldOrder] = {}
        self._refused: set[str] = set()
        self.expired = 0

    @property
    def busy(self) -> bool:
        """Whether the runtime may release something."""
        return bool(self._held or self._refused or self.offers.unreleased)

    def begin(self, orders: StepOrders) -> None:
        if orders.addresses:
            self.worker.announce(orders.addresses)
        after = self._mark() if orders.holds else None
        for order in orders.holds:
            self._hold(order, after)
        for name in orders.withdrawals:
            # If a router gave a name twice, another request may be held by it.
            if name not in self._held:
                self.offers.withdraw(name)
        self.offers.begin(orders.chunks)

    def sent(self) -> set[str]:
        """Return the requests whose blocks are free again, each once."""
        if not self.busy:
            return set()
        free, self._refused = self._refused, set()
        for lease in self.worker.released():
            self.offers.released(lease.request)
            if lease.request not in self._held:
                continue
            order = self._held.pop(lease.request)
            free.add(order.request)
            if lease.why != "finished" and not order.next_turn:
                logs.event(logs.WARNING, "blocks freed unread", request=lease.request, why=lease.why)
                self.expired += lease.why == "expired"
        return free

    def _hold(self, order: HoldOrder, after: ComputeEvent | None) -> None:
        """Hold a request, or have its blocks freed: decode then waits in vain, and computes it itself or fails."""
        name = order.held_name
        try:
            if not self.offers.finish(order, after):
                tables = self._tables.of(order.blocks, order.tokens)
                self.worker.hold(name, tables, tokens=(0, order.tokens), after=after, note=order.note)
        except Exception as error:  # Data from another engine or a client must not end this one.
            logs.event(logs.WARNING, "hold refused", request=order.request, error=error)
            # A push may still read what was offered by this name.
            if name in self._held or name not in self.offers.unreleased:
                self._refused.add(order.request)
                return
        self._held[name] = order


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
        self._news = Event()
        self.measures = nothing()

    @property
    def busy(self) -> bool:
        """Whether a load may end."""
        return bool(self._loads or self._failed or self._refused or self._waiting)

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
        if self._news.is_set():
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
            except Exception as error:  # See `_hold`.
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
        if (transfer := self._loads.get(request)) is not None:
            transfer.cancel()
        if transfer is not None or any(order.request == request for order, _ in self._failed):
            self._cancelled.add(request)

    def _settle(self, results: StepResults) -> None:
        waiting: list[tuple[LoadOrder, Transfer]] = []
        settled: list[tuple[LoadOrder, KvplanError | None]] = []
        for order, transfer in self._failed:
            if self.worker.settled(transfer):
                settled.append((order, transfer.error))
            else:
                waiting.append((order, transfer))
        self._failed = waiting
        given_up = [order for order, error in settled if not self._retry(order, error)]
        for order in given_up:
            self._release(order)
        lost = {*self._refused, *(order.request for order in given_up)}
        self._refused = []
        self._cancelled -= lost
        self.measures[FAILED].extend([1.0] * len(lost))
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
        except Exception as error:  # See `_hold`.
            self._refuse(order, error)
            return
        self._loads[order.request] = transfer
        transfer.on_end(partial(self._end, order))

    def _refuse(self, order: LoadOrder, error: Exception) -> None:
        logs.event(logs.WARNING, "load refused", request=order.request, error=error)
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
        try:
            self._submit(order, Request(order.remote.held_name, (0, 0), {}, {}))
        except Exception as error:  # See `_hold`.
            logs.event(logs.INFO, "prefill not told", request=order.remote.request, error=error)

    def _end(self, order: LoadOrder, transfer: Transfer) -> None:
        """Record the end of a load, on the polling thread."""
        if transfer.error is not None:
            logs.event(logs.WARNING, "load failed", request=order.request, error=transfer.error)
        self._ended.append((order, transfer, now() - transfer.began))
        self._news.set()

    def _meeting(self, remote: RemotePrefill) -> Future[Peer]:
        """Return the meeting with a request's prefill engine: the existing one if it lasts. Raises KvplanError."""
        return self._meetings.meeting((remote.engine, remote.address), partial(self._meet, remote))

    def _meet(self, remote: RemotePrefill) -> Future[Peer]:
        """Begin to meet a prefill engine. Raises KvplanError."""
        key, connect = trusted(self.worker.keys, remote.key, f"prefill engine {remote.engine!r}"), self._times.connect
        return self.worker.connect_soon(remote.address, connect, key, self._mode, remote.engine or None)


class ConnectorWorker:
    """Both sides of one worker, or only one if the engine has only that, and the memory of both."""

    def __init__(self, prefill: PrefillSide | None, decode: DecodeSide | None, pool: Pool | None = None) -> None:
        self._prefill, self._decode, self._pool = prefill, decode, pool
        halves = [side.worker for side in (prefill, decode) if side is not None]
        # Halves of one worker are suspended, resumed and closed together, through either.
        self._workers = list({half.endpoint: half for half in halves}.values())
        self._sideless: set[str] = set()
        self._asleep = False
        self._pause = SHORTEST_REST

    def suspend(self) -> None:
        """Give back the memory of both sides, or of neither if either is in use. Raises HandleError."""
        if self._asleep:
            return
        with ExitStack() as undo:
            for worker in self._workers:
                worker.suspend()
                undo.callback(worker.resume, self._memory())
            undo.pop_all()
        self._asleep = True

    def resume(self) -> None:
        """Register the memory again if it is suspended."""
        if self._asleep:
            for worker in self._workers:
                worker.resume(self._memory())
            self._asleep = False

    def _memory(self) -> Pool:
        assert self._pool is not None
        return self._pool

    def hold(self, orders: StepOrders) -> None:
        """Begin a step's orders for decode engines, before the model computes it."""
        self._pause = SHORTEST_REST
        if self._prefill is not None:
            self._prefill.begin(orders)
        if self._decode is not None:
            self._decode.step(orders)

    def computed(self, layer: str | None = None) -> None:
        """Offer this layer, or all layers, which the step has computed."""
        if self._prefill is not None:
            offers = self._prefill.offers
            offers.end() if layer is None else offers.computed(layer)

    def load(self, orders: StepOrders) -> None:
        """Begin a step's orders from prefill engines, beside the model."""
        if self._decode is not None:
            self._decode.begin(orders)
        else:
            # The engine waits for every order.
            self._sideless |= {order.request for order in orders.loads if order.blocks}

    def ended(self, *, idle: bool) -> StepResults:
        """Return the requests that ended since the last call, each once. An idle step rests for other threads."""
        if idle:
            self._rest()
        else:
            self._pause = SHORTEST_REST
        results = StepResults()
        if self._sideless:
            results = StepResults(received=set(self._sideless), failed=set(self._sideless))
            self._sideless.clear()
        if self._prefill is not None:
            results.sent = self._prefill.sent()
        if self._decode is not None:
            self._decode.ended(results)
        return results

    @property
    def busy(self) -> bool:
        """Whether `ended` may have results."""
        held = self._prefill is not None and self._prefill.busy
        return held or (self._decode is not None and self._decode.busy) or bool(self._sideless)

    @property
    def measured(self) -> bool:
        """Whether there are measures."""
        loads = self._decode is not None and self._decode.measured
        return loads or (self._prefill is not None and self._prefill.expired > 0)

    def measures(self) -> Measures:
        """Return the measures since the last call."""
        measures = nothing()
        if self._decode is not None:
            measures, self._decode.measures = self._decode.measures, measures
        if self._prefill is not None:
            measures[EXPIRED].extend([1.0] * self._prefill.expired)
            self._prefill.expired = 0
        return measures

    def _rest(self) -> None:
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_REST)
        if self._decode is not None and self._decode.busy:
            self._decode.wait(pause)
        elif self._prefill is not None and self._prefill.busy:
            time.sleep(pause)

    def close(self) -> None:
        """Close both sides, the second one even if the first raises."""
        with ExitStack() as sides:
            for worker in self._workers:
                sides.callback(worker.close)
