"""A decode worker: meet prefill engines, have what requests need moved here, end each in one outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvplan.plan.errors import BadRequestError, KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.plan.types import Plan
from kvplan.runtime import clock as clocks
from kvplan.runtime.checksum.checksum import Sample
from kvplan.runtime.control import handshake
from kvplan.runtime.control.card import WorkerCard, describe
from kvplan.runtime.control.handshake import MetEngine
from kvplan.runtime.control.identity import Identity, identified
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.decode.registration import DecodeRegistration
from kvplan.runtime.decode.transfer import Transfer, seconds
from kvplan.runtime.decode.transfers import call_back
from kvplan.runtime.errors import HandleError, HandshakeError, RegisterError, TransferError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.plans.async_catalog import never_waiting
from kvplan.runtime.plans.catalog import plans_of
from kvplan.runtime.polling import PollingThread, rest
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.transport.base import Transport

MODES = ("pull", "push")
IDLE = 600.0
MOVING = 100e-6


@dataclass(frozen=True, slots=True)
class Peer:
    """A prefill engine that is connected: its name, this run of it, and the plan for the pair."""

    name: str
    run: str
    plan: Plan = field(repr=False)


class DecodeWorker:
    """One decode worker. `pool` comes from `views`; the transport is this worker's own. Safe to use from threads.

    It must be polled: by its transfers' `wait`, by awaiting them, by `poll`, or by the thread that `start` begins.
    Engines that nothing was asked of for `idle` seconds are dropped.
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
        limits: Limits | None = None,
        counters: Counters | None = None,
        idle: float = IDLE,
        clock: Callable[[], float] = clocks.now,
    ) -> None:
        self.plans, self.worker, self.keys = never_waiting(plans_of(plans)), worker, keys
        self.identity = identified(identity, self.plans, "decode", pool.side.digest)
        self.counters, self.limits = counters or Counters(), limits or Limits()
        self.generation, self._side = 0, pool.side.digest
        self._transport, self._clock, self._idle = transport, clock, idle
        self._lock, self._closed, self._asleep = threading.RLock(), False, False
        self._thread: PollingThread | None = None
        self._furnish(pool)
        self._gauges = [
            self.counters.gauge("peers", lambda: len(self._intake.sessions.live)),
            self.counters.gauge("in_flight_bytes", lambda: self._intake.gate.in_flight()),
            self.counters.gauge("quarantined_bytes", lambda: self._intake.quarantined_bytes()),
        ]

    def connect(self, address: str, timeout: float, key: bytes | None = None, mode: str = "pull") -> Peer:
        """Meet the prefill engine that answers at `address` within `timeout` seconds, and prepare what moves.

        `key` is the engine's public key, which may be left out where the keys name one peer only. With mode `pull` this
        side reads, with `push` the prefill side writes. An engine that was met before and has not changed stays as it
        is; a restarted one replaces its predecessor. Raises HandshakeError, CardError, DigestError, KeysError,
        PlanIndexError, RegisterError, AddressError or TransportError; then nothing new is connected.
        """
        if mode not in MODES:
            raise HandshakeError(f"mode {mode!r} is unknown: use pull or push")
        began = self._clock()
        limit = began + seconds(timeout, HandshakeError)
        self._check_open()
        intake, push = self._intake, mode == "push"
        met = handshake.meet(
            self.identity, intake.pool.side, self.worker, self.plans, address, limit, self.keys, key,
            lambda plan: self._card(plan) if push else None, self._clock, self.identity.model_digest,
        )  # fmt: skip
        peer = self._adopt(intake, met, push)
        self.counters.observe("handshake_seconds", self._clock() - began)
        return peer

    async def meet(self, address: str, timeout: float, key: bytes | None = None, mode: str = "pull") -> Peer:
        """`connect`, without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.connect, address, timeout, key, mode)

    def submit(
        self, request: Request, timeout: float, peer: str | None = None, checksum: Sample | None = None
    ) -> Transfer:
        """Have a request moved here, to end within `timeout` seconds; prefill holds it already, or will as a whole.

        `peer` is the prefill engine's name, which may be left out where one is connected. With `checksum` both sides
        compare digests before the request is done. Never raises for what the request holds: the transfer that comes
        back has then failed, with a typed error, and nothing has moved.
        """
        return self._begin(request, timeout, peer, checksum, fed=False)

    def open(
        self, request: Request, timeout: float, peer: str | None = None, checksum: Sample | None = None
    ) -> Transfer:
        """`submit` for a request that prefill has not finished: chunks of it move as prefill offers them.

        Its prefill tables may be empty: offers bring them.
        """
        return self._begin(request, timeout, peer, checksum, fed=True)

    def predict(self, request: Request, peer: str | None = None) -> dict[int, int]:
        """Requests that would be posted, by prefill worker. Raises the error that `submit` would give."""
        with self._lock:
            self._check_open()
            return self._intake.predict(request, peer)

    def poll(self) -> bool:
        """Progress the transport, every line and every transfer; whether anything is under way.

        Never blocks. Callbacks of transfers that end are called from here.
        """
        with self._settled():
            return not self._closed and not self._asleep and self._intake.poll(self._clock(), self._idle)

    def running(self) -> int:
        """How many transfers are under way."""
        return len(self._intake.flight.running)

    def rest(self, seconds: float) -> None:
        """Sleep until there may be something to poll for: `seconds`, less while bytes move or where somebody speaks."""
        with self._lock:
            moving = self._intake.gate.in_flight() > 0
            wakers = [line.fileno() for line in self._intake.sessions.lines()]
        rest(wakers, min(seconds, MOVING) if moving else seconds)

    def cancel(self, transfer: Transfer, error: RequestError) -> None:
        """End a running transfer with `error`."""
        with self._settled():
            self._intake.flight.fail(transfer, error)

    def watch(self, transfer: Transfer, callback: Callable[[Transfer], None]) -> bool:
        """Call `callback` when the transfer ends; False where it has ended."""
        with self._lock:
            if not transfer.ended:
                transfer.callbacks.append(callback)
            return not transfer.ended

    def drop(self, peer: str, *, dead: bool = False) -> None:
        """Forget a prefill engine: transfers from it fail. Blocks that it may still write stay in quarantine.

        With `dead` the caller vouches that its processes have ended: what they were asked to write is not waited for.
        """
        with self._settled():
            sessions, orphans = self._intake.sessions, self._intake.flight.orphans
            session = sessions.named(peer)
            sessions.drop(session, lambda who: TransferError(f"{who}: engine {peer!r} was dropped"))
            for member in session.members.values() if dead else ():
                orphans.bury(member.peer)
            self._intake.sweep(self._clock())

    def peers(self) -> tuple[Peer, ...]:
        """The prefill engines that are connected."""
        with self._lock:
            live = sorted(self._intake.sessions.live.items())
            return tuple(Peer(name, session.engine.run, session.plan) for name, session in live)

    def quarantined(self) -> dict[int, tuple[int, ...]]:
        """Decode block ids that may still be written, by arena."""
        with self._lock:
            return self._intake.ledger.quarantined()

    def start(self) -> None:
        """Poll from a thread of its own until `close`. Raises HandleError where it runs already, or is closed."""
        with self._lock:
            self._check_open()
            if self._thread is not None:
                raise HandleError(f"decode worker {self.worker} was started before: start it once")
            self._thread = PollingThread(self.poll, f"kvplan-decode-{self.worker}", self.rest)

    def suspend(self) -> None:
        """Give the memory back: every peer is dropped, every registration ended. Raises HandleError while in use."""
        with self._settled():
            self._check_open()
            if used := self._intake.in_use:
                raise HandleError(f"decode worker {self.worker} cannot be suspended: {used}: wait for them")
            self._intake.leave("was suspended", self._clock())
            self._asleep = True
            self._transport.deregister()

    def resume(self, pool: Pool) -> None:
        """Register memory anew after `suspend`: the same memory, or of another size. Peers must be met again."""
        with self._settled():
            if self._closed or not self._asleep:
                raise HandleError(f"decode worker {self.worker} is not suspended: call suspend first")
            self.generation += 1
            self._furnish(pool)

    def close(self) -> None:
        """Drop every peer and end the transport; running transfers fail. Once more does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
        with self._settled():
            if self._closed:
                return
            self._closed = True
            for forget in self._gauges:
                forget()
            self._intake.leave("was closed", self._clock())
            self._transport.close()
            self._intake.flight.orphans.abandon()
            self._intake.sessions.sweep()

    def _furnish(self, pool: Pool) -> None:
        if pool.worker != self.worker or pool.side.digest != self._side:
            raise RegisterError(f"the pool is not that of decode worker {self.worker} of this side: call views again")
        self._intake = DecodeRegistration(pool, self._transport, self.limits, self.counters)
        self._asleep = False

    def _adopt(self, intake: DecodeRegistration, met: MetEngine, push: bool) -> Peer:
        with self._settled():
            if self._closed or self._asleep or self._intake is not intake:
                met.close()
                raise HandshakeError("the memory of this decode worker changed meanwhile: connect again")
            session = intake.sessions.adopt(met, push, self._clock())
            return Peer(session.name, session.engine.run, session.plan)

    def _begin(self, request: Request, timeout: float, peer: str | None, sample: Sample | None, fed: bool) -> Transfer:
        now = self._clock()
        transfer = Transfer(request, now, now, self, fed, sample)
        with self._settled():
            try:
                self._check_open()
                if not isinstance(sample, Sample | None):
                    raise BadRequestError(f"a checksum is a Sample or None, not of type {type(sample).__name__}")
                transfer.deadline += seconds(timeout, BadRequestError)
            except KvplanError as error:
                self._intake.refuse(transfer, error)
                return transfer
            self._intake.begin(transfer, peer)
        return transfer

    def _card(self, plan: Plan) -> WorkerCard:
        geometry, metadata = self._intake.pool.geometry, self._transport.metadata()
        return describe(self.worker, plan, self.identity.run, self.generation, geometry, metadata)

    def _check_open(self) -> None:
        if self._closed:
            raise HandleError("the decode worker is closed: make another")
        if self._asleep:
            raise HandleError("the decode worker is suspended: resume it")

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """The lock; then, without it, the callbacks, which may ask workers that wait for this one."""
        ended: list[Transfer] = []
        try:
            with self._lock:
                intake = self._intake
                try:
                    yield
                finally:
                    ended = intake.flight.settled()
        finally:
            for transfer in ended:
                call_back(transfer)
