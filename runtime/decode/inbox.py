"""Decode inbox: what a decode worker makes of the messages of prefill workers. Nothing that they say can raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.runtime.control import messages as wire
from kvplan.runtime.decode.engines import PrefillConnection, PrefillEngine
from kvplan.runtime.decode.phases import TRANSFER, Event, Phase, refused
from kvplan.runtime.decode.transfer import PeerProgress, Transfer
from kvplan.runtime.decode.transfers import TransferTable
from kvplan.runtime.errors import (
    CardError,
    ChecksumError,
    LeaseError,
    RequestError,
    StalePeerError,
    TransferError,
    WithdrawnError,
)
from kvplan.runtime.ops.metrics import Counters, MessageKind

# What a prefill worker may end a request with, beside TransferError.
ENDS: dict[str, type[RequestError]] = {
    error.code: error for error in (BadRequestError, LeaseError, ChecksumError, WithdrawnError)
}
# What a request ends with that prefill does not keep, where that is no LeaseError.
LOST: dict[wire.LossReason, type[RequestError]] = {
    wire.LossReason.WITHDRAWN: WithdrawnError,
    wire.LossReason.UNTILED: BadRequestError,
}


class DecodeInbox:
    """Messages of prefill workers, acted upon and counted.

    `lost` is told of an engine that does not know this worker. A message about a running transfer is an event of it;
    one that has no place in its phase is counted as too early, or as said before.
    """

    def __init__(
        self, transfers: TransferTable, counters: Counters, lost: Callable[[PrefillEngine, KvplanError], None]
    ) -> None:
        self._transfers, self._counters, self._lost = transfers, counters, lost
        self._about: dict[type, Callable[[Transfer, PeerProgress, Any], MessageKind]] = {
            wire.Offer: self._offer,
            wire.AskBuffer: self._ask_buffer,
            wire.ReturnBuffer: self._return_buffer,
            wire.Written: self._written,
            wire.Failed: self._failed,
            wire.Confirmed: self._confirmed,
        }

    def hear(self, engine: PrefillEngine, connection: PrefillConnection, message: Any, now: float) -> None:
        """Act upon one message, and count what it was taken for."""
        if isinstance(message, CardError):
            self._count(MessageKind.MALFORMED)
        elif isinstance(message, wire.ClaimAnswers):
            engine.learn_lease(message.lease, now)
            connection.stage.lends = message.lends
            self._answers(engine, connection, message)
        elif isinstance(message, wire.Lent):
            known = connection.stage.lent(message.request, message.number, message.address)
            self._count(MessageKind.LENT if known else MessageKind.DUPLICATE)
        elif isinstance(message, wire.Stopped):
            known = self._transfers.quarantine.stopped(message.request, connection, message.lost)
            self._count(MessageKind.STOPPED if known else MessageKind.UNKNOWN)
        elif type(message) in self._about:
            found = self._transfers.find(engine, connection, message.request)
            self._count(self._about[type(message)](*found, message) if found else MessageKind.UNKNOWN)
        else:
            said = getattr(message, "message", type(message).__name__)
            text = f"prefill worker {connection.worker} of {engine.name!r} does not know this worker any more: {said}"
            self._lost(engine, StalePeerError(f"{text}: connect again"))

    def _count(self, kind: MessageKind) -> None:
        self._counters.add("messages", kind=kind)

    def _answers(self, engine: PrefillEngine, connection: PrefillConnection, message: wire.ClaimAnswers) -> None:
        for answer in message.answers:
            found = self._transfers.find(engine, connection, answer.request)
            # Answers to claims that were said before this transfer's are to an earlier one.
            if found is not None and message.heartbeat >= found[1].heartbeat:
                self._answer(*found, answer)
        self._count(MessageKind.ANSWERED)

    def _answer(self, transfer: Transfer, part: PeerProgress, answer: wire.ClaimAnswer) -> None:
        if isinstance(answer, wire.Claimed):
            self._transfers.claimed(transfer, part, answer.pin)
        elif isinstance(answer, wire.NotYet):
            self._transfers.not_yet(transfer, part, answer.held)
        elif isinstance(answer, wire.Lost) and part.phase is not Phase.CONFIRMED:
            kind = LOST.get(answer.reason, LeaseError)
            self._transfers.fail(transfer, kind(_said(transfer, part, "does not keep it", answer.text)))

    def _offer(self, transfer: Transfer, part: PeerProgress, offer: wire.Offer) -> MessageKind:
        if offer.pin != part.pin:
            return MessageKind.STALE
        if not TRANSFER.takes(part.phase, Event.OFFERED) or offer.number < part.offers or not transfer.streamed:
            return MessageKind.DUPLICATE
        if transfer.engine.push or offer.number > part.offers:
            text = f"offer {offer.number} came where number {part.offers} was due: the line lost some"
            self._transfers.broken(transfer, part, TransferError(f"request {offer.request}: {text}"))
            return MessageKind.UNEXPECTED
        self._transfers.offered(transfer, part, offer)
        return MessageKind.OFFERED

    def _ask_buffer(self, transfer: Transfer, part: PeerProgress, asked: wire.AskBuffer) -> MessageKind:
        if not part.writes or part.phase is not Phase.MOVING:
            return MessageKind.UNEXPECTED
        self._transfers.asked(transfer, part, asked)
        return MessageKind.BUFFER_ASKED

    def _return_buffer(self, transfer: Transfer, part: PeerProgress, returned: wire.ReturnBuffer) -> MessageKind:
        known = part.unpacks.give_back(returned.number, returned.moved)
        return MessageKind.BUFFER_RETURNED if known else MessageKind.DUPLICATE

    def _written(self, transfer: Transfer, part: PeerProgress, written: wire.Written) -> MessageKind:
        if not part.writes or part.pin != written.pin:
            return MessageKind.STALE
        if not TRANSFER.takes(part.phase, Event.WRITTEN):
            return refused(part.phase, Event.WRITTEN)
        self._transfers.written(transfer, part, written.size)
        return MessageKind.WRITTEN

    def _failed(self, transfer: Transfer, part: PeerProgress, failed: wire.Failed) -> MessageKind:
        if part.phase is Phase.CONFIRMED:
            return MessageKind.DUPLICATE
        if failed.attempt is not None and (kind := _not_to_done(transfer, part, failed.attempt)) is not None:
            return kind
        self._transfers.fail(
            transfer, ENDS.get(failed.code, TransferError)(_said(transfer, part, "says", failed.message))
        )
        return MessageKind.FAILED

    def _confirmed(self, transfer: Transfer, part: PeerProgress, confirmed: wire.Confirmed) -> MessageKind:
        if (kind := _not_to_done(transfer, part, confirmed.attempt)) is not None:
            return kind
        part.on(Event.CONFIRMED)
        return MessageKind.CONFIRMED


def _not_to_done(transfer: Transfer, part: PeerProgress, attempt: int) -> MessageKind | None:
    """What a message is counted as that answers another Done than this attempt's last one; None where it does not."""
    if transfer.attempt != attempt:
        return MessageKind.STALE
    return None if TRANSFER.takes(part.phase, Event.CONFIRMED) else refused(part.phase, Event.CONFIRMED)


def _said(transfer: Transfer, part: PeerProgress, verb: str, text: str) -> str:
    return f"request {transfer.request.id}: prefill worker {part.connection.worker} {verb}: {text}"
