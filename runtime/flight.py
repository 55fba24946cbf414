"""Transfers under way: posting, progress, the end of each, and what failed ones leave behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.runtime.card import Done, seal
from kvplan.runtime.demand import Demand
from kvplan.runtime.errors import (
    DeadlineError,
    HandleError,
    KvplanError,
    PeerLostError,
    RequestError,
    TransferError,
    TransportError,
)
from kvplan.runtime.gather import Load, Scratch, gather
from kvplan.runtime.handshake import named
from kvplan.runtime.peers import Peers
from kvplan.runtime.plan import Plan
from kvplan.runtime.prepare import Source
from kvplan.runtime.quarantine import Ledger, Written
from kvplan.runtime.transfer import Part, Transfer
from kvplan.runtime.transport import Handle, Transport

LOG = logging.getLogger("kvplan.runtime")


@dataclass(slots=True, eq=False)
class Orphan:
    """Blocks of a failed transfer, and the reads (by peer) that may still write them."""

    written: Written
    reads: list[tuple[str, Handle | None]]


class Flight:
    """All transfers of one decode worker. Not safe from threads: Puller has the lock."""

    def __init__(self, plan: Plan, worker: int, blocks: Mapping[str, int], transport: Transport, peers: Peers) -> None:
        self.ledger = Ledger(plan.decode, blocks)
        self._plan, self._worker, self._transport, self._peers = plan, worker, transport, peers
        self._running: dict[str, Transfer] = {}
        self._orphans: list[Orphan] = []
        self._ended: list[Transfer] = []

    def has(self, request: str) -> bool:
        return request in self._running

    def start(self, transfer: Transfer, wanted: Demand, scratch: Scratch) -> None:
        """Post all reads of a transfer whose blocks are taken."""
        transfer.written = wanted.written
        self._running[transfer.request.id] = transfer
        for worker in sorted({read.worker for read in self._plan.reads[self._worker]}):
            if transfer.ended:
                return
            self._post(transfer, self._peers.sources[worker], wanted, scratch)
        if not transfer.ended:
            self._step(transfer)

    def settle(self) -> None:
        """Call back for all that ended. Last in every call from outside: a callback may ask for anything."""
        while self._ended:
            transfer = self._ended.pop(0)
            callbacks, transfer.callbacks = transfer.callbacks, []
            for callback in callbacks:
                try:
                    callback(transfer)
                except Exception:
                    LOG.exception("request=%s callback failed", transfer.request.id)

    def advance(self) -> None:
        """One step of everything."""
        for transfer in list(self._running.values()):
            if not transfer.ended:
                self._step(transfer)
        self._sweep()

    def fail(self, transfer: Transfer, error: RequestError) -> None:
        """End a transfer with `error`; its blocks are free only when nothing can write them any more."""
        if transfer.ended:
            return
        ids = {group: tuple(found.tolist()) for group, found in transfer.written.items()}
        error.untrusted = ids
        transfer.error = error
        reads: list[tuple[str, Handle | None]] = [(p.peer, handle) for p in transfer.parts for handle in p.handles]
        for part in transfer.parts:
            part.handles = []
        self.ledger.quarantine(transfer.written)
        self._orphans.append(Orphan(transfer.written, reads))
        self._sweep()
        self._end(transfer, "failed")

    def drop(self, worker: int) -> None:
        """Forget a peer: transfers that read from it, or must still tell it, fail."""
        if worker not in self._peers.sources:
            return
        self._peers.retire(worker)
        if worker in named(self._plan, self._worker):
            self.stop(f"prefill worker {worker} was dropped: connect, and ask again")
        self._sweep()

    def stop(self, reason: str) -> None:
        """Fail everything that runs."""
        for transfer in list(self._running.values()):
            self.fail(transfer, TransferError(reason))

    def abandon(self) -> None:
        """After the transport is closed: nothing is under way any more."""
        for orphan in self._orphans:
            self.ledger.free(orphan.written)
        self._orphans = []

    def _post(self, transfer: Transfer, source: Source, wanted: Demand, scratch: Scratch) -> None:
        part = Part(source.worker, source.peer, 0, [])
        transfer.parts.append(part)
        runs = wanted.of(self._plan.prefill.workers[source.worker].shard)
        try:
            if runs:
                load = gather(source, runs, scratch)
                part.requests = load.requests
                transfer.requests += load.requests
                self._read(part, source, load)
            part.whole = True
        except Exception as error:
            if _begun_nothing(error):
                part.handles = [handle for handle in part.handles if handle is not None]
            self._broken(transfer, part, error)

    def _read(self, part: Part, source: Source, load: Load) -> None:
        # None stands for a read that the transport may have begun before it raised.
        for bank, local, remote in load.banks:
            part.handles.append(None)
            part.handles[-1] = self._transport.read(source.peer, bank.local, local, bank.remote, remote)
        if len(load.local_spans):
            types = source.decode.mem_type, source.prefill.mem_type
            part.handles.append(None)
            part.handles[-1] = self._transport.read_spans(
                source.peer, load.local_spans, types[0], load.remote_spans, types[1]
            )

    def _step(self, transfer: Transfer) -> None:
        for part in transfer.parts:
            try:
                self._follow(part)
            except Exception as error:
                self._broken(transfer, part, error)
            if transfer.ended:
                return
        if all(part.done for part in transfer.parts):
            self._finish(transfer)
        elif time.monotonic() > transfer.deadline:
            waiting = [part.worker for part in transfer.parts if part.handles]
            text = f"request {transfer.request.id}: reads from prefill workers {waiting} did not end in time"
            self.fail(transfer, DeadlineError(text))

    def _follow(self, part: Part) -> None:
        for handle in list(part.handles):
            if handle is None or not self._poll(part, handle):
                return
            count = handle.requests()
            part.posted = None if count is None or part.posted is None else part.posted + count
            part.handles.remove(handle)
            handle.release()

    def _poll(self, part: Part, handle: Handle) -> bool:
        try:
            return handle.poll()
        except PeerLostError:
            part.handles.remove(handle)
            raise

    def _tell(self, transfer: Transfer, worker: int) -> None:
        """A worker that cannot be told is gone: what was read from it is whole all the same."""
        try:
            peer = self._peers.sources[worker].peer
            self._transport.notify(peer, seal(Done(self._plan.digest, transfer.request.id, self._worker)))
        except Exception as error:
            transfer.unnotified = (*transfer.unnotified, worker)
            LOG.warning("request=%s worker=%d notification=%s", transfer.request.id, worker, error)

    def _finish(self, transfer: Transfer) -> None:
        # Only now: a worker that is told frees its blocks, and a request that fails is asked for again.
        for worker in named(self._plan, self._worker):
            self._tell(transfer, worker)
        self.ledger.free(transfer.written)
        self._end(transfer, "done")

    def _broken(self, transfer: Transfer, part: Part, cause: Exception) -> None:
        error = TransferError(f"request {transfer.request.id}, read from prefill worker {part.worker}: {_said(cause)}")
        error.__cause__ = cause
        self.fail(transfer, error)
        if isinstance(cause, PeerLostError):
            self.drop(part.worker)

    def _end(self, transfer: Transfer, state: str) -> None:
        transfer.state = state
        self._running.pop(transfer.request.id, None)
        self._ended.append(transfer)

    def _sweep(self) -> None:
        """Free the blocks of failed transfers that nothing writes any more, and remove peers that nobody reads from."""
        for orphan in self._orphans:
            orphan.reads = [read for read in orphan.reads if not self._over(*read)]
        for orphan in [one for one in self._orphans if not one.reads]:
            self.ledger.free(orphan.written)
        self._orphans = [one for one in self._orphans if one.reads]
        busy = {peer for orphan in self._orphans for peer, _ in orphan.reads}
        busy |= {part.peer for one in self._running.values() for part in one.parts if part.handles}
        self._peers.remove_retired(busy)

    def _over(self, peer: str, handle: Handle | None) -> bool:
        """Whether a read can write nothing any more: it is done, or its connection is gone.

        A peer that is removed from the transport proves nothing: bytes of NIXL over TCP were seen to arrive later.
        """
        if handle is None:
            return False
        try:
            if not handle.poll():
                return False
        except PeerLostError as error:
            LOG.debug("peer=%s read=%s", peer, error)
        except Exception as error:
            LOG.debug("peer=%s read=%s", peer, error)
            return False
        try:
            handle.release()
        except Exception as error:
            LOG.warning("peer=%s release=%s", peer, error)
        return True


def _begun_nothing(error: Exception) -> bool:
    """Whether the read that raised this cannot be under way: what is not known of may be."""
    if isinstance(error, PeerLostError | HandleError):
        return True
    return isinstance(error, KvplanError) and not isinstance(error, TransportError)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, KvplanError) else f"{type(error).__name__}: {error}"
