"""Decode inbox: acts on the messages of prefill workers. No message of theirs makes it raise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvplan.plan.errors import BadRequestError
from kvplan.runtime.control import messages as wire
from kvplan.runtime.errors import (
    CardError,
    ChecksumError,
    LeaseError,
    RequestError,
    StalePeerError,
    TransferError,
    WithdrawnError,
)
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.load_table import LoadTable
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart, PrefillPeer
from kvplan.runtime.protocol.phases import TRANSFER, Event, Phase, refused

# Errors that a prefill worker may end a request with, by code. Any other code becomes TransferError.
ENDS: dict[str, type[RequestError]] = {
    error.code: error for error in (BadRequestError, LeaseError, ChecksumError, WithdrawnError)
}
# Errors of requests that prefill does not keep, by reason. Any other reason becomes LeaseError.
LOST: dict[wire.LossReason, type[RequestError]] = {
    wire.LossReason.WITHDRAWN: WithdrawnError,
    wire.LossReason.UNTILED: BadRequestError,
}


class DecodeInbox:
    """The part of the core that acts on messages of prefill workers, and counts them by kind.

    A message about a running load is an event of it. If the load's phase does not take the event, the message is
    counted as stale (too early) or duplicate.
    """

    def __init__(self, loads: LoadTable) -> None:
        self._loads = loads
        self._about: dict[type, Callable[[Load, LoadPart, Any], MessageKind]] = {
            wire.Offer: self._offer,
            wire.AskBuffer: self._ask_buffer,
            wire.ReturnBuffer: self._return_buffer,
            wire.Written: self._written,
            wire.Failed: self._failed,
            wire.Confirmed: self._confirmed,
        }

    def hear(self, engine: KnownEngine, peer: PrefillPeer, message: Any, now: float, broken: bool) -> Iterable[Load]:
        """Act on one message, and count its kind. Returns the loads that it was about."""
        if isinstance(message, wire.ClaimAnswers):
            engine.learn_lease(message.lease, now)
            return self._answers(engine, peer, message)
        if (act := self._about.get(type(message))) is not None:
            found = self._loads.find(engine, peer, message.request)
            self._loads.count(act(*found, message) if found else MessageKind.UNKNOWN)
            return found[:1] if found else ()
        if isinstance(message, CardError):
            self._loads.count(MessageKind.MALFORMED)
        elif isinstance(message, wire.Stopped):
            known = self._loads.quarantine.stopped(message.request, peer, message.lost or broken)
            self._loads.count(MessageKind.STOPPED if known else MessageKind.UNKNOWN)
        else:
            self._loads.out.append(effects.EngineLost(engine, _forgotten(engine, peer, message)))
        return ()

    def _answers(self, engine: KnownEngine, peer: PrefillPeer, message: wire.ClaimAnswers) -> list[Load]:
        about = list[Load]()
        for answer in message.answers:
            found = self._loads.find(engine, peer, answer.request)
            # Answers to claims before this load's first one are about an earlier load.
            if found is not None and message.heartbeat >= found[1].heartbeat:
                self._answer(*found, answer)
                about.append(found[0])
        self._loads.count(MessageKind.ANSWERED)
        return about

    def _answer(self, load: Load, part: LoadPart, answer: wire.ClaimAnswer) -> None:
        if isinstance(answer, wire.Claimed):
            self._loads.claimed(load, part, answer.hold)
        elif isinstance(answer, wire.NotYet):
            self._not_yet(load, part, answer.held)
        elif isinstance(answer, wire.Lost) and part.phase is not Phase.CONFIRMED:
            kind = LOST.get(answer.reason, LeaseError)
            self._loads.fail(load, kind(_said(load, part, "refuses it", answer.text)))

    def _not_yet(self, load: Load, part: LoadPart, held: bool) -> None:
        """Note whether a worker holds a request yet. If it began to hold it, claim it again with its blocks."""
        if part.phase is not Phase.CLAIMING:
            return
        came, part.not_held = part.not_held and held, not held
        if came:
            self._loads.or_fail(part, self._loads.claim, load, part)

    def _offer(self, load: Load, part: LoadPart, offer: wire.Offer) -> MessageKind:
        if offer.hold != part.hold:
            return MessageKind.STALE
        if not TRANSFER.takes(part.phase, Event.OFFERED) or offer.number < part.offers or not load.streamed:
            return MessageKind.DUPLICATE
        if load.engine.push or offer.number > part.offers:
            text = f"offer {offer.number} came where number {part.offers} was due: the line lost some"
            self._loads.broken(part, TransferError(f"request {offer.request}: {text}"))
            return MessageKind.UNEXPECTED
        self._loads.or_fail(part, self._loads.offered, load, part, offer)
        return MessageKind.OFFERED

    def _ask_buffer(self, load: Load, part: LoadPart, asked: wire.AskBuffer) -> MessageKind:
        if not part.writes or part.phase is not Phase.MOVING:
            return MessageKind.UNEXPECTED
        part.begun, part.placed = True, False
        part.pieces.add(asked.number)
        self._loads.out.append(effects.Buffer(part, asked))
        return MessageKind.BUFFER_ASKED

    def _return_buffer(self, load: Load, part: LoadPart, returned: wire.ReturnBuffer) -> MessageKind:
        if returned.number not in part.pieces:
            return MessageKind.DUPLICATE
        self._loads.out.append(effects.Buffer(part, returned))
        return MessageKind.BUFFER_RETURNED

    def _written(self, load: Load, part: LoadPart, written: wire.Written) -> MessageKind:
        if not part.writes or part.hold != written.hold:
            return MessageKind.STALE
        if not TRANSFER.takes(part.phase, Event.WRITTEN):
            return refused(part.phase, Event.WRITTEN)
        if part.pieces:
            text = "all is written, it says, and pieces that it asked buffers for are not"
            self._loads.broken(part, TransferError(f"request {load.request.id}: {text}"))
        else:
            part.wrote(written.size)
            part.on(Event.WRITTEN)
        return MessageKind.WRITTEN

    def _failed(self, load: Load, part: LoadPart, failed: wire.Failed) -> MessageKind:
        if part.phase is Phase.CONFIRMED:
            return MessageKind.DUPLICATE
        if failed.attempt is not None and (kind := _not_to_done(load, part, failed.attempt)) is not None:
            return kind
        # A failure that was sent before this load was claimed is about an earlier load.
        if failed.heartbeat < part.heartbeat:
            return MessageKind.STALE
        self._loads.fail(load, ENDS.get(failed.code, TransferError)(_said(load, part, "says", failed.message)))
        return MessageKind.FAILED

    def _confirmed(self, load: Load, part: LoadPart, confirmed: wire.Confirmed) -> MessageKind:
        if (kind := _not_to_done(load, part, confirmed.attempt)) is not None:
            return kind
        part.note = confirmed.note
        part.on(Event.CONFIRMED)
        return MessageKind.CONFIRMED


def _not_to_done(load: Load, part: LoadPart, attempt: int) -> MessageKind | None:
    """Return the kind of an answer that is not to this attempt's Done; None if it is."""
    if load.attempt != attempt:
        return MessageKind.STALE
    return None if TRANSFER.takes(part.phase, Event.CONFIRMED) else refused(part.phase, Event.CONFIRMED)


def _said(load: Load, part: LoadPart, verb: str, text: str) -> str:
    return f"request {load.request.id}: prefill worker {part.worker} {verb}: {text}"


def _forgotten(engine: KnownEngine, peer: PrefillPeer, message: Any) -> StalePeerError:
    said = getattr(message, "message", type(message).__name__)
    text = f"prefill worker {peer.worker} of {engine.name!r} does not know this worker any more: {said}"
    return StalePeerError(f"{text}: connect again")
