"""Reader table: meets, replaces, probes and drops readers, and notifies them when a request ends."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control import messages as wire
from kvplan.runtime.errors import CardError
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.effects import Drop, RequestEnded
from kvplan.runtime.protocol.holds import LONG_AGO
from kvplan.runtime.protocol.prefill_state import PrefillState
from kvplan.runtime.protocol.readers import Reader, Session
from kvplan.runtime.protocol.writes import RequestWrites

# Seconds of silence after which a reader that was lent a buffer is probed, and between two probes.
READER_PROBE_SECONDS = 1.0


class ReaderTable:
    """The part of the core that adds sessions of readers and drops them."""

    def __init__(self, state: PrefillState, writes: RequestWrites) -> None:
        self._state, self._writes, self._probed = state, writes, LONG_AGO

    def introduce(self, identity: bytes, name: str, run: str) -> None:
        """Drop the readers that a hello replaces: those of other runs of its engine, and one over its connection."""
        for reader in list(self._state.sessions):
            if reader.name == name and reader.claimant.run != run:
                self.drop(reader, f"run {run} replaces it")
            elif reader.identity == identity:
                self.drop(reader, "it says hello again")

    def meet(self, reader: Reader) -> None:
        """Begin the session of a reader that was sent this worker's card."""
        self._state.sessions[reader] = Session(reader, self._state.now)

    def earlier(self, reader: Reader) -> list[Reader]:
        """Return the earlier connections of the same decode worker."""
        return [o for o in self._state.sessions if o.claimant.is_before(reader.claimant) and o is not reader]

    def drop(self, reader: Reader, why: str) -> None:
        """Forget a reader. Its promises stay in force."""
        if self._state.sessions.pop(reader, None) is not None:
            self._writes.drop(reader)
            self._state.out.append(Drop(reader, why))

    def drop_malformed(self, reader: Reader, why: str) -> None:
        """Drop a reader whose message cannot be processed."""
        self._state.count(MessageKind.MALFORMED)
        self.drop(reader, why)

    def unsent(self, reader: Reader, message: msgspec.Struct, error: KvplanError) -> None:
        """Drop the reader of a message that could not be sent. An offer that is too large ends only its request."""
        if not isinstance(error, CardError):
            self.drop(reader, str(error))
        elif isinstance(message, wire.Offer | wire.AskBuffer):
            self._state.fail(reader, message.request, error)
        else:
            self.drop(reader, "it asks for more than a message can hold")

    def end(self, request: str, error: KvplanError) -> None:
        """Forget a request that is no longer kept, and notify the readers that still claim it."""
        self._state.sources.pop(request, None)
        self._writes.end(request, error)
        self._state.out.append(RequestEnded(request))
        for session in self._state.sessions.values():
            if request in session.claims:
                session.forget(request)
                self._state.fail(session.reader, request, error)

    def probe(self, borrowers: Iterable[Reader]) -> None:
        """Send a message to silent readers that were lent buffers, because only sending finds a lost connection.

        Others wait for these buffers. Without the probe they would wait until the silent reader is dropped.
        """
        if self._state.now - self._probed < READER_PROBE_SECONDS:
            return
        self._probed = self._state.now
        for session in [self._state.sessions[reader] for reader in borrowers if reader in self._state.sessions]:
            if self._state.now - session.last_message >= READER_PROBE_SECONDS:
                self._state.answer(session)

    def drop_silent(self) -> None:
        """Drop readers that have not spoken for three leases."""
        for session in list(self._state.sessions.values()):
            silent = self._state.now - session.last_message
            if silent > wire.SILENT_LEASES * self._state.lease:
                self.drop(session.reader, f"it was silent for {silent:.0f} s")
