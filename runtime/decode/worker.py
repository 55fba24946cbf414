"""Decode worker: it meets prefill engines, has what requests need moved here, and ends each in one outcome."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial

from kvplan.plan.errors import BadRequestError, KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.plan.types import Plan
from kvplan.runtime import clock as clocks
from kvplan.runtime import owner
from kvplan.runtime.checksum.checksum import Sample
from kvplan.runtime.clock import seconds
from kvplan.runtime.control.card import EngineCard, WorkerCard, describe
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.handshake import BorrowedLine, Caller, MetEngine, meet
from kvplan.runtime.control.identity import Identity, identified
from kvplan.runtime.control.keys import Keys, Plain, server
from kvplan.runtime.control.lines import LinePeer
from kvplan.runtime.decode import spans
from kvplan.runtime.decode.driver import DecodeDriver
from kvplan.runtime.decode.engines import Peer, PrefillEngine, PrefillEngines
from kvplan.runtime.decode.inspection import inspected
from kvplan.runtime.decode.meetings import Meet, Meetings, WaitingRequest, WantedPeer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import (
    DrainingError,
    HandleError,
    HandshakeError,
    LimitedError,
    RegisterError,
    TransferError,
    cause_text,
)
from kvplan.runtime.inspection import Inspection
from kvplan.runtime.memory.device import enter
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs, tracing
from kvplan.runtime.ops.drain import Drain
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.owner import owned
from kvplan.runtime.plans.async_catalog import never_waiting
from kvplan.runtime.plans.catalog import plans_of
from kvplan.runtime.protocol import decode_effects as effects
from kvplan.runtime.protocol.load_table import LoadTable
from kvplan.runtime.staging.asked import asked_reads, lending
from kvplan.runtime.staging.buffers import STAGE_BYTES
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.wakeup import BUSY, MOVING, QUIET
from kvplan.runtime.worker import OwnedWorker

MODES = ("auto", "pull", "push")
IDLE = 600.0
# Seconds after which a meeting that is over has said why.
LAST_WORDS = 0.5


class DecodeWorker(OwnedWorker):
    """One decode worker. `pool` comes from `views`; the transport is this worker's own. Safe to use from threads.

    Call `start` to have a thread of its own do its work. Otherwise call `run_once` when `fileno` is readable, or let
    `wait` of a transfer do it.
    Engines that nothing was asked of for `idle` seconds are dropped. What a plan stages goes through `stage_bytes` of
    memory, taken when such a plan is met; with 0 all goes straight to its place.
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
        stage_bytes: int = STAGE_BYTES,
        clock: Callable[[], float] = clocks.now,
        endpoint: Endpoint | None = None,
    ) -> None:
        """A worker of its own; over an `endpoint` that exists it is made by `beside`."""
        if endpoint is None:
            endpoint = Endpoint(f"decode worker {worker}", worker, pool, transport, keys, stage_bytes, clock)
        super().__init__("decode", endpoint)
        self.plans, self.keys = never_waiting(plans_of(plans)), keys
        self.identity = identified(identity, self.plans, "decode", pool.side.digest)
        self.counters, self.limits = counters or Counters(), limits or Limits()
        self._side = pool.side.digest
        self._idle, self._meetings = idle, Meetings()
        self._ended = deque[Transfer]()
        self._telling = threading.Lock()
        self._batch = _Batch()
        self._join()
        self._gauges = [
            self.counters.gauge("peers", lambda: len(self._engines.live)),
            self.counters.gauge("unready_workers", lambda: bool(self.unready())),
            self.counters.gauge("in_flight_bytes", lambda: self._driver.admission.in_flight()),
            self.counters.gauge("quarantined_bytes", lambda: self._driver.quarantined_bytes),
        ]

    @classmethod
    def beside(
        cls,
        prefill: OwnedWorker,
        identity: Identity | None = None,
        plans: object = None,
        *,
        limits: Limits | None = None,
        counters: Counters | None = None,
        idle: float = IDLE,
    ) -> DecodeWorker:
        """The decode half of an engine's worker that prefills, too: one memory, transport, stage, server and owner.

        Identity and plans are those of `prefill` where they are left out. It is started, drained, suspended, resumed
        and closed with `prefill`, through either. A connection that a peer made to `prefill` is used for both ways.
        Raises RegisterError if the memory is read-only, DigestError, HandleError.
        """
        half = prefill.endpoint
        return cls(
            prefill.plans if plans is None else plans,
            half.worker,
            half.pool,
            half.transport,
            identity=prefill.identity if identity is None else identity,
            keys=half.keys,
            limits=limits,
            counters=counters,
            idle=idle,
            clock=half.clock,
            endpoint=half,
        )

    def connect(self, address: str, timeout: float, key: bytes | None = None, mode: str = "auto") -> Peer:
        """Meet the prefill engine that answers at `address` within `timeout` seconds, and prepare what moves.

        `key` is the engine's public key, which may be left out where the keys name one peer only. With mode `pull` this
        side reads, with `push` the prefill side writes; `auto` pulls where every worker's memory is read without its
        help, and pushes otherwise, over TCP: there a reader's death would end the process it reads. An engine that was
        met before and has not changed stays as it is; a restarted one replaces its predecessor. Raises HandshakeError,
        CardError, DigestError, KeysError, PlanIndexError, RegisterError, AddressError, DrainingError or TransportError;
        then nothing new is connected.
        """
        deadline = self._deadline(timeout, mode)
        self._check_taking()
        return self._connect(address, lambda: deadline, key, mode)

    def connect_soon(
        self, address: str, timeout: float, key: bytes | None = None, mode: str = "auto", name: str | None = None
    ) -> Future[Peer]:
        """`connect` on a thread of its own; several engines may be met at once, each address once.

        With a `name` the engine that answers has to have it, or is not connected. One that is being met already is met
        for as long as the last one says who waits for it.

        The future has the peer, or the error that `connect` would raise. Requests that are asked for meanwhile wait
        for it: those that name the future as their `peer`, or the engine, or, while none is connected, nobody.
        Raises HandshakeError or DrainingError, and LimitedError where too many are being met.
        """
        deadline, who = self._deadline(timeout, mode), (address, key, mode, name)
        if not (isinstance(address, str) and isinstance(key, bytes | None) and isinstance(name, str | None)):
            raise HandshakeError(f"{who!a:.99}: an address and a name are text, a key is bytes")
        connect = partial(self._connect, address, key=key, mode=mode, name=name)
        return self._begin_meeting(who, deadline, connect)

    @owned
    def _begin_meeting(self, who: Hashable, deadline: float, connect: Meet) -> Future[Peer]:
        self._check_taking()
        meeting = self._meetings.begin(who, self._clock(), deadline, connect)
        meeting.add_done_callback(lambda _: self._owner.wake())
        return meeting

    def _deadline(self, timeout: float, mode: str) -> float:
        if mode not in MODES:
            raise HandshakeError(f"mode {mode!r} is unknown: use auto, pull or push")
        return self._clock() + seconds(timeout, HandshakeError)

    def _connect(
        self,
        address: str,
        ends: Callable[[], float],
        key: bytes | None,
        mode: str,
        name: str | None = None,
    ) -> Peer:
        began, pool, push = self._clock(), self._pool, mode == "push"
        enter(pool.geometry)
        met = meet(self._caller(pool, key, push, ends), address)
        if name is not None and met.engine.name != name:
            self._owner.call(met.close)
            raise HandshakeError(
                f"engine {met.engine.name!r} answers at {address}, not {name!r}: ask where that one does"
            )
        if mode == "auto" and (known := self._unchanged(met)) is not None:
            push = known.push
        elif mode == "auto" and (helping := self._helping(met)):
            self._owner.call(met.close)
            logs.event(logs.INFO, "push chosen", engine=met.engine.name, workers=helping, why="no fabric in common")
            push = True
            met = meet(self._caller(pool, key, push, ends), address)
        peer = self._adopt(pool, met, push)
        self.counters.observe("handshake_duration_seconds", self._clock() - began)
        return peer

    def _caller(self, pool: Pool, key: bytes | None, push: bool, ends: Callable[[], float]) -> Caller:
        return Caller(
            identity=self.identity,
            side=pool.side,
            worker=self.worker,
            plans=self.plans,
            keys=self.keys,
            server_key=key,
            card_for=lambda plan: self._card(plan) if push else None,
            left=lambda: ends() - self._clock(),
            answers=self._endpoint.addresses,
            borrow=partial(self._borrow, key),
        )

    def _borrow(self, key: bytes | None, wanted: Callable[[LinePeer], bool]) -> BorrowedLine | None:
        """A line that is in use the other way, to a peer that has the expected public key. Raises KeysError."""
        listener = self._endpoint.server
        if listener is None:
            return None
        public = server(self.keys, key) if isinstance(self.keys, Keys) else b""
        line = self._owner.call(lambda: listener.take(wanted, public))
        return None if line is None else BorrowedLine(line, self._owner)

    def _unchanged(self, met: MetEngine) -> PrefillEngine | None:
        """The engine that was met, if it is connected as it is, whoever moves the bytes."""
        return self._owner.call(lambda: self._as_it_is(met))

    def _as_it_is(self, met: MetEngine) -> PrefillEngine | None:
        known = self._engines.live.get(met.engine.name)
        return known if known is not None and known.same(met, known.push) else None

    def _helping(self, met: MetEngine) -> list[int]:
        """The prefill workers that would be read with their own help: no fabric is theirs and this worker's."""
        read = {read.worker for read in met.plan.reads[self.worker]}
        cards = (card for card, _ in met.workers if card.worker in read)
        return [card.worker for card in cards if self._transport.fabrics.isdisjoint(card.fabrics)]

    async def meet(self, address: str, timeout: float, key: bytes | None = None, mode: str = "auto") -> Peer:
        """`connect`, without blocking the event loop. Raises what it raises, and LimitedError."""
        import asyncio

        meeting = asyncio.wrap_future(self.connect_soon(address, timeout, key, mode))
        try:
            # A little later it says itself why it ends.
            return await asyncio.wait_for(meeting, timeout + LAST_WORDS)
        except TimeoutError:
            raise HandshakeError(f"{address} was not met within {timeout:g} s; it may still be, for others") from None

    def submit(
        self,
        request: Request,
        timeout: float,
        peer: WantedPeer = None,
        checksum: Sample | None = None,
        wait: float | None = None,
    ) -> Transfer:
        """Have a request moved here, to end within `timeout` seconds; prefill holds it already, or will as a whole.

        `peer` is the prefill engine's name, or what `connect_soon` returned, which may be left out where one is
        connected or being met: a request waits until that is done, and fails with its error. With `checksum` both sides
        compare digests before the request is done. `wait` is how many seconds prefill may take to hold it, None for as
        long as there is time. Never raises for what the request holds: the transfer that comes
        back has then failed, with a typed error, and nothing has moved.
        """
        return self._begin(request, timeout, peer, checksum, wait, streamed=False)

    def open(
        self,
        request: Request,
        timeout: float,
        peer: WantedPeer = None,
        checksum: Sample | None = None,
        wait: float | None = None,
    ) -> Transfer:
        """`submit` for a request that prefill has not finished: chunks of it move as prefill offers them.

        Its prefill tables may be empty: offers bring them.
        """
        return self._begin(request, timeout, peer, checksum, wait, streamed=True)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Ask for all that this thread submits or opens within at once: one message to each prefill worker.

        It is asked for when the block ends, or when this thread waits for any of it.
        """
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
        self.ask_batched()
        return super().run_once()

    @owned
    def predict(self, request: Request, peer: str | None = None) -> dict[int, int]:
        """Descriptors that would be posted, by prefill worker. Raises the error that `submit` would give."""
        self._check_open()
        return self._driver.predict(request, self._engines.named(peer))

    def _inspected(self) -> Inspection:
        return inspected(
            self._name,
            self._clock(),
            self._transport,
            self._stage,
            self._driver,
            self._engines,
            self._endpoint.connections(),
        )

    def _poll(self) -> bool:
        if self._closed or self._asleep:
            return False
        enter(self._pool.geometry)
        self._round(self._clock())
        return self.running() > 0

    def _moving(self) -> bool:
        """Whether bytes may be on their way here, or might be by now."""
        return self._driver.moving or self._stage.wanted

    def running(self) -> int:
        """How many transfers are under way."""
        return len(self._loads.running) + len(self._meetings)

    def _look(self) -> tuple[list[int], float]:
        controls = self._engines.controls()
        if self._asleep:
            return [], QUIET
        if self._stage.behind or any(control.pending() for control in controls):
            return [], 0.0
        busy = self.running() or self._driver.in_use
        seconds = BUSY if busy else self._quiet()
        # What is written here over TCP goes on in this worker's own polls.
        wait = MOVING if self._moving() else seconds
        return [one for control in controls for one in control.filenos()], wait

    def _quiet(self) -> float:
        """Seconds until it is time for anything, where nothing is under way."""
        now = self._clock()
        return self._driver.core.until_heartbeat(now, QUIET)

    @owned
    def cancel(self, transfer: Transfer, error: RequestError) -> None:
        """End a running transfer with `error`."""
        self._driver.fail(transfer, error)

    @property
    def driven(self) -> bool:
        """Whether its work is done without anybody asking: by its thread, or by the loop that has its descriptor."""
        return self._owner.driven

    def exit(self, error: BaseException) -> None:
        """A callback raised what ends a program: it is raised when all callbacks were called."""
        self._exits.append(error)

    def wait(self, transfer: Transfer) -> None:
        """Until a transfer has ended, which its deadline bounds."""
        self.ask_batched()
        self._owner.wait(transfer.future, lambda: transfer.ended)

    @owned
    def drop(self, peer: str, *, dead: bool = False) -> None:
        """Forget a prefill engine: transfers from it fail. Blocks that it may still write stay in quarantine.

        With `dead` the caller vouches that its processes have ended: what they were asked to write is not waited for,
        also where it was lost or dropped before. Raises HandshakeError where there is no such engine.
        """
        dropped = [engine for engine in self._engines.retired if engine.name == peer and dead]
        if not dropped or peer in self._engines.live:
            engine = self._engines.named(peer)
            dropped += self._engines.of(engine)
            self._drop(engine, f"engine {peer!r} was dropped")
        if dead:
            self._driver.feed(effects.PeersDead(frozenset(name for engine in dropped for name in engine.peers)))
        self._sweep(self._clock())

    def peers(self) -> tuple[Peer, ...]:
        """The prefill engines that are connected."""
        return tuple(map(_peer, self._engines.known))

    def quarantined(self) -> dict[int, tuple[int, ...]]:
        """Decode block ids that may still be written, by arena."""
        return self._loads.ledger.quarantined()

    def settled(self, transfer: Transfer) -> bool:
        """Whether a transfer has ended and nothing of it can be written any more: its blocks may be used."""
        return transfer.ended and not self._loads.quarantine.keeps(transfer)

    def _is_drained(self) -> bool:
        return self._drain.begun and not self._meetings and not self._driver.in_use

    def start(self) -> None:
        """Have a thread of its own do its work until `close`. Raises HandleError if one does, or after `close`."""
        self._check_open()
        if self._owner.driven:
            raise HandleError(f"{self._name} was started before, or has a loop that drives it: start it once")
        self._owner.start(lambda: enter(self._pool.geometry))

    def _check_unused(self) -> None:
        if self._meetings:
            raise HandleError(f"{len(self._meetings)} requests wait until their prefill engines are met: wait, too")
        if used := self._driver.in_use:
            raise HandleError(f"{self._name} cannot be suspended: {used}: wait for them")

    def close(self) -> None:
        super().close()
        if not self._owner.over:
            self._ending()

    def _end(self) -> None:
        self._loads.quarantine.abandon()
        self._engines.sweep(set())

    def _ending(self) -> None:
        for meeting in self._meetings.close():
            meeting.join(owner.STOP)

    def _uses(self, peer: str) -> bool:
        return peer in self._engines.met

    def _accept(self, pool: Pool) -> None:
        pool.check(self.worker, self._side, self._name)
        if not pool.writable:
            raise RegisterError("the memory of a decode worker is read-only: pass writable arrays")

    def _begin_over(self) -> None:
        """Begin from scratch with this memory: no engine is met, and nothing is under way."""
        pool = self._pool
        self._engines = PrefillEngines(pool, self._transport, self._stage, self._endpoint.needs)
        self._driver = DecodeDriver(
            pool,
            self._transport,
            self.limits,
            self.counters,
            self._stage,
            self._engines,
            self._ended,
            self._clock,
            lambda known, error: self._lost(self._engines.whose(known), error),
        )
        self._drain = Drain(self._name)

    @property
    def _loads(self) -> LoadTable:
        return self._driver.core.loads

    def _round(self, now: float) -> None:
        """What was said, what is posted and what it is time for, for everybody once."""
        if stray := self._endpoint.progress(self._name):
            self.counters.add("messages", stray, kind=MessageKind.STRAY)
        for engine in self._engines:
            self._listen(engine, now)
        self._driver.context.begin()
        self._meetings.step(self._driver, self._engines, now)
        self._driver.follow()
        if self._drain.past_deadline(now):
            late = "did not end before the worker had to drain"
            self._driver.fail_all(lambda who: DrainingError(f"{who} {late}"))
            self._meetings.refuse(self._driver, lambda who: DrainingError(f"{who} {late}"))
        self._evict(now)
        self._driver.tick(now)
        self._engines.sweep(self._loads.quarantine.busy())

    def _listen(self, engine: PrefillEngine, now: float) -> None:
        # Asked first: a worker that has ended said before that which requests are done.
        error = engine.broken()
        for connection in engine.connections.values():
            while messages := connection.control.receive():
                self._driver.hear(engine, connection, messages)
                if error is None:
                    break
        if error is not None:
            self._lost(engine, error)

    def _lost(self, engine: PrefillEngine, error: KvplanError) -> None:
        """An engine cannot be spoken to any more, or does not know this worker."""
        if self._engines.is_served(engine):
            logs.event(logs.WARNING, "peer lost", engine=engine.name, run=engine.card.run, error=error)
            self._drop(engine, str(error))

    def _evict(self, now: float) -> None:
        """Drop the engines that nothing was asked of for a time, or will be, as they have another plan now."""
        busy = {load.engine for load in self._loads.running.values()}
        for engine in [engine for engine in self._engines.replanned if engine.known not in busy]:
            self._drop(engine, "its plan was replaced")
        for engine in list(self._engines.live.values()):
            used = busy.intersection(one.known for one in self._engines.of(engine))
            if now - engine.known.used > self._idle and not used:
                logs.event(logs.INFO, "peer evicted", engine=engine.name, run=engine.card.run, idle_s=self._idle)
                self._drop(engine, "the engine was idle")

    def _drop(self, engine: PrefillEngine, why: str) -> None:
        """Forget an engine: its requests fail but those that it confirmed, what is under way from it is waited for."""
        for dropped in self._engines.of(engine):
            self._driver.feed(effects.DropEngine(dropped.known, why))
            self._engines.retire(dropped)
        if (successor := self._engines.live.get(engine.name)) is not None:
            self._driver.feed(effects.FollowEngine(successor.known))

    def _sweep(self, now: float) -> None:
        """Free what nothing writes any more, and forget who nothing is under way from."""
        self._driver.settle(now)
        self._engines.sweep(self._loads.quarantine.busy())

    def _leave(self, why: str) -> None:
        if self._closed:
            self._meetings.refuse(self._driver, lambda who: TransferError(f"{who}: {self._name} {why}"))
            for forget in self._gauges:
                forget()
        for engine in self._engines.served():
            self._drop(engine, f"{self._name} {why}")
        self._driver.follow()
        self._driver.fail_all(lambda who: TransferError(f"{who}: {self._name} {why}"))
        self._driver.mover.close()
        self._sweep(self._clock())

    @owned
    def _adopt(self, pool: Pool, met: MetEngine, push: bool) -> Peer:
        """An engine that was met: a new one, the one before where nothing has changed, or its successor."""
        if self._closed or self._asleep or self._pool is not pool:
            met.close()
            raise HandshakeError("the memory of this decode worker changed meanwhile: connect again")
        before = self._engines.live.get(met.engine.name)
        if before is not None and before.same(met, push):
            met.close()
            before.known.used = self._clock()
            return _peer(before)
        if before is not None and before.replanned(met, push):
            return _peer(self._replan(before, met))
        if before is not None:
            logs.event(logs.INFO, "peer replaced", **_succession(before.card, met.engine))
            self._drop(before, _replaced(before.card, met.engine))
        engine = self._added(met, push)
        self._driver.feed(effects.EngineMet(engine.known, follow=True))
        return _peer(engine)

    def _added(self, met: MetEngine, push: bool) -> PrefillEngine:
        """An engine whose lines its own decode half may use, too."""
        engine = self._engines.add(met, push, self._clock())
        for card, line in met.workers:
            if self._endpoint.server is not None and isinstance(line, ControlClient):
                peer = LinePeer(engine.name, engine.card.run, card.worker, engine.card.addresses, line.server_key)
                self._endpoint.server.attach(line, peer)
        return engine

    def _replan(self, before: PrefillEngine, met: MetEngine) -> PrefillEngine:
        """The same engine by another plan: what is asked for from now on moves by it, the rest as it began."""
        plans = {"plan_before": before.plan.digest, "plan": met.plan.digest}
        logs.event(logs.INFO, "plan replaced", engine=before.name, run=before.card.run, **plans)
        self._engines.step_aside(before)
        engine = self._added(met, before.push)
        self._driver.feed(effects.EngineMet(engine.known, follow=False))
        return engine

    def _begin(
        self,
        request: Request,
        timeout: float,
        peer: WantedPeer,
        sample: Sample | None,
        wait: float | None,
        *,
        streamed: bool,
    ) -> Transfer:
        now, began = self._clock(), tracing.start()
        transfer = Transfer(request, now, now, streamed, sample, worker=self)
        ask = partial(self._ask_for, transfer, timeout, peer, sample, wait)
        if self._batch.asks is not None:
            self._batch.asks.append(ask)
        else:
            self._owner.ask(ask)
        spans.follow(transfer, self.worker, began)
        return transfer

    def _ask_for(
        self, transfer: Transfer, timeout: float, peer: WantedPeer, sample: Sample | None, wait: float | None
    ) -> None:
        """Begin a request; what is wrong with it ends it."""
        try:
            self._check_taking()
            if not isinstance(sample, Sample | None):
                raise BadRequestError(f"a checksum is a Sample or None, not of type {type(sample).__name__}")
            if not isinstance(peer, str | Future | None):
                raise BadRequestError(f"a peer is a name, or of `connect_soon`, not of type {type(peer).__name__}")
            transfer.deadline += seconds(timeout, BadRequestError)
            transfer.held_by = math.inf if wait is None else transfer.began + seconds(wait, BadRequestError)
            if not transfer.ended:
                self._start(WaitingRequest(transfer, peer, self._meetings.under_way()))
        except KvplanError as error:
            self._driver.refuse(transfer, error)
        except Exception as error:
            logs.failure("request not begun", worker=self._name)
            self._driver.fail(transfer, TransferError(f"the request was not begun: {cause_text(error)}"))

    def _start(self, request: WaitingRequest) -> None:
        """Begin a request, or have it wait until its engine is met."""
        if (engine := request.engine(self._engines)) is not None:
            self._driver.begin(request.transfer, engine)
        elif self.running() < self.limits.requests:
            self._meetings.wait(request)
        else:
            raise LimitedError(f"{self.running()} requests are under way or wait: wait for some")

    @owned
    def _card(self, plan: Plan) -> WorkerCard:
        """The card for who writes here, by which it reaches the stage where the plan has it written through that.

        Raises what opening the stage raises, TransportError, RegisterError; HandleError.
        """
        self._check_open()
        geometry, metadata = self._pool.geometry, self._endpoint.metadata
        card = describe(self.worker, plan, self.identity.run, self.generation, geometry, metadata)
        return lending(card, self._stage, self._transport, asked_reads(plan, self.worker, push=True))

    def _check_taking(self) -> None:
        self._check_open()
        self._drain.check()

    def _say(self) -> None:
        for engine in self._engines:
            engine.say()

    def _after(self) -> None:
        """Callbacks, not within each other: what ends by what one of them asks for is told of when it is over."""
        while self._ended and self._telling.acquire(blocking=False):
            try:
                with suppress(IndexError):
                    ended = self._ended.popleft()
                    ended.future.set_result(None)
            finally:
                self._telling.release()
        self._raise_exits()


class _Batch(threading.local):
    """What this thread has submitted within `together`, None outside of it."""

    asks: list[Callable[[], None]] | None = None


def _peer(engine: PrefillEngine) -> Peer:
    return Peer(engine.name, engine.card.run, engine.plan, "push" if engine.push else "pull")


def _succession(old: EngineCard, new: EngineCard) -> dict[str, object]:
    before = {"run_before": old.run, "generation_before": old.generation}
    return {"engine": new.name, "run": new.run, "generation": new.generation, **before}


def _replaced(old: EngineCard, new: EngineCard) -> str:
    runs = f"run {old.run}, generation {old.generation} by run {new.run}, generation {new.generation}"
    return f"engine {old.name!r} was replaced: {runs}: ask again"
