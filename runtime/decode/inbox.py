"""What a decode worker does with what prefill workers say. Nothing that they say can raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.messages import Confirmed, Failed, Grant, Held, Offer, Spent, Stopped, Wrote
from kvplan.runtime.control.wire import unpack
from kvplan.runtime.decode.parts import PeerProgress
from kvplan.runtime.decode.peer import PrefillConnection, PrefillEngine
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.decode.transfers import TransferTable
from kvplan.runtime.errors import CardError, ChecksumError, LeaseError, StalePeerError, TransferError, WithdrawnError
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.transfer import chunks
from kvplan.runtime.transfer.chunks import Chunk, ChunkCover

Found = tuple[Transfer, PeerProgress]
ENDS = {error.code: error for error in (LeaseError, ChecksumError, WithdrawnError)}


class DecodeInbox:
    """Messages of prefill workers, acted upon. `refused` is told of a peer that does not know this worker."""

    def __init__(
        self,
        flight: TransferTable,
        worker: int,
        counters: Counters,
        refused: Callable[[PrefillEngine, KvplanError], None],
    ) -> None:
        self._flight, self._worker, self._counters, self._refused = flight, worker, counters, refused
        self._acts: dict[type, Callable[[PrefillEngine, PrefillConnection, Any, float], str]] = {
            Held: self._held,
            Grant: self._grant,
            Offer: self._offer,
            Wrote: self._wrote,
            Failed: self._failed,
            Confirmed: self._kept,
            Stopped: self._stopped,
        }

    def hear(self, session: PrefillEngine, member: PrefillConnection, message: object, now: float) -> None:
        """Act upon one message; count what sort it was."""
        if isinstance(message, CardError):
            self._counters.add("notifications", kind="malformed")
        elif type(message) in self._acts:
            kind = self._acts[type(message)](session, member, message, now)
            self._counters.add("notifications", kind=kind)
        else:
            said = getattr(message, "message", type(message).__name__)
            text = f"prefill worker {member.worker} of {session.name!r} does not know this worker any more: {said}"
            self._refused(session, StalePeerError(f"{text}: connect again"))

    def _find(self, session: PrefillEngine, member: PrefillConnection, request: str) -> Found | None:
        transfer, mine = self._flight.running.get(request, (None, None))
        if transfer is None or mine is not session:
            return None
        return transfer, next(part for part in transfer.parts if part.member is member)

    def _held(self, session: PrefillEngine, member: PrefillConnection, said: Held, now: float) -> str:
        session.learn(said.lease, now)
        for request, hold in said.held:
            found = self._find(session, member, request)
            if found and said.heartbeat >= found[1].heartbeat:
                self._flight.held(found[0], session, found[1], hold)
        for request, why in said.lost:
            found = self._find(session, member, request)
            if found and found[1].phase != "kept" and said.heartbeat >= found[1].heartbeat:
                text = f"request {request}: prefill worker {member.worker} does not hold it: {why}"
                kind = WithdrawnError if why.startswith("withdrawn") else LeaseError
                self._flight.fail(found[0], kind(text))
        return "held"

    def _grant(self, session: PrefillEngine, member: PrefillConnection, said: Grant, now: float) -> str:
        found = self._find(session, member, said.request)
        mover = found[1].mover if found else None
        if mover is None:
            member.line.send(Spent(said.request, said.number))
            return "unknown"
        return "granted" if mover.granted(said.number) else "duplicate"

    def _offer(self, session: PrefillEngine, member: PrefillConnection, said: Offer, now: float) -> str:
        found = self._find(session, member, said.request)
        if found is None:
            return "unknown"
        transfer, part = found
        if said.hold != part.hold or said.number < part.offers or part.phase != "moving" or not transfer.fed:
            return "duplicate" if said.hold == part.hold else "stale"
        if session.push or said.number > part.offers:
            text = f"offer {said.number} came where number {part.offers} was due: the line lost some"
            self._flight.broken(transfer, part, TransferError(f"request {said.request}: {text}"))
            return "unexpected"
        part.offers += 1
        try:
            self._feed(session, transfer, part, said)
        except Exception as error:
            self._flight.broken(transfer, part, error)
        return "offered"

    def _feed(self, session: PrefillEngine, transfer: Transfer, part: PeerProgress, said: Offer) -> None:
        layers = None if said.layers is None else frozenset(said.layers)
        one = Chunk(said.tokens or transfer.request.tokens, said.last, layers, unpack(said.tables))
        part.cover = part.cover or ChunkCover(session.plan, transfer.request, part.member.worker)
        chunk = chunks.received(session.plan, transfer.request, one, part.member.blocks, part.cover)
        if chunk is not None and part.member.reads:
            mover = self._flight.mover(transfer, session, part)
            demand = chunks.part(session.plan, self._worker, transfer.request, chunk, part.member.worker)
            runs = demand.of(session.plan.prefill.workers[part.member.worker].shard)
            if runs:
                mover.feed(part.member.links.of(chunk.layers), runs)
            mover.fed = chunk.last

    def _wrote(self, session: PrefillEngine, member: PrefillConnection, said: Wrote, now: float) -> str:
        found = self._find(session, member, said.request)
        if found is None:
            return "unknown"
        part = found[1]
        if not part.wanted or part.hold != said.hold:
            return "stale"
        if part.phase != "moving":
            return "duplicate"
        part.expected, part.phase = max(0, said.size), "moved"
        return "written"

    def _failed(self, session: PrefillEngine, member: PrefillConnection, said: Failed, now: float) -> str:
        found = self._find(session, member, said.request)
        if found is None:
            return "unknown"
        text = f"request {said.request}: prefill worker {member.worker} says: {said.message}"
        self._flight.fail(found[0], ENDS.get(said.code, TransferError)(text))
        return "failed"

    def _kept(self, session: PrefillEngine, member: PrefillConnection, said: Confirmed, now: float) -> str:
        found = self._find(session, member, said.request)
        if found is None:
            return "unknown"
        transfer, part = found
        if transfer.attempt != said.attempt or not part.past("told"):
            return "stale"
        if part.phase == "kept":
            return "duplicate"
        if said.problem:
            text = f"request {said.request}: prefill worker {member.worker} says: {said.problem}"
            self._flight.fail(transfer, ENDS.get(said.code, LeaseError)(text))
            return "failed"
        part.phase = "kept"
        return "kept"

    def _stopped(self, session: PrefillEngine, member: PrefillConnection, said: Stopped, now: float) -> str:
        return "stopped" if self._flight.orphans.stopped(said.request, member) else "unknown"
