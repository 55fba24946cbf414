"""Prefill worker: it holds requests for decode workers, offers what is computed, frees what nobody needs any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvplan.plan.block_tables import Tables, own
from kvplan.plan.request import check_id
from kvplan.runtime import clock as clocks
from kvplan.runtime.control.identity import Identity, identified
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import HandshakeError
from kvplan.runtime.memory.device import enter
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import tracing
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.ops.tracing import SpanStart
from kvplan.runtime.plans.catalog import FixedPlans, never_waiting, plans_of
from kvplan.runtime.prefill.events import ComputeEvent, check_event, checked_note, chunk, interval
from kvplan.runtime.prefill.half import PrefillHalf
from kvplan.runtime.prefill.lease_clock import LEASE
from kvplan.runtime.prefill.peers import expected
from kvplan.runtime.protocol.leases import Released
from kvplan.runtime.staging.buffers import STAGE_BYTES
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.worker import OwnedWorker, owned


class PrefillWorker(OwnedWorker):
    """One prefill worker: its memory registered, its control server at `address`. Safe to use from threads.

    `lease` is how many seconds a request is held for after `hold`, and after each claim of a decode worker. A pause
    between two polls counts as one second at most; machine sleep counts in full. A thread of its own polls, unless
    `start` is false: then the caller does, often, or nobody can read. What it packs for a plan, to write it or to have
    it read, goes through `stage_bytes` of memory, taken when such a plan is met; with 0 all goes straight to its place.
    """

    def __init__(
        self,
        plans: object,
        worker: int,
        pool: Pool,
        transport: Transport,
        *,
        identity: Identity,
        keys: Keys | Plain,
        bind: str = "tcp://127.0.0.1:*",
        lease: float = LEASE,
        limits: Limits | None = None,
        counters: Counters | None = None,
        stage_bytes: int = STAGE_BYTES,
        start: bool = True,
        clock: Callable[[], float] = clocks.now,
    ) -> None:
        endpoint = Endpoint(f"prefill worker {worker}", worker, pool, transport, keys, stage_bytes, clock)
        self.plans = never_waiting(plans_of(plans))
        self.identity = identified(identity, self.plans, "prefill", pool.side.digest)
        self.counters, self.limits = counters or Counters(), limits or Limits()
        given = self.plans.plans if isinstance(self.plans, FixedPlans) else ()
        # No plan has a decode worker that would ever tell this worker that it is done.
        self._unread = bool(given) and not any(expected(plan, worker) for plan in given)
        self._side, server = pool.side, endpoint.listen(bind)
        try:
            facts = self.identity, lambda: self.plans, pool.side, lease, self.limits, self.counters
            # What its owner carries out.
            half = self.half = PrefillHalf(endpoint, server, *facts)
            super().__init__(half)
        except Exception:
            server.close()
            raise
        self.address = server.address
        half.gauges = [
            self.counters.gauge("held_leases", half.core.leases.held),
            self.counters.gauge("peers", lambda: len(half.driver.peers)),
            self.counters.gauge("unready_workers", lambda: bool(self.unready())),
            self.counters.gauge("in_flight_bytes", lambda: half.slices.in_flight()),
        ]
        if start:
            self._owner.start(lambda: enter(endpoint.pool.geometry))

    @owned
    def announce(self, addresses: Iterable[str]) -> None:
        """Say where all workers of this engine answer, in the plan's order; before that, peers are told to wait.

        Raises HandshakeError where they are not one text for each worker of this side.
        """
        given, count = [addresses] if isinstance(addresses, str) else list(addresses), len(self._side.workers)
        if len(given) != count or not all(isinstance(address, str) for address in given):
            raise HandshakeError(
                f"{len(given)} addresses are announced, this side has {count} workers: give one of each"
            )
        self._endpoint.addresses = tuple(given)

    def hold(
        self,
        request: str,
        tables: Tables | None = None,
        *,
        tokens: tuple[int, int] | None = None,
        after: ComputeEvent | None = None,
        note: bytes = b"",
    ) -> None:
        """Keep a whole request's blocks until it is `released`. It is read once `after`, an event, has completed.

        With `tokens` it has tokens [first, end): decode may ask for fewer, and is refused more. A reader gets the
        `note` once all has arrived, at most LONGEST_NOTE bytes.

        With `tables`, this side's blocks by group, a decode worker that was told of other blocks is refused. A name
        that was held before is not held again without them: decode may still name its old blocks.
        Call it on every worker; a decode worker that asks earlier waits. Raises HandleError if it is held already,
        DrainingError, LimitedError, BadRequestError.
        """
        began = tracing.start()
        asked = None if tokens is None else interval(tokens, f"request {request}")
        self._owner.call(lambda: self._hold(request, asked, after, tables, began, note, whole=True))

    def open(self, request: str, tokens: tuple[int, int]) -> None:
        """Keep a request of tokens [first, end) until it is `released`; what is computed of it is offered in chunks.

        Decode may ask for fewer of these tokens, and is refused others.
        """
        asked, began = interval(tokens, f"request {request}"), tracing.start()
        self._owner.call(lambda: self._hold(request, asked, None, None, began))

    @owned
    def offer(
        self,
        request: str,
        tokens: tuple[int, int],
        tables: Tables | None = None,
        *,
        layers: Iterable[int] | None = None,
        after: ComputeEvent | None = None,
        last: bool = False,
        note: bytes = b"",
    ) -> None:
        """Tokens [first, end) of an opened request are computed, once `after` has completed, in all layers or some.

        `tables` name this side's blocks by group. States, rings and caches of another length move with the chunk of
        their layers that ends where the request does, `last` or not: they have to be there after its event, too. The
        last chunk may have a `note` for who reads the request. Raises BadRequestError, HandleError for a request that
        is not open.
        """
        check_event(request, after)
        self.half.check_open()
        if self._unread:
            return
        offered = chunk(request, tokens, self._named(tables) or {}, layers, last)
        self.half.driver.command(self.half.core.offer, request, offered, checked_note(request, note))
        self.half.driver.watched.add(request, after)

    @owned
    def withdraw(self, request: str) -> None:
        """End a hold early: decode fails with WithdrawnError, and the blocks are released when its last claim ends."""
        self.half.check_open()
        self.half.withdraw(request)

    @owned
    def decline(self, request: str) -> None:
        """A request that is not held never will be: who asks for it is told that it was given up.

        A worker that drains does this, too. Raises HandleError if it is held already, LimitedError, BadRequestError.
        """
        # No poll lies between, in which a decode worker could be told that it is there.
        self._hold(request, (0, 0), None, None, None, new=False)
        self.half.withdraw(request)

    @owned
    def drop(self, engine: str, *, dead: bool = False) -> None:
        """Forget a decode engine. What is being written to it pins its blocks until the transport is done with it.

        With `dead` the caller vouches that its processes have ended: writes to it pin nothing, and leases run on.
        Raises HandshakeError for an engine that is not connected, and that nothing is written to.
        """
        self.half.check_open()
        try:
            self.half.driver.command(self.half.core.drop_engine, engine, dead=dead)
        finally:
            self.half.driver.follow()

    def unready(self) -> tuple[str, ...]:
        """Why no requests should come here for now, empty where they may. Never waits."""
        unmet = {"has not been told where its engine's workers answer": not self._endpoint.addresses}
        return super().unready() + self._reasons(unmet)

    def released(self) -> list[Released]:
        """The requests whose blocks are free now, each once: finished, expired or withdrawn."""
        return self.half.released()

    def _hold(
        self,
        request: str,
        tokens: tuple[int, int] | None,
        after: ComputeEvent | None,
        tables: Tables | None,
        began: SpanStart | None,
        note: bytes = b"",
        *,
        whole: bool = False,
        new: bool = True,
    ) -> None:
        check_id(request)
        attached = checked_note(request, note)
        check_event(request, after)
        half = self.half
        (half.check_taking if new else half.check_open)()
        half.tell_collected()
        if self._unread:
            half.driver.command(half.core.leases.pass_by, request)
        else:
            named, ready = self._named(tables), after is None
            half.driver.command(half.core.hold, request, tokens, named, ready=ready, note=attached, whole=whole)
        half.spans.begin(request, began)
        if after is not None and not self._unread:
            half.driver.watched.add(request, after)

    def _named(self, tables: Tables | None) -> Tables | None:
        """The caller's tables, checked and copied."""
        return None if tables is None else own(self._side, tables, self._endpoint.pool.blocks)
