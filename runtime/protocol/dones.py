"""Done answers: confirm that a reader has read all, at once or when the checksums in its Done are compared.

An accepted Done ends the reader's promise (leases.py). Until its checksums are compared, the promise is renewed here.
"""

from __future__ import annotations

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.runtime.control import messages as wire
from kvplan.runtime.errors import LeaseError, WithdrawnError
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.effects import Compare
from kvplan.runtime.protocol.holds import LONG_AGO
from kvplan.runtime.protocol.prefill_state import PrefillState
from kvplan.runtime.protocol.readers import Reader, Session


class Confirmations:
    """The Dones of readers whose checksums are being compared, at most `most`, and the answers to all Dones."""

    def __init__(self, state: PrefillState, most: int) -> None:
        self._state, self._most, self._renewed = state, most, LONG_AGO
        self._all: dict[tuple[Reader, str], wire.Done] = {}

    def __len__(self) -> int:
        return len(self._all)

    def done(self, session: Session, done: wire.Done) -> MessageKind:
        """Answer a Done at once, or have its checksums compared first. Returns the kind that it is counted as."""
        key, source = (session.reader, done.request), self._state.sources.get(done.request)
        has_sums = bool(done.sums) or done.sample is not None
        if not (has_sums and self._state.leases.lasts(done.request, done.hold)):
            return self._answer(session.reader, done, None)
        if key in self._all or len(self._all) >= self._most:
            text = "too many checksums are being compared: ask again"
            return self._answer(session.reader, done, BadRequestError(text))
        self._all[key] = done
        self._renew(session.reader, done)
        self._state.out.append(Compare(session.reader, done, {} if source is None else source.named_tables()))
        return MessageKind.DONE

    def compared(self, reader: Reader, request: str, error: KvplanError | None) -> None:
        """Answer the Done whose checksums were compared: `error` is None if they are identical."""
        if (done := self._all.pop((reader, request), None)) is not None:
            self._answer(reader, done, error)

    def leave(self, reader: Reader, request: str) -> None:
        """Forget the Done of a reader that gives the request up."""
        self._all.pop((reader, request), None)

    def clear(self) -> None:
        """Forget all Dones: no comparison will end."""
        self._all.clear()

    def renew(self) -> None:
        """Renew the promises of readers whose checksums are being compared: they stop claiming once they say Done."""
        state = self._state
        if state.now - self._renewed < state.lease / wire.CLAIMS_PER_LEASE:
            return
        self._renewed = state.now
        for (reader, _), done in self._all.items():
            if reader in state.sessions:
                self._renew(reader, done)

    def _renew(self, reader: Reader, done: wire.Done) -> None:
        self._state.leases.renew(done.request, done.hold, reader.claimant, self._state.now)

    def _answer(self, reader: Reader, done: wire.Done, error: KvplanError | None) -> MessageKind:
        state = self._state
        # Once the hold has ended, the blocks may hold another request, so only the lease's error is right.
        if error is not None and state.leases.lasts(done.request, done.hold):
            state.fail(reader, done.request, error, done.attempt)
            return MessageKind.UNLIKE
        if (session := state.sessions.get(reader)) is not None:
            session.forget(done.request)
        if state.leases.withdrawn(done.request, done.hold):
            error = WithdrawnError(f"request {done.request} was withdrawn while it was read")
            state.fail(reader, done.request, error, done.attempt)
            return state.leases.leave(done.request, reader.claimant)
        kind, problem = state.leases.done(done.request, done.hold, reader.claimant, reader.contract)
        if problem:
            state.fail(reader, done.request, LeaseError(problem), done.attempt)
        else:
            state.send(reader, wire.Confirmed(done.request, done.attempt, state.sources[done.request].note))
        return kind
