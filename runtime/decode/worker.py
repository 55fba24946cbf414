"""Decode worker: connects to prefill engines, has requests moved here, and ends each with one outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from kvplan.plan.errors import BadRequestError
from kvplan.plan.request import Request
from kvplan.runtime import clock as clocks
from kvplan.runtime.checksum.checksum import Sample
from kvplan.runtime.clock import seconds
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
# Seconds within which a meeting that has timed out reports why.
LAST_WORDS = 0.5


class DecodeWorker(OwnedWorker):
    """One decode worker. `pool` comes from `views`; the transport is this worker's own. Safe to use from threads.

    Call `start` to have its own thread do its work. Otherwise call `run_once` when `fileno` is readable, or let `wait`
    of a transfer do it. Engines without a request for `idle` seconds are dropped. Pages that a plan stages go through
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
        limits: Limits | None = None,
        counters: Counters | None = None,
        idle: float = IDLE,
        stage_bytes: int = STAGE_BYTES,
        clock: Callable[[], float] = clocks.now,
        endpoint: Endpoint | None = None,
    ) -> None:
        """Make a worker with its own endpoint. Only `beside` passes an `endpoint`."""
        if endpoint is None:
            endpoint = Endpoint(f"decode worker {worker}", worker, pool, transport, keys, stage_bytes, clock)
        self.plans, self.keys = never_waiting(plans_of(plans)), keys
        self.identity = identified(identity, self.plans, "decode", pool.side.digest)
        self.counters, self.limits = counters or Counters(), limits or Limits()
        half = self.half = DecodeHalf(endpoint, pool.side.digest, self.limits, self.counters, idle)
        super().__init__(half)
        self._connector = Connector(half, self.identity, lambda: self.plans)
        half.gauges = [
            self.counters.gauge("peers", lambda: len(half.engines.live)),
            self.counters.gauge("unready_workers", lambda: bool(self.unready())),
            self.counters.gauge("in_flight_bytes", lambda: half.driver.context.admission.in_flight()),
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
        """Return a decode worker that shares memory, transport, stage, server and owner with `prefill`.

        Identity and plans default to those of `prefill`. It is started, drained, suspended, resumed and closed with
        `prefill`, through either. A connection that a peer made to `prefill` is used both ways. Raises RegisterError if
        the memory is read-only, DigestError, HandleError.
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
        """Connect to the prefill engine that answers at `address` within `timeout` seconds, and prepare its links.

        `key` is the engine's public key, which is optional if the keys name only one peer. With mode `pull` this side
        reads, with `push` the prefill side writes. `auto` pulls if every worker's memory is read without its help.
        Otherwise, over TCP, it pushes: there the death of a reader would end the process that it reads. An engine that
        is connected and has not changed stays as it is; a restarted one replaces its predecessor. If it raises, nothing
        new is connected: HandshakeError, CardError, DigestError, KeysError, PlanIndexError, RegisterError,
        AddressError, DrainingError or TransportError.
        """
        return self._connector.connect(address, timeout, key, mode)

    def connect_soon(
        self, address: str, timeout: float, key: bytes | None = None, mode: str = "auto", name: str | None = None
    ) -> Future[Peer]:
        """Call `connect` on another thread. Several engines may be met at once, each address once.

        With a `name`, an engine that answers by another name is not connected. A call for an engine that is being met
        joins that meeting, which lasts until the latest of their timeouts.

        The future has the peer, or the error that `connect` would raise. Requests that are submitted meanwhile wait
        for it if their `peer` is the future, or the engine's name, or None while no engine is connected.
        Raises HandshakeError or DrainingError, and LimitedError if too many are being met.
        """
        return self._connector.connect_soon(address, timeout, key, mode, name)

    async def meet(self, address: str, timeout: float, key: bytes | None = None, mode: str = "auto") -> Peer:
        """Connect without blocking the event loop. Raises what `connect` raises, and LimitedError."""
        import asyncio

        meeting = asyncio.wrap_future(self.connect_soon(address, timeout, key, mode))
        try:
            # Wait a little longer, because the meeting itself reports why it ends.
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
        """Have a request moved here within `timeout` seconds. Prefill holds it as a whole, now or later.

        `peer` is the prefill engine's name, or the future of `connect_soon`. It is optional if only one engine is
        connected or being met. A request waits until its engine is met, and fails with the meeting's error. With
        `checksum` both sides compare digests before the request is done. `wait` is how many seconds prefill may take to
        hold it once it was asked, None for as long as `timeout`. The worker's next step claims the request. An invalid
        request raises nothing here: its transfer fails in that step, with a typed error, and nothing has moved.
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
        """Submit a request that prefill has not finished: its chunks move as prefill offers them.

        Its prefill tables may be empty, because offers bring them. The parameters are those of `submit`.
        """
        return self._begin(request, timeout, peer, checksum, wait, streamed=True)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Claim all requests that this thread submits or opens in the block at once, by one message per prefill worker.

        A worker with its own thread begins when the block ends, or when this thread waits for one of them. Without one,
        each step claims all requests that were submitted before it, with or without `together`.
        """
        with self._owner.together():
            yield

    @owned
    def predict(self, request: Request, peer: str | None = None) -> dict[int, int]:
        """Return how many descriptors would be posted, by prefill worker. Raises the error that `submit` would give."""
        self.half.check_open()
        return self.half.driver.predict(request, self.half.engines.named(peer))

    def running(self) -> int:
        """Return how many transfers are in progress."""
        return self.half.running()

    @owned
    def drop(self, peer: str, *, dead: bool = False) -> None:
        """Forget a prefill engine: transfers from it fail. Blocks that it may still write stay in quarantine.

        With `dead` the caller vouches that its processes have ended: its writes are not waited for, even if the engine
        was lost or dropped before. Raises HandshakeError if no such engine is known.
        """
        self.half.engines.drop_named(peer, dead)

    def peers(self) -> tuple[Peer, ...]:
        """Return the prefill engines that are connected."""
        return tuple(engine.as_peer() for engine in self.half.engines.known)

    def quarantined(self) -> dict[int, tuple[int, ...]]:
        """Return the decode block ids that may still be written, by arena."""
        return self.half.loads.ledger.quarantined()

    def settled(self, transfer: Transfer) -> bool:
        """Return whether a transfer has ended and nothing of it can be written any more: its blocks may be used."""
        return transfer.ended and not self.half.loads.quarantine.keeps(transfer)

    def start(self) -> None:
        """Start a thread that does all work until `close`. Raises HandleError if one runs, or after `close`."""
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
        """Queue a request, and return its transfer. It begins in the owner's next turn."""
        # Nothing is queued in a process where no turn would take it.
        self._owner.check_here()
        half, now, began = self.half, self.half.clock(), tracing.start()
        deadline, hold_within, problem = _times(now, timeout, wait)
        transfer = Transfer(request, deadline, now, streamed, sample, hold_within, worker=half, fail=half.fail)
        half.submitted.append((transfer, peer, problem))
        self._owner.ask(half.start_submitted)
        if began is not None:
            transfer.on_end(lambda ended: _tell_span(ended, self.worker, began))
        return transfer


def _times(now: float, timeout: float, wait: float | None) -> tuple[float, float, BadRequestError | None]:
    """Return a request's deadline, the seconds to wait for its hold, and the error of a bad `timeout` or `wait`."""
    try:
        deadline = now + seconds(timeout, BadRequestError)
        return deadline, math.inf if wait is None else seconds(wait, BadRequestError), None
    except BadRequestError as error:
        return now, math.inf, error


def _tell_span(transfer: Transfer, worker: int, began: tracing.SpanStart) -> None:
    """Report the span of a transfer that has ended. Not to be called within a turn."""
    error = transfer.error
    attributes: dict[str, str | int] = {"worker": worker, "request": str(getattr(transfer.request, "id", ""))}
    if transfer.parts:
        engine = transfer.engine
        attributes |= {"peer": engine.name, "mode": "push" if engine.push else "pull", "bytes": transfer.bytes}
    if error is not None:
        attributes["code"] = error.code
    tracing.tell("kvplan transfer", began, transfer.state.value, "" if error is None else str(error), attributes)
