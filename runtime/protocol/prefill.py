"""Prefill core: the protocol of a prefill worker as plain state: its requests, their readers, and what it answers.

It has no socket, transport, thread, clock or callback. Callers report events through its methods and those of its
parts; `take` returns what the worker has to do (effects.py). So simulations, models and fuzzers drive the code that
ships. Copy it with `copy.deepcopy`.
"""

from __future__ import annotations

from collections.abc import Set

from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import KvplanError
from kvplan.plan.types import Interval
from kvplan.runtime.errors import HandleError, HandshakeError, LeaseError
from kvplan.runtime.protocol.announcing import Announcer
from kvplan.runtime.protocol.dones import Confirmations
from kvplan.runtime.protocol.effects import Free, Output
from kvplan.runtime.protocol.leases import Leases, Released
from kvplan.runtime.protocol.prefill_inbox import PrefillInbox
from kvplan.runtime.protocol.prefill_state import PrefillState
from kvplan.runtime.protocol.reader_table import ReaderTable
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.protocol.writes import RequestWrites
from kvplan.runtime.transfer.chunks import Chunk


class PrefillCore:
    """The protocol of prefill worker number `worker`. A promise lasts `lease` seconds, `most` requests may be held.

    Report events to its parts: connections to `readers`, messages to `inbox`, time to `leases`, pushed bytes to
    `writes`, compared checksums to `dones`. Call `at(now)` before any other method.
    """

    def __init__(self, worker: int, lease: float, most: int = 4096, first_hold: int = 0) -> None:
        """Number holds from `first_hold`, which should be random (see `Leases`). Raises BadRequestError."""
        self.leases = Leases(lease, most, first_hold)
        self.state = state = PrefillState(worker, lease, self.leases)
        self.writes = RequestWrites(state)
        self.announcer, self.dones = Announcer(state, most), Confirmations(state, most)
        self.readers = ReaderTable(state, self.writes)
        self.inbox = PrefillInbox(state, self.readers, self.announcer, self.writes, self.dones)

    @property
    def busy(self) -> bool:
        """Whether anything is in progress: a claim, a write or a comparison."""
        claimed = any(session.claims or session.unannounced for session in self.state.sessions.values())
        return claimed or any(True for _ in self.writes) or len(self.dones) > 0

    def at(self, now: float) -> None:
        """Set the time of the next events, in seconds. A time before the current one is ignored."""
        self.state.now = max(self.state.now, now)

    def take(self) -> list[Output]:
        """Return the outputs of all that happened, in order, each once."""
        for one in self.leases.take_ended():
            self.readers.end(one.request, LeaseError(one.text))
            self.state.out.append(Free(Released(one.request, one.reason)))
        return self.state.take()

    def hold(
        self,
        request: str,
        tokens: Interval | None,
        tables: Tables | None,
        *,
        ready: bool,
        note: bytes = b"",
        whole: bool = False,
    ) -> None:
        """Keep a request. With `tokens` it is offered in chunks, otherwise whole: now if `ready`, or once computed.

        A request that is `whole` and has `tokens` is one chunk. Readers get the `note` when the request has arrived.
        Raises HandleError, LimitedError.
        """
        state = self.state
        again, at_once = self.leases.past.get(request) is not None, whole or tokens is None
        if again and at_once and tables is None:
            text = f"request {request} was held or declined before, and decode may still name old blocks"
            raise HandleError(f"{text}: give its tables, or another name")
        hold = self.leases.hold(request, state.now)
        source = SourceRequest(request, hold, tokens, tables, again, note, ready=int(ready and at_once))
        if whole and tokens is not None:
            source.chunks.append(Chunk(tokens, True, None, tables or {}, only=source.names_all))
        state.sources[request] = source
        self.announcer.changed[request] = None

    def offer(self, request: str, chunk: Chunk, note: bytes = b"") -> None:
        """Add a chunk to an opened request, whose lease begins again; `computed` says when it may be read.

        The last chunk may have a note.

        Raises HandleError, BadRequestError.
        """
        if (source := self.state.sources.get(request)) is None:
            raise HandleError(f"request {request} cannot be offered: {self.leases.why_ended(request)}")
        source.offer(chunk, note)
        self.leases.offered(request, self.state.now)

    def withdraw(self, request: str, error: KvplanError) -> None:
        """Give a request up, and notify its readers why. Raises HandleError if it was never held."""
        self.leases.withdraw(request)
        self.readers.end(request, error)

    def decline(self, request: str, error: KvplanError) -> None:
        """Notify readers that a request is not held and never will be, and why. Raises HandleError if it is held."""
        self.leases.decline(request)
        self.readers.end(request, error)

    def refuse_unheld(self, error: KvplanError) -> None:
        """Notify readers that a request that they claim, and that is not held, never will be, and why."""
        sources = self.state.sources.keys()
        unheld = {request for session in self.state.sessions.values() for request in session.claims.keys() - sources}
        for request in sorted(unheld):
            self.readers.end(request, error)

    def drop_engine(self, name: str) -> None:
        """Forget a decode engine. Raises HandshakeError if the engine has no reader."""
        readers = [reader for reader in self.state.sessions if reader.name == name]
        if not readers:
            raise HandshakeError(f"decode engine {name!r} is not connected")
        for reader in readers:
            self.readers.drop(reader, "its engine was dropped")

    def close(self) -> None:
        """Forget all readers and comparisons."""
        for reader in list(self.state.sessions):
            self.readers.drop(reader, "this worker ends")
        self.dones.clear()
        self.announcer.changed.clear()

    def computed(self, request: str, count: int) -> None:
        """Note that the first `count` chunks of a request are computed; 1 for a request that is held as a whole."""
        source = self.state.sources.get(request)
        if source is not None and source.advance(count):
            self.announcer.changed[request] = None

    def step(self, behind: Set[Reader], borrowers: Set[Reader], *, lends: bool) -> None:
        """Do what is due in one step. The lines of the readers that are `behind` accept nothing for now.

        `borrowers` have a buffer of this worker's stage. `lends` says whether buffers asked for now are lent in turn.
        """
        self.state.lends = lends
        self.announcer.announce(behind)
        self.writes.advance()
        self.readers.probe(borrowers)
        self.dones.renew()
        self.readers.drop_silent()
