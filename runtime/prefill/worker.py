"""Prefill worker: it holds requests for decode workers, offers what is computed, frees what nobody needs any more."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from kvplan.plan.block_tables import Tables, own
from kvplan.plan.request import check_id
from kvplan.runtime import clock as clocks
from kvplan.runtime.clock import ListeningClock
from kvplan.runtime.control.card import Hello, Refusal
from kvplan.runtime.control.handshake_server import PrefillFace
from kvplan.runtime.control.identity import Identity, identified
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import EXITS, HandleError, HandshakeError, WithdrawnError
from kvplan.runtime.inspection import Inspection
from kvplan.runtime.memory.device import enter
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import tracing
from kvplan.runtime.ops.drain import Drain
from kvplan.runtime.ops.health import reasons
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.ops.tracing import RequestSpans, SpanStart
from kvplan.runtime.owner import owned
from kvplan.runtime.plans.async_catalog import never_waiting
from kvplan.runtime.plans.catalog import FixedPlans, plans_of
from kvplan.runtime.prefill.driver import PrefillDriver
from kvplan.runtime.prefill.events import (
    Completed,
    ComputeEvent,
    ask_events,
    check_event,
    checked_note,
    chunk,
    interval,
)
from kvplan.runtime.prefill.inspection import inspected
from kvplan.runtime.prefill.peers import expected
from kvplan.runtime.prefill.released import ReleasedRequests, taken
from kvplan.runtime.protocol import prefill_effects as effects
from kvplan.runtime.protocol.leases import LeaseEvent, Released
from kvplan.runtime.protocol.prefill import PrefillCore
from kvplan.runtime.staging.buffers import STAGE_BYTES
from kvplan.runtime.transfer.executor import ExecutorContext, Slice
from kvplan.runtime.transfer.gather import IndexScratch
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.wakeup import BUSY, MOVING, QUIET
from kvplan.runtime.worker import OwnedWorker

LEASE = 30.0
# Seconds that a round may come after the one before. More is time in which this worker did not listen, as its thread
# waited for a core or its process stood still: no lease runs out in it, as its renewals may have come.
LISTENING = 1.0


class PrefillWorker(OwnedWorker):
    """One prefill worker: its memory registered, its control server at `address`. Safe to use from threads.

    `lease` is how many seconds a request is held for after it was held, and after each claim of a decode worker; time
    in which nobody polled does not count. A thread of its own
    polls, unless `start` is false: then the caller does, often, or nobody can read. What it packs for
    a plan, to write it or to have it read, goes through `stage_bytes` of memory, taken when such a plan is met; with 0
    all goes straight to its place.
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
        super().__init__("prefill", endpoint)
        self.plans = never_waiting(plans_of(plans))
        self.identity = identified(identity, self.plans, "prefill", pool.side.digest)
        self.counters, self.limits = counters or Counters(), limits or Limits()
        self._side = pool.side
        self._lease, self._core = lease, PrefillCore(worker, lease, self.limits.requests, secrets.randbits(62))
        self._released = ReleasedRequests()
        self._lease_clock = ListeningClock(clock, LISTENING)
        self._spans = RequestSpans("kvplan hold", {"worker": worker})
        given = self.plans.plans if isinstance(self.plans, FixedPlans) else ()
        # No plan has a decode worker that would ever tell this worker that it is done.
        self._unread = bool(given) and not any(expected(plan, worker) for plan in given)
        self._server = endpoint.listen(bind)
        try:
            self._join()
        except Exception:
            self._server.close()
            raise
        self.address = self._server.address
        self._gauges = [
            self.counters.gauge("held_leases", self._core.held),
            self.counters.gauge("peers", lambda: len(self._driver.peers)),
            self.counters.gauge("unready_workers", lambda: bool(self.unready())),
            self.counters.gauge("in_flight_bytes", lambda: self._slices.in_flight()),
        ]
        if start:
            self._owner.start(lambda: enter(self._pool.geometry))

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
        self, request: str, tables: Tables | None = None, *, after: ComputeEvent | None = None, note: bytes = b""
    ) -> None:
        """Keep a whole request's blocks until it is `released`. It is read once `after`, an event, has completed.

        Who reads it has the `note` when it has arrived, at most LONGEST_NOTE bytes.

        With `tables`, this side's blocks by group, a decode worker that was told of other blocks is refused. A name
        that was held before is not held anew without them: decode may still name its old blocks.
        Call it on every worker before a decode worker is told of the request's blocks. Raises HandleError where it is
        held already, DrainingError, LimitedError, BadRequestError.
        """
        began = tracing.start()
        self._owner.call(lambda: self._hold(request, None, after, tables, began, note))

    def open(self, request: str, tokens: tuple[int, int]) -> None:
        """Keep a request of tokens [first, end) until it is `released`; what is computed of it is offered in chunks."""
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
        self._check_open()
        if self._unread:
            return
        offered = chunk(request, tokens, self._named(tables) or {}, layers, last)
        attached = checked_note(request, note)
        self._driver.command(self._lease_clock(), effects.OfferChunk(request, offered, attached))
        self._driver.watched.add(request, after)

    @owned
    def withdraw(self, request: str) -> None:
        """Give a request up: decode workers are told, and it is released when none of them can be reading it."""
        self._check_open()
        self._give_up(request, self._lease_clock())

    @owned
    def decline(self, request: str) -> None:
        """A request that is not held never will be: who asks for it is told that it was given up. Raises as `hold`."""
        # No poll lies between, in which a decode worker could be told that it is there.
        self._hold(request, (0, 0), None, None, None)
        self._give_up(request, self._lease_clock())

    def _is_drained(self) -> bool:
        return self._drain.begun and not self._core.held()

    @owned
    def drop(self, engine: str, *, dead: bool = False) -> None:
        """Forget a decode engine. What is being written to it pins its blocks until the transport is done with it.

        With `dead` the caller vouches that its processes have ended: blocks are free at once. Raises HandshakeError
        for an engine that is not connected, and that nothing is written to.
        """
        self._check_open()
        try:
            self._driver.command(self._lease_clock(), effects.DropReaders(engine, dead))
        finally:
            self._driver.follow()

    def unready(self) -> tuple[str, ...]:
        """Why no requests should come here for now, empty where they may. Never waits."""
        unmet = {"has not been told where its engine's workers answer": not self._endpoint.addresses}
        return super().unready() + reasons(self._name, unmet)

    def released(self) -> list[Released]:
        """The requests whose blocks are free now, each once: finished, expired or withdrawn."""
        return self._released.take()

    def events(self) -> list[LeaseEvent]:
        """What decode workers told, or got wrong, since the last call; at most the last 16,384."""
        return list(taken(self._driver.events))

    def _inspected(self) -> Inspection:
        now = self._lease_clock()
        self._driver.command(now, *self._released.reported())
        return inspected(self._name, now, self._context, self._stage, self._driver, self._endpoint.connections())

    def _moving(self) -> bool:
        return self._slices.in_flight() > 0

    def _look(self) -> tuple[list[int], float]:
        """Less while anybody claims what is held."""
        if self._stage.behind or self._server.pending():
            return [], 0.0
        busy = not self._asleep and self._driver.busy
        seconds = BUSY if busy else QUIET
        return self._server.filenos(), MOVING if self._moving() else seconds

    def _poll(self) -> bool:
        self._check_not_closed()
        enter(self._pool.geometry)
        now = self._lease_clock.listen()
        if messages := self._server.receive():
            self._hear(messages, now)
            # Answers go before all else is looked after: who asked waits for nothing but them.
            self._say()
        waiting = [] if self._asleep else self._driver.watched.pending()
        if waiting:
            with self._owner.away():
                completed = ask_events(waiting)
            self._check_not_closed()
        else:
            completed = []
        expire = self._may_expire(now)
        if not self._asleep:
            self._round(now, completed, expire)
        elif expire:
            self._driver.command(now, effects.Expire())
        for request in list(self._core.state.sources) if self._drain.past_deadline(self._clock()) else ():
            self._give_up(request, now)
        self._exits.extend(what for _, what in completed if isinstance(what, EXITS))
        return bool(messages) or (not self._asleep and self._moving())

    def _say(self) -> None:
        if not self._closed:
            self._driver.say()

    def _after(self) -> None:
        self._spans.tell()
        # An event that ends the program harms no other request.
        self._raise_exits()

    def _check_unused(self) -> None:
        if held := self._core.held():
            raise HandleError(f"{self._name} holds {held} requests: withdraw them, or wait")

    def _leave(self, why: str) -> None:
        if self._closed:
            for forget in self._gauges:
                forget()
        self._driver.close()

    def _end(self) -> None:
        self._spans.end_all("closed")

    def _uses(self, peer: str) -> bool:
        return peer in self._driver.peers.met

    def _accept(self, pool: Pool) -> None:
        pool.check(self.worker, self._side.digest, self._name)

    def _begin_over(self) -> None:
        """Begin from scratch with this memory: nobody is met."""
        self._slices = AdmissionQueue[Slice](self.limits)
        self._context = ExecutorContext(
            self._transport, self._slices, IndexScratch(), self.limits.slice_bytes, self._stage
        )
        self._driver = PrefillDriver(
            self._core, self._pool, self._context, self._server, self.counters, self._free, self._endpoint.needs
        )
        self._drain = Drain(self._name)
        self._all_heard = self._lease_clock()

    def _may_expire(self, now: float) -> bool:
        """Whether leases that nobody renewed may end: not while what is unheard may renew them, for a lease at most."""
        if not self._server.pending():
            self._all_heard = now
            return True
        return now - self._all_heard > self._lease

    def _hear(self, messages: Iterable[tuple[bytes, object]], now: float) -> None:
        for identity, message in messages:
            if self._asleep and isinstance(message, Hello):
                text = f"{self._name} is suspended"
                self._server.send(identity, Refusal(HandshakeError.code, text, True, message.nonce))
            else:
                self._driver.hear(identity, message, self._face, now)

    def _round(self, now: float, completed: Completed, expire: bool) -> None:
        """One round after all messages were heard."""
        if stray := self._endpoint.progress(self._name):
            self._driver.note(LeaseEvent(MessageKind.STRAY, text=f"{stray} messages came through the transport"), stray)
        self._context.begin()
        self._driver.step(now, completed, expire)

    def _hold(
        self,
        request: str,
        tokens: tuple[int, int] | None,
        after: ComputeEvent | None,
        tables: Tables | None,
        began: SpanStart | None,
        note: bytes = b"",
    ) -> None:
        check_id(request)
        attached = checked_note(request, note)
        check_event(request, after)
        self._check_open()
        self._drain.check()
        now, reported = self._lease_clock(), self._released.reported()
        if self._unread:
            self._driver.command(now, *reported, effects.PassBy(request))
        else:
            held = effects.Hold(request, tokens, self._named(tables), after is None, attached)
            self._driver.command(now, *reported, held)
        self._spans.begin(request, began)
        if after is not None and not self._unread:
            self._driver.watched.add(request, after)

    def _give_up(self, request: str, now: float) -> None:
        error = WithdrawnError("the prefill engine gave the request up")
        self._driver.command(now, effects.Withdraw(request, error))

    def _named(self, tables: Tables | None) -> Tables | None:
        """The caller's tables, checked and copied."""
        return None if tables is None else own(self._side, tables, self._pool.blocks)

    def _free(self, released: Released) -> None:
        """The blocks of a request are free."""
        self.counters.add("ended_leases", end=released.why)
        self._spans.end(released.request, released.why, "nobody claimed it" if released.why == "expired" else "")
        self._released.add(released)

    def _face(self) -> PrefillFace:
        return PrefillFace(
            identity=self.identity,
            side=self._side,
            worker=self.worker,
            plans=self.plans,
            generation=self.generation,
            addresses=() if self._asleep else self._endpoint.addresses,
            geometry=self._pool.geometry,
            metadata=self._endpoint.metadata,
            fabrics=self._transport.fabrics,
        )
