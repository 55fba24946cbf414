"""Prefill inbox: acts on the messages of decode workers.

Three of them change leases (leases.py). A claim renews the sender's promise, or ends it if it is refused. Done ends the
promise; with checksums it renews it until they are compared, and ends it only if they are equal. Leave ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import Refusal
from kvplan.runtime.errors import LeaseError, StalePeerError
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.announcing import Announcer
from kvplan.runtime.protocol.dones import Confirmations
from kvplan.runtime.protocol.effects import Buffer, ReaderLeft, Reply
from kvplan.runtime.protocol.prefill_state import PrefillState
from kvplan.runtime.protocol.reader_table import ReaderTable
from kvplan.runtime.protocol.readers import Reader, Session
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.protocol.writes import RequestWrites

# Errors that bad numbers in a message may raise if no check caught them.
UNFORESEEN = (ArithmeticError, LookupError, TypeError, ValueError)


class PrefillInbox:
    """The part of the core that acts on messages. No message of a peer makes it raise."""

    def __init__(
        self,
        state: PrefillState,
        readers: ReaderTable,
        announcer: Announcer,
        writes: RequestWrites,
        dones: Confirmations,
    ) -> None:
        self._state, self._readers = state, readers
        self._announcer, self._writes, self._dones = announcer, writes, dones

    def hear(self, reader: Reader, message: Any, error: KvplanError | None = None) -> None:
        """Act on a message of a reader. A message that raises an unforeseen error ends only its reader's connection.

        `error` says why this worker cannot reach the reader's memory, if the reader asks for a write.
        """
        if (session := self._state.sessions.get(reader)) is None:
            return
        session.last_message = self._state.now
        try:
            kind = self._act(session, message, error)
        except UNFORESEEN as fault:
            self._readers.drop_malformed(reader, unforeseen(message, fault))
            return
        if kind is not None:
            self._state.count(kind)

    def stranger(self, identity: bytes, message: Any) -> None:
        """Ask a sender that has not said hello, or was dropped, to say hello."""
        if isinstance(message, wire.Bye):
            return
        if isinstance(message, wire.Leave):
            self._answer_stranger(identity, message.request)
        text = "this connection has not said hello, was silent for three leases, or was replaced"
        self._state.out.append(Reply(identity, Refusal(StalePeerError.code, text, False, b"")))
        self._state.count(MessageKind.STRANGER)

    def _answer_stranger(self, identity: bytes, request: str) -> None:
        """Answer that nothing of a request is written, if no write of it is left and no reader claims it."""
        stopped = self._writes.stopped(request)
        if stopped is not None and not any(request in one.claims for one in self._state.sessions.values()):
            self._state.out.append(Reply(identity, stopped))

    def _act(self, session: Session, message: Any, error: KvplanError | None) -> MessageKind | None:
        """Act on a message, and return its kind; None if its receiver counts it."""
        match message:
            case wire.Claim():
                self._announcer.claim(session, message)
                return MessageKind.CLAIM
            case wire.WriteRequest():
                return self._write(session, message, error)
            case wire.Done():
                return self._dones.done(session, message)
            case wire.Leave():
                return self._leave(session, message)
            case wire.Bye():
                self._readers.drop(session.reader, "it said goodbye")
                return MessageKind.LEFT
            case wire.AskBuffer() if not self._begun(session, message.request, lambda _: None):
                return MessageKind.UNEXPECTED
            case _:
                self._state.out.append(Buffer(session.reader, message))
                return None

    def _write(self, session: Session, asked: wire.WriteRequest, error: KvplanError | None) -> MessageKind:
        def want(source: SourceRequest) -> None:
            if error is not None:
                raise error
            self._writes.want(session.reader, asked, source)

        return MessageKind.WANTED if self._begun(session, asked.request, want) else MessageKind.UNEXPECTED

    def _begun(self, session: Session, request: str, want: Callable[[SourceRequest], None]) -> bool:
        """Call `want` if the reader claims a request that is held. Returns False, and notifies the reader, if not."""
        source = self._state.sources.get(request)
        try:
            if source is None or request not in session.claims:
                raise LeaseError(f"request {request} is wanted, and not held: claim it first")
            want(source)
        except KvplanError as error:
            self._state.fail(session.reader, request, error)
            return False
        return True

    def _leave(self, session: Session, leave: wire.Leave) -> MessageKind:
        reader, request = session.reader, leave.request
        kind = self._state.leases.leave(request, reader.claimant)
        session.forget(request)
        self._state.out.append(ReaderLeft(reader, request))
        self._dones.leave(reader, request)
        for other in self._readers.earlier(reader) if leave.alone else ():
            self._readers.drop(other, "it speaks through another connection now")
        # A reader that pulls now may have been written to over an earlier connection.
        self._writes.leave(reader, request)
        return kind


def unforeseen(message: Any, error: Exception) -> str:
    """Return the reason to drop a reader whose message raised an unforeseen error."""
    return f"a {type(message).__name__} cannot be acted upon: {type(error).__name__}: {error}"
