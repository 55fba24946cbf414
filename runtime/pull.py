"""The decode side: connect to a prefill engine, read what requests need, tell the prefill workers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvplan.runtime import request as requests
from kvplan.runtime.demand import Demand, demand, pools
from kvplan.runtime.errors import (
    BadRequestError,
    HandshakeError,
    KvplanError,
    RegisterError,
    RequestError,
    TransportError,
)
from kvplan.runtime.flight import Flight
from kvplan.runtime.gather import Scratch, gather
from kvplan.runtime.handshake import meet, named
from kvplan.runtime.peers import Peers
from kvplan.runtime.plan import Plan
from kvplan.runtime.register import Pool
from kvplan.runtime.request import Request
from kvplan.runtime.transfer import Transfer, seconds
from kvplan.runtime.transport import Transport

LOG = logging.getLogger("kvplan.runtime")


class Puller:
    """One decode worker. `pool` comes from `views`; the transport is this puller's own. Safe to use from threads."""

    def __init__(self, plan: Plan, worker: int, pool: Pool, transport: Transport) -> None:
        if pool.side.digest != plan.decode.digest or pool.worker != worker:
            raise RegisterError(f"the pool is not that of decode worker {worker} of this plan: call views again")
        if not pool.writable:
            raise RegisterError("the memory of a decode worker is read-only: pass writable arrays")
        self.plan, self.worker, self.pool = plan, worker, pool
        self._lock, self._closed, self._scratch = threading.RLock(), False, Scratch()
        self._transport = transport
        transport.register(pool.geometry.regions, pool.geometry.mem_type)
        self._peers = Peers(plan, worker, pool.geometry, transport)
        self._flight = Flight(plan, worker, pool.blocks, transport, self._peers)

    def connect(self, address: str, timeout: float) -> None:
        """Meet the prefill engine that answers at `address` within `timeout` seconds, and prepare its reads.

        A peer that was met before stays as it is where its card is the same; otherwise it is dropped first. Raises
        HandshakeError, CardError, DigestError, RegisterError, AddressError or TransportError; then no new peer is
        connected.
        """
        limit = seconds(timeout, HandshakeError)
        self._check_open()
        met = meet(self.plan, self.worker, address, limit)
        with self._settled():
            self._check_open()
            for card in met.workers:
                if not self._peers.keeps(card):
                    self._flight.drop(card.worker)
            self._peers.add(met)

    def submit(self, request: Request, timeout: float) -> Transfer:
        """Post the reads of a request, to end within `timeout` seconds.

        Never raises for what the request holds: the transfer that comes back has then failed, with a typed error,
        and nothing has moved.
        """
        transfer = Transfer(request, time.monotonic(), self)
        with self._settled():
            try:
                transfer.deadline += seconds(timeout, BadRequestError)
                wanted = self._accept(request)
            except KvplanError as error:
                transfer.state, transfer.error = "failed", error
                return transfer
            self._flight.start(transfer, wanted, self._scratch)
        return transfer

    def predict(self, request: Request) -> dict[int, int]:
        """Requests that would be posted, by prefill worker. Raises the error that `submit` would give."""
        with self._lock:
            wanted, found = self._demand(request), {}
            for worker, source in sorted(self._peers.sources.items()):
                runs = wanted.of(self.plan.prefill.workers[worker].shard)
                found[worker] = gather(source, runs, self._scratch).requests if runs else 0
            return found

    def poll(self) -> None:
        """Progress the transport and every transfer. Callbacks of those that end are called from here."""
        with self._settled():
            if self._closed:
                return
            try:
                self._transport.notifications()
            except TransportError as error:
                LOG.warning("decode_worker=%d progress=%s", self.worker, error)
            self._flight.advance()

    def drop(self, worker: int) -> None:
        """Forget a prefill worker: transfers from it fail.

        Blocks that a read under way may still write stay in quarantine until it ends, or this puller is closed.
        """
        with self._settled():
            self._flight.drop(worker)

    def fail(self, transfer: Transfer, error: RequestError) -> None:
        """End a running transfer with `error`."""
        with self._settled():
            self._flight.fail(transfer, error)

    def watch(self, transfer: Transfer, callback: Callable[[Transfer], None]) -> bool:
        """Call `callback` when the transfer ends; False where it has ended."""
        with self._lock:
            if not transfer.ended:
                transfer.callbacks.append(callback)
                return True
            return False

    def quarantined(self) -> dict[int, tuple[int, ...]]:
        """Decode block ids that a read may still write, by arena."""
        return self._flight.ledger.quarantined()

    def connected(self) -> tuple[int, ...]:
        """The prefill workers that are connected."""
        return tuple(sorted(self._peers.sources))

    def close(self) -> None:
        """Drop every peer and end the transport; running transfers fail."""
        with self._settled():
            if self._closed:
                return
            self._closed = True
            for worker in self.connected():
                self._flight.drop(worker)
            self._flight.stop("the puller was closed")
            self._transport.close()
            self._flight.abandon()

    @contextmanager
    def _settled(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            finally:
                self._flight.settle()

    def _check_open(self) -> None:
        if self._closed:
            raise HandshakeError("the puller is closed: make another")

    def _accept(self, request: Request) -> Demand:
        wanted = self._demand(request)
        if self._flight.has(request.id):
            raise BadRequestError(f"request {request.id} is already under way: use one id per request")
        self._flight.ledger.take(wanted.written)
        return wanted

    def _demand(self, request: Request) -> Demand:
        self._check_open()
        missing = [worker for worker in named(self.plan, self.worker) if worker not in self._peers.sources]
        if missing:
            raise HandshakeError(f"prefill workers {missing} are not connected: call connect")
        try:
            sizes = pools(self.plan, self._peers.sources)
            return demand(self.plan, self.worker, requests.check(self.plan, request, sizes, self.pool.blocks))
        except KvplanError:
            raise
        except Exception as error:
            raise BadRequestError(f"the request cannot be read: {type(error).__name__}: {error}") from error
