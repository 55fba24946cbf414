"""Comparisons: a Done is confirmed at once, or once the checksums that came with it were compared."""

from __future__ import annotations

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.runtime.control.messages import CLAIMS_PER_LEASE, Confirmed, Done, Failed
from kvplan.runtime.errors import LeaseError
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.effects import Compare, Note
from kvplan.runtime.protocol.prefill_state import NEVER, PrefillState
from kvplan.runtime.protocol.readers import Reader, Session


class Comparisons:
    """The requests whose checksums wait to be compared, `most` at once."""

    def __init__(self, state: PrefillState, most: int) -> None:
        self._state, self._most, self._renewed = state, most, NEVER
        self._all: dict[tuple[Reader, str], None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def done(self, session: Session, done: Done) -> MessageKind:
        """Confirm a Done at once, or have its checksums compared."""
        key, source = (session.reader, done.request), self._state.sources.get(done.request)
        if not done.sums and done.sample is None:
            return self._judge(session.reader, done, None)
        if key in self._all or len(self._all) >= self._most:
            text = "too many checksums are being compared: ask again"
            return self._judge(session.reader, done, BadRequestError(text))
        self._all[key] = None
        self._state.out.append(Compare(session.reader, done, {} if source is None else source.named_tables()))
        return MessageKind.DONE

    def compared(self, reader: Reader, done: Done, error: KvplanError | None) -> None:
        """Answer a Done whose checksums were compared: `error` is None if they are identical."""
        if (reader, done.request) in self._all:
            del self._all[reader, done.request]
            self._judge(reader, done, error)

    def leave(self, reader: Reader, request: str) -> None:
        """A reader gives a request up."""
        self._all.pop((reader, request), None)

    def clear(self) -> None:
        """Nothing is compared any more."""
        self._all.clear()

    def renew(self) -> None:
        """Renew the claims of requests whose checksums wait: who said Done claims nothing any more."""
        state = self._state
        if state.now - self._renewed < state.lease / CLAIMS_PER_LEASE:
            return
        self._renewed = state.now
        for reader, request in self._all:
            if reader in state.sessions:
                state.leases.claim(request, reader.claimant, reader.contract, state.now)

    def _judge(self, reader: Reader, done: Done, error: KvplanError | None) -> MessageKind:
        state = self._state
        if error is not None:
            state.send(reader, Failed(done.request, error.code, str(error), done.attempt))
            return MessageKind.UNLIKE
        source = state.sources.get(done.request)
        lasted, event = state.leases.done(done.request, done.pin, reader.claimant, reader.contract, state.now)
        if (session := state.sessions.get(reader)) is not None:
            session.forget(done.request)
        state.out.append(Note(event))
        if lasted and source is not None:
            state.send(reader, Confirmed(done.request, done.attempt, source.note))
        else:
            state.send(reader, Failed(done.request, LeaseError.code, event.text, done.attempt))
        return event.kind
