"""Announcer: answers claims, and notifies readers of how much of a request is computed.

A claim of a held request is promised its blocks for one lease from when the worker read the claim (leases.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from kvplan.runtime.control import messages as wire
from kvplan.runtime.protocol.prefill_state import PrefillState
from kvplan.runtime.protocol.readers import Reader, ReaderClaim, Session
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.transfer.chunks import Chunk

# Requests that one connection may claim, at least.
MOST_CLAIMS = 1 << 14
# Bytes of messages that one reader is sent in a step, and the bytes that a message counts as besides its tables. Only
# the next step knows whether the line accepts more.
ROUND_BYTES, MESSAGE = 256 << 10, 256


class Announcer:
    """The part of the core that answers claims and announces chunks. `changed` are the requests with news, in order."""

    def __init__(self, state: PrefillState, most_claims: int) -> None:
        self._state, self._most = state, max(MOST_CLAIMS, most_claims)
        self.changed: dict[str, None] = {}

    def claim(self, session: Session, claim: wire.Claim) -> None:
        """Answer a claim for each of its requests."""
        session.heartbeat, streamed = claim.heartbeat, set(claim.streamed)
        answers = [self._answer(session, request, request in streamed, claim) for request in claim.requests]
        self._state.answer(session, *answers)

    def announce(self, behind: Set[Reader]) -> None:
        """Notify readers of how much of their requests is computed. Readers that are `behind` are notified later."""
        changed, self.changed = self.changed, {}
        for session in self._state.sessions.values():
            if changed or session.unannounced:
                unannounced, session.unannounced = {**session.unannounced, **changed}, {}
                self._tell_all(session, unannounced, 0 if session.reader in behind else ROUND_BYTES)

    def _answer(self, session: Session, request: str, streamed: bool, said: wire.Claim) -> wire.ClaimAnswer:
        """Return the answer to a claim. A refused claim gets no promise; a claim before the hold is remembered."""
        reader, source = session.reader, self._state.sources.get(request)
        lost = self._state.leases.refuses(request, reader.claimant, reader.contract)
        if lost is not None and lost.reason is not wire.LossReason.UNKNOWN:
            session.forget(request)
            return lost
        claim = self._noted(session, request, streamed, said)
        if claim is None:
            text = f"too many requests are claimed: {request} is one too many"
            return self._refused(session, wire.Lost(request, wire.LossReason.TOO_MANY, text))
        if lost is not None or source is None:
            # The reader names its blocks again after the hold.
            claim.tables, claim.tokens, claim.early = None, None, not streamed
            return wire.NotYet(request, held=False)
        self.changed[request] = None
        if not claim.early and (unfit := self._unfit(session, claim, source)) is not None:
            return unfit
        answer = self._state.leases.promise(request, reader.claimant, claim.claimed_at)
        if claim.early or not (streamed or source.whole):
            return wire.NotYet(request)
        claim.announced = claim.announced or 0
        return answer

    def _noted(self, session: Session, request: str, streamed: bool, said: wire.Claim) -> ReaderClaim | None:
        """Note a reader's claim, with the blocks and tokens that it names. Returns None if it has too many claims."""
        if request not in session.claims and len(session.claims) >= self._most:
            return None
        claim = session.claims.setdefault(request, ReaderClaim(streamed))
        claim.streamed, claim.claimed_at = streamed, self._state.now
        if (tables := said.tables.get(request)) is not None:
            claim.tables, claim.tokens, claim.fits, claim.early = tables, said.tokens.get(request), None, False
        return claim

    def _tell_all(self, session: Session, requests: Mapping[str, None], room: int) -> None:
        for request in requests:
            source, claim = self._state.sources.get(request), session.claims.get(request)
            if source is None or claim is None:
                continue
            if room > 0:
                room -= MESSAGE + self._tell(session, claim, source, room)
            else:
                session.unannounced[request] = None

    def _tell(self, session: Session, claim: ReaderClaim, source: SourceRequest, room: int) -> int:
        """Notify a reader of what is new of a request. Returns the bytes of the offers."""
        if claim.early:
            self._state.answer(session, wire.NotYet(source.request))
            return 0
        if (unfit := self._unfit(session, claim, source)) is not None:
            self._state.answer(session, unfit)
            return 0
        if claim.announced is None and (claim.streamed or source.whole):
            # A claim that came before the hold is promised now, for one lease from when that claim was read.
            reader = session.reader
            answer = self._state.leases.claim(source.request, reader.claimant, reader.contract, claim.claimed_at)
            self._state.answer(session, answer)
            if isinstance(answer, wire.Lost):
                session.forget(source.request)
                return 0
            claim.announced = 0
        streams = claim.streamed and session.reader.writes is None
        return self._offer(session, claim, source, room) if streams else 0

    def _offer(self, session: Session, claim: ReaderClaim, source: SourceRequest, room: int) -> int:
        """Offer the chunks that fit `room` bytes, and leave the others to a later step. Returns the bytes offered."""
        said = 0
        for offer in _offers(source, claim.announced or 0):
            if said >= room:
                session.unannounced[source.request] = None
                break
            claim.announced = offer.number + 1
            self._state.send(session.reader, offer)
            said += MESSAGE + sum(len(table.ids) for table in offer.tables.values())
        return said

    def _unfit(self, session: Session, claim: ReaderClaim, source: SourceRequest) -> wire.Lost | None:
        """Return the refusal of a claim to a whole request, if its blocks differ from decode's or tokens lack."""
        # A fed request has all its blocks only once it is whole. One that is read in chunks is checked by chunk.
        if claim.streamed or not (source.tokens is None or source.whole):
            return None
        misfit = claim.misfit(source, session.reader.plan, self._state.worker)
        return None if misfit is None else self._refused(session, wire.Lost(source.request, *misfit))

    def _refused(self, session: Session, lost: wire.Lost) -> wire.Lost:
        """Forget a refused claim and end its promise. Returns the refusal."""
        session.forget(lost.request)
        self._state.leases.leave(lost.request, session.reader.claimant)
        return lost


def _offers(source: SourceRequest, announced: int) -> Iterator[wire.Offer]:
    """Yield the offers of a request after the first `announced`."""
    name, hold, only = source.request, source.hold, source.names_all
    if source.tokens is None:
        if source.whole and not announced:
            yield wire.Offer(name, hold, 0, None, None, wire.pack(source.tables or {}), True, only)
        return
    for number, chunk in enumerate(source.chunks[announced : source.ready], announced):
        yield wire.Offer(name, hold, number, chunk.tokens, _layers(chunk), wire.pack(chunk.tables), chunk.last, only)


def _layers(chunk: Chunk) -> tuple[int, ...] | None:
    return None if chunk.layers is None else tuple(sorted(chunk.layers))
