"""Prefill half: the steps of a worker's prefill role. The worker's owner calls it."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from kvplan.plan.types import Side
from kvplan.runtime.control.channel import ControlServer
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.endpoint import Endpoint, Half
from kvplan.runtime.errors import EXITS, WithdrawnError
from kvplan.runtime.inspection import Inspection, ReaderState, SourceState, WriteState
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.ops.tracing import RequestSpans
from kvplan.runtime.plans.catalog import PlanSource
from kvplan.runtime.prefill.driver import PrefillDriver
from kvplan.runtime.prefill.events import Completed
from kvplan.runtime.prefill.lease_clock import LeaseClock
from kvplan.runtime.protocol.effects import WriteKey
from kvplan.runtime.protocol.leases import Released
from kvplan.runtime.protocol.prefill import PrefillCore
from kvplan.runtime.protocol.readers import Session
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.protocol.writes import RequestWrite, WritePhase
from kvplan.runtime.transfer.executor import ExecutorContext
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.transfer.mover import Mover
from kvplan.runtime.wakeup import BUSY, MOVING, QUIET

T = TypeVar("T")


class PrefillHalf(Half):
    """The prefill role of `identity` over an endpoint, whose pool is of `side`. Peers send messages to `server`.

    Each greeting uses the plans that `plans` returns then. Requests are held for `lease` seconds.
    """

    driver: PrefillDriver
    context: ExecutorContext

    def __init__(
        self,
        endpoint: Endpoint,
        server: ControlServer,
        identity: Identity,
        plans: Callable[[], PlanSource],
        side: Side,
        lease: float,
        limits: Limits,
        counters: Counters,
    ) -> None:
        super().__init__("prefill", endpoint)
        self.core = PrefillCore(endpoint.worker, lease, limits.requests, secrets.randbits(62))
        self.lease_clock = LeaseClock(self.clock, lease)
        # Released requests until callers collect them, and then until the core knows that: used by any thread.
        self._released, self._collected = deque[Released](), deque[str]()
        self.spans = RequestSpans("kvplan hold", {"worker": endpoint.worker})
        self._server, self._identity, self._plans, self._side = server, identity, plans, side
        self._limits, self._counters = limits, counters

    def withdraw(self, request: str) -> None:
        """Withdraw a request."""
        self.driver.command(self.core.withdraw, request, WithdrawnError("the prefill engine withdrew the request"))

    def released(self) -> list[Released]:
        """Return the requests whose blocks are free, each once, however many threads ask."""
        found = list(taken(self._released))
        self._collected.extend(one.request for one in found)
        return found

    def held(self) -> int:
        """Return how many requests count against the limit. Safe to call from any thread."""
        return self.core.leases.occupied() - len(self._collected)

    def tell_collected(self) -> None:
        """Notify the core of the releases that callers collected: their requests may be held again."""
        self.core.leases.collected(taken(self._collected))

    def accept(self, pool: Pool) -> None:
        pool.check(self.endpoint.worker, self._side.digest, self.name)

    def begin(self) -> None:
        endpoint = self.endpoint
        self.context = ExecutorContext(endpoint.transport, self._limits, self._counters, endpoint.stage)
        self.driver = PrefillDriver(
            self.core,
            endpoint,
            self.context,
            self._server,
            self._counters,
            clock=self.lease_clock,
            free=self._free,
            identity=self._identity,
            plans=self._plans,
        )

    def step(self) -> bool:
        self.endpoint.check_not_closed(self.name)
        now = self.lease_clock.advance()
        if messages := self._server.receive():
            for identity, message in messages:
                self.driver.hear(identity, message, now)
            # Send answers before all other work, because the peers that asked wait only for them.
            self.say()
        completed = self._completed()
        heard_until = self.lease_clock.heard_until(now, unread=self._server.pending())
        if not self.endpoint.asleep:
            self._advance(now, completed, heard_until)
        if self.endpoint.drains:
            refused = WithdrawnError("it drains and does not hold this request: ask another engine, or compute it")
            self.driver.command(self.core.refuse_unheld, refused)
        if self.overdue():
            for request in list(self.core.state.sources):
                self.withdraw(request)
        self.exits.extend(what for _, what in completed if isinstance(what, EXITS))
        return bool(messages) or (not self.endpoint.asleep and self.moving())

    def moving(self) -> bool:
        return self.context.admission.in_flight() > 0

    def look(self) -> tuple[list[int], float]:
        """Return what to wait on, and for how long: shorter while a request is claimed."""
        if self._server.pending():
            return [], 0.0
        driver = self.driver
        busy = not self.endpoint.asleep and (self.core.busy or driver.watched.pending() or len(driver.packs))
        seconds = BUSY if busy else QUIET
        return self._server.filenos(), MOVING if self.moving() else seconds

    def say(self) -> None:
        if not self.endpoint.closed:
            self.driver.say()

    def after(self) -> None:
        self.spans.tell()
        # An event that ends the program harms no other request.
        self.raise_exits()

    def peers(self) -> set[str]:
        return self.driver.peers.linked() | self.driver.mover.busy()

    @property
    def busy(self) -> bool:
        return self.core.leases.held() > 0 or len(self.core.writes) > 0

    def in_use(self) -> str:
        withdrawn = Counter(hold.withdrawn for hold in self.core.leases.holds())
        pushed = [write.reader.name for write in self.core.writes if write.phase is WritePhase.ENDED]
        to = ", ".join(sorted(set(pushed)))
        requests = (
            (withdrawn[False], "held: withdraw them, or wait"),
            (withdrawn[True], "withdrawn: wait until no decode worker reads them"),
            (len(pushed), f"still written to {to}: wait, end the processes there, or close this worker"),
        )
        used = "; ".join(f"{count} {text}" for count, text in requests if count)
        return used and f"{self.name} cannot be suspended while requests need its memory. {used}"

    def drop_all(self, why: str) -> None:
        self.driver.close()

    def end(self) -> None:
        self.spans.end_all("closed")

    def inspected(self) -> Inspection:
        self.tell_collected()
        driver, core, state = self.driver, self.core, self.core.state
        pending = {one.request: None for one in driver.watched.pending()}
        return replace(
            self.endpoint.inspected(self, self.lease_clock()),
            peer_stages=driver.peers.stages(),
            bytes_in_flight=self.context.admission.in_flight(),
            slices=self.context.inspected(),
            checksums=len(core.dones),
            readers=tuple(_reader(one, driver.peers.name(one.reader)) for one in state.sessions.values()),
            holds=state.leases.holds(),
            sources=tuple(map(_source, state.sources.values())),
            unannounced=tuple({**pending, **core.announcer.changed}),
            writes=tuple(_write(write, driver.mover) for write in core.writes),
            packs=len(driver.packs),
            uncollected=tuple(state.leases.uncollected),
        )

    def _completed(self) -> Completed:
        """Poll the events of requests outside of this turn, because they are the caller's code."""
        waiting = [] if self.endpoint.asleep else self.driver.watched.pending()
        if not waiting:
            return []
        with self.owner.turns.away():
            completed = [(one, one.completed()) for one in waiting]
        self.endpoint.check_not_closed(self.name)
        return completed

    def _advance(self, now: float, completed: Completed, heard_until: float) -> None:
        """Do one step, after all messages were read."""
        if stray := self.endpoint.progress(self.name):
            self._counters.add("messages", stray, kind=MessageKind.STRAY)
        self.context.begin()
        self.driver.step(now, completed, heard_until)

    def _free(self, released: Released) -> None:
        """Record that the blocks of a request are free."""
        self._counters.add("ended_holds", why=released.why)
        self.spans.end(released.request, released.why, "blocks freed early" if released.why == "expired" else "")
        self._released.append(released)


def taken(found: deque[T]) -> Iterator[T]:
    """Yield the items that are there, each once, however many threads take."""
    with suppress(IndexError):
        while True:
            yield found.popleft()


def _reader(session: Session, peer: str | None) -> ReaderState:
    reader, claimant = session.reader, session.reader.claimant
    claims = tuple(session.claims)
    return ReaderState(
        reader.key, reader.name, claimant.run, claimant.worker, claimant.plan, peer, session.last_message, claims
    )


def _source(source: SourceRequest) -> SourceState:
    return SourceState(source.request, source.hold, source.whole, len(source.chunks), source.ready)


def _write(write: RequestWrite, mover: Mover[WriteKey]) -> WriteState:
    under_way = mover.under_way(write.key)
    return WriteState(write.request.id, write.reader.key, write.phase.name.lower(), under_way)
