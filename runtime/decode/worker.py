"""Decode worker: it meets prefill engines, has what requests need moved here, and ends each in one outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from kvplan.plan.request import Request
from kvplan.runtime import clock as clocks
from kvplan.runtime.checksum.checksum import Sample
from kvplan.runtime.control.identity import Identity, identified
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.decode.connecting import Connector
from kvplan.runtime.decode.half import DecodeHalf
from kvplan.runtime.decode.meetings import WantedPeer
from kvplan.runtime.decode.prefill_engine import Peer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import HandleError, HandshakeError
from kvplan.runtime.memory.device import enter
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import tracing
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.plans.catalog import never_waiting, plans_of
from kvplan.runtime.staging.buffers import STAGE_BYTES
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.worker import OwnedWorker, owned

IDLE = 600.0
# Seconds after which a meeting that is over has said why.
LAST_WORDS = 0.5


class DecodeWorker(OwnedWorker):
    """One decode worker. `pool` comes from `views`; the transport is this worker's own. Safe to use from threads.

    Call `start` to have a thread of its own do its work. Otherwise call `run_once` when `fileno` is readable, or let
    `wait` of a transfer do it. Engines that nothing was asked of for `idle` seconds are dropped. What a plan stages
    goes through `stage_bytes` of memory, taken when such a plan is met; with 0 all goes straight to its place.
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
        self.plans, self.keys = never_waiting(plans_of(plans)), keys
        self.identity = identified(identity, self.plans, "decode", pool.side.digest)
        self.counters, self.limits = counters or Counters(), limits or Limits()
        # What its owner carries out.
        half = self.half = DecodeHalf(endpoint, pool.side.digest, self.limits, self.counters, idle)
        super().__init__(half)
        self._connector = Connector(half, self.identity, lambda: self.plans)
        half.gauges = [
            self.counters.gauge("peers", lambda: len(half.engines.live)),
            self.counters.gauge("unready_workers", lambda: bool(self.unready())),
            self.counters.gauge("in_flight_bytes", lambda: half.driver.admission.in_flight()),
            self.counters.gauge("quarantined_bytes", lambda: half.driver.quarantined_bytes),
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
        endpoint = prefill.endpoint
        return cls(
            prefill.plans if plans is None else plans,
            endpoint.worker,
            endpoint.pool,
            endpoint.transport,
            identity=prefill.identity if identity is None else identity,
            keys=endpoint.keys,
            limits=limits,
            counters=counters,
            idle=idle,
            clock=endpoint.clock,
            endpoint=endpoint,
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
        return self._connector.connect(address, timeout, key, mode)

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
        return self._connector.connect_soon(address, timeout, key, mode, name)

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
        connected or being met: a request waits until that is done, and fails with its error. With `checksum` both
        sides compare digests before the request is done. `wait` is how many seconds prefill may take to hold it, None
        for as long as there is time. It is asked for in the worker's next step. Never raises for what the request
        holds: the transfer has failed after that step, with a typed error, and nothing has moved.
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

        A worker with a thread of its own is told when the block ends, or when this thread waits for any of it. Any
        other asks for all that was submitted before a step in that step, with this or without.
        """
        with self._owner.together():
            yield

    @owned
    def predict(self, request: Request, peer: str | None = None) -> dict[int, int]:
        """Descriptors that would be posted, by prefill worker. Raises the error that `submit` would give."""
        self.half.check_open()
        return self.half.driver.predict(request, self.half.engines.named(peer))

    def running(self) -> int:
        """How many transfers are in progress."""
        return self.half.running()

    @owned
    def drop(self, peer: str, *, dead: bool = False) -> None:
        """Forget a prefill engine: transfers from it fail. Blocks that it may still write stay in quarantine.

        With `dead` the caller vouches that its processes have ended: what they were asked to write is not waited for,
        also where it was lost or dropped before. Raises HandshakeError where there is no such engine.
        """
        self.half.engines.drop_named(peer, dead)

    def peers(self) -> tuple[Peer, ...]:
        """The prefill engines that are connected."""
        return tuple(engine.as_peer() for engine in self.half.engines.known)

    def quarantined(self) -> dict[int, tuple[int, ...]]:
        """Decode block ids that may still be written, by arena."""
        return self.half.loads.ledger.quarantined()

    def settled(self, transfer: Transfer) -> bool:
        """Whether a transfer has ended and nothing of it can be written any more: its blocks may be used."""
        return transfer.ended and not self.half.loads.quarantine.keeps(transfer)

    def start(self) -> None:
        """Start a thread that does its work until `close`. Raises HandleError if one does, or after `close`."""
        self.half.check_open()
        if self._owner.driven:
            raise HandleError(f"{self.half.name} was started before, or has a loop that drives it: start it once")
        self._owner.start(lambda: enter(self._endpoint.pool.geometry))

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
        """Queue a request, which begins in the owner's next turn."""
        half, now, began = self.half, self.half.clock(), tracing.start()
        transfer = Transfer(request, now, now, streamed, sample, worker=half, fail=half.fail)
        half.submitted.append((transfer, timeout, peer, wait))
        self._owner.ask(half.start_submitted)
        if began is not None:
            transfer.on_end(lambda ended: _tell_span(ended, self.worker, began))
        return transfer


def _tell_span(transfer: Transfer, worker: int, began: tracing.SpanStart) -> None:
    """Make the span of a transfer that has ended. Not within a turn."""
    error = transfer.error
    attributes: dict[str, str | int] = {"worker": worker, "request": str(getattr(transfer.request, "id", ""))}
    if transfer.parts:
        engine = transfer.engine
        attributes |= {"peer": engine.name, "mode": "push" if engine.push else "pull", "bytes": transfer.bytes}
    if error is not None:
        attributes["code"] = error.code
    tracing.tell("kvplan transfer", began, transfer.state.value, "" if error is None else str(error), attributes)
