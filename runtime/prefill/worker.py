"""Prefill worker: holds requests for decode workers, offers computed chunks, and frees blocks after their last use."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvplan.plan.block_tables import Tables, own
from kvplan.plan.request import check_id
from kvplan.runtime import clock as clocks
from kvplan.runtime.control.identity import Identity, identified
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.control.messages import DEFAULT_LEASE
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import HandshakeError, WithdrawnError
from kvplan.runtime.memory.device import enter
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import tracing
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.ops.tracing import SpanStart
from kvplan.runtime.plans.catalog import FixedPlans, never_waiting, plans_of
from kvplan.runtime.prefill.events import ComputeEvent, check_event, checked_note, chunk, interval
from kvplan.runtime.prefill.half import PrefillHalf
from kvplan.runtime.prefill.peers import expected
from kvplan.runtime.protocol.leases import Released
from kvplan.runtime.staging.buffers import STAGE_BYTES
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.worker import OwnedWorker, owned


class PrefillWorker(OwnedWorker):
    """One prefill worker, with its memory registered and its control server at `address`. Safe to use from threads.

    `lease` is how many seconds a request is held for after `hold` or `open`, each `offer` and accepted claim. A pause
    between two polls counts as one second at most; machine sleep counts in full. The worker's own thread polls. If
    `start` is false, the caller has to poll often, or no decode worker can read. Pages that a plan packs go through
    `stage_bytes` of memory, allocated when such a plan is first used; with 0 everything moves directly.
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
        lease: float = DEFAULT_LEASE,
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
        # No given plan has a decode worker that would ever say Done to this worker.
        self._has_no_readers = bool(given) and not any(expected(plan, worker) for plan in given)
        self._side, server = pool.side, endpoint.listen(bind)
        try:
            facts = self.identity, lambda: self.plans, pool.side, lease, self.limits, self.counters
            half = self.half = PrefillHalf(endpoint, server, *facts)
            super().__init__(half)
        except Exception:
            server.close()
            raise
        self.address = server.address
        half.gauges = [
            self.counters.gauge("holds", half.held),
            self.counters.gauge("peers", lambda: len(half.driver.peers)),
            self.counters.gauge("unready_workers", lambda: bool(self.unready())),
            self.counters.gauge("in_flight_bytes", lambda: half.context.admission.in_flight()),
        ]
        if start:
            self._owner.start(lambda: enter(endpoint.pool.geometry))

    @owned
    def announce(self, addresses: Iterable[str]) -> None:
        """Set the addresses of all workers of this engine, in the plan's order. Peers that come before have to wait.

        Raises HandshakeError if they are not one text for each worker of this side.
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
        """Keep a whole request's blocks until it is `released`. It may be read once `after`, an event, has completed.

        With `tokens` it has tokens [first, end): decode may ask for fewer, and is refused more. A reader gets the
        `note`, at most LONGEST_NOTE bytes, once all has arrived.

        With `tables`, this side's blocks by group, a decode worker that names other blocks is refused. A request that
        was held before needs them, because decode may still name its old blocks.
        Call it on every worker; a decode worker that asks earlier waits. Raises HandleError if it is held already,
        DrainingError, LimitedError, BadRequestError.
        """
        began = tracing.start()
        asked = None if tokens is None else interval(tokens, f"request {request}")
        self._owner.call(lambda: self._hold(request, asked, after, tables, began, note, whole=True))

    def open(self, request: str, tokens: tuple[int, int]) -> None:
        """Keep a request of tokens [first, end) until it is `released`. Call `offer` for each chunk of it.

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
        """Offer tokens [first, end) of an opened request, in all layers or some, once `after` has completed.

        `tables` name this side's blocks by group. States, rings and caches of another length move with the chunk of
        their layers that ends where the request does, `last` or not: they have to be computed after its event, too.
        The last chunk may have a `note` for readers. Raises BadRequestError; HandleError if the request is not open.
        """
        check_event(request, after)
        self.half.check_open()
        if self._has_no_readers:
            return
        offered = chunk(request, tokens, self._named(tables) or {}, layers, last)
        self.half.driver.command(self.half.core.offer, request, offered, checked_note(request, note))
        self.half.driver.watched.add(request, after)

    @owned
    def withdraw(self, request: str) -> None:
        """End a hold early: decode fails with WithdrawnError, and the blocks are freed once no promise is left.

        Raises HandleError if the name was never held.
        """
        self.half.check_open()
        self.half.withdraw(request)

    @owned
    def decline(self, request: str) -> None:
        """Refuse a request that is not held and never will be: decode workers that ask for it get WithdrawnError.

        A worker that drains refuses such claims by itself. Raises HandleError if it is held, or if `released` has not
        reported it yet, and BadRequestError.
        """
        check_id(request)
        self.half.check_open()
        self.half.driver.command(self.half.core.decline, request, WithdrawnError("the prefill engine declined it"))

    @owned
    def drop(self, engine: str) -> None:
        """Forget a decode engine. Its promises run on. Raises HandshakeError if it is not connected."""
        self.half.check_open()
        try:
            self.half.driver.command(self.half.core.drop_engine, engine)
        finally:
            self.half.driver.follow()

    def unready(self) -> tuple[str, ...]:
        """Return why no requests should come here for now; empty if they may. Never waits."""
        unmet = {"has not been told where its engine's workers answer": not self._endpoint.addresses}
        return super().unready() + self._reasons(unmet)

    def released(self) -> list[Released]:
        """Return the requests whose blocks are free now, each once: finished, expired or withdrawn."""
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
    ) -> None:
        check_id(request)
        attached = checked_note(request, note)
        check_event(request, after)
        half = self.half
        half.check_taking()
        half.tell_collected()
        if self._has_no_readers:
            half.driver.command(half.core.leases.hold_without_readers, request)
            return
        named, ready = self._named(tables), after is None
        half.driver.command(half.core.hold, request, tokens, named, ready=ready, note=attached, whole=whole)
        half.spans.begin(request, began)
        if after is not None:
            half.driver.watched.add(request, after)

    def _named(self, tables: Tables | None) -> Tables | None:
        """Return the caller's tables, checked and copied; None for none."""
        return None if tables is None else own(self._side, tables, self._endpoint.pool.blocks)
