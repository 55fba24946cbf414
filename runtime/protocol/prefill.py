"""The prefill core: all that a prefill worker knows of requests and of who reads them, and what it does about it.

It has no socket, transport, thread, clock or callback: `step` takes what happened, and returns what is to be done. So
simulation, models and fuzzers drive what ships. Copy it with `copy.deepcopy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.runtime.errors import HandleError, HandshakeError, LeaseError
from kvplan.runtime.protocol import prefill_effects as effects
from kvplan.runtime.protocol.announcing import Announcer
from kvplan.runtime.protocol.comparing import Comparisons
from kvplan.runtime.protocol.effects import Input, Output, Unsent
from kvplan.runtime.protocol.leases import Leases
from kvplan.runtime.protocol.prefill_inbox import PrefillInbox
from kvplan.runtime.protocol.prefill_state import PrefillState
from kvplan.runtime.protocol.reader_table import ReaderTable
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.protocol.write import WritePhase
from kvplan.runtime.protocol.writes import RequestWrites
from kvplan.runtime.transfer.chunks import Chunk


class PrefillCore:
    """What prefill worker number `worker` knows. Claims are good for `lease` seconds, `most` requests may be held."""

    def __init__(self, worker: int, lease: float, most: int = 4096, first_pin: int = 0) -> None:
        """Begin pins' numbers anywhere: at a random `first_pin`. Raises LimitedError."""
        self.state = state = PrefillState(worker, lease, Leases(lease, most, first_pin))
        self.writes = RequestWrites(state)
        self.announcer, self.comparisons = Announcer(state, most), Comparisons(state, most)
        self._readers = ReaderTable(state, self.writes)
        inbox = PrefillInbox(state, self._readers, self.announcer, self.writes, self.comparisons)
        self._acts: dict[type[Input], Callable[[Any], None]] = {
            effects.Hold: self._hold,
            effects.PassBy: self._pass_by,
            effects.OfferChunk: self._offer,
            effects.Withdraw: self._withdraw,
            effects.Taken: self._take,
            effects.DropReaders: self._drop_engine,
            effects.Close: self._close,
            effects.Introduce: self._readers.introduce,
            effects.Met: self._readers.meet,
            effects.ReaderHeard: inbox.hear,
            effects.Stranger: inbox.stranger,
            effects.Unheard: self._readers.unheard,
            effects.RequestRefused: self._readers.refuse,
            effects.Computed: self._compute,
            effects.Expire: self._expire,
            effects.Round: self._round,
            effects.WriteMoved: self.writes.moved,
            effects.WriteBroken: self.writes.broken,
            effects.WriteSettled: self.writes.settled,
            effects.ChecksumsCompared: self.comparisons.compared,
            Unsent: self._readers.unsent,
        }

    @property
    def busy(self) -> bool:
        """Whether anything is under way: a claim, a write or a comparison."""
        claimed = any(session.claims or session.untold for session in self.state.sessions.values())
        return claimed or any(True for _ in self.writes) or len(self.comparisons) > 0

    def held(self) -> int:
        """How many requests are held now. Any thread may ask."""
        return self.state.leases.held()

    def step(self, now: float, inputs: Iterable[Input]) -> list[Output]:
        """Take what happened, in order. Returns what is to be done, in order.

        Raises HandleError if `now` is no time, and nothing else, whatever the inputs are.
        """
        state, acts = self.state, self._acts
        state.now = now
        for one in inputs:
            acts[type(one)](one)
        if state.leases.past.untold:
            self._report_released()
        return state.take()

    def _hold(self, hold: effects.Hold) -> None:
        request, state = hold.request, self.state
        again, whole = request in state.leases.past, hold.whole or hold.tokens is None
        try:
            if again and whole and hold.tables is None:
                text = f"request {request} was held before, and decode may still name its old blocks"
                raise HandleError(f"{text}: give its tables, or another name")
            pin = state.leases.pin(request, state.now)
        except KvplanError as error:
            self._reject(error)
            return
        ready = int(hold.ready and whole)
        source = SourceRequest(request, pin, hold.tokens, hold.tables, again, hold.note, ready=ready)
        if hold.whole and hold.tokens is not None:
            source.chunks.append(Chunk(hold.tokens, True, None, hold.tables or {}, only=source.names_all))
        state.sources[request] = source
        self.announcer.changed[request] = None

    def _pass_by(self, passed: effects.PassBy) -> None:
        try:
            self.state.leases.pass_by(passed.request, self.state.now)
        except KvplanError as error:
            self._reject(error)

    def _offer(self, offer: effects.OfferChunk) -> None:
        try:
            if (source := self.state.sources.get(offer.request)) is None:
                raise HandleError(f"request {offer.request} is not open (any more): open it, and look at released()")
            source.offer(offer.chunk, offer.note)
        except KvplanError as error:
            self._reject(error)

    def _withdraw(self, withdraw: effects.Withdraw) -> None:
        try:
            self.state.leases.withdraw(withdraw.request, self.state.now)
        except KvplanError as error:
            self._reject(error)
            return
        self._readers.end(withdraw.request, withdraw.error)

    def _reject(self, error: KvplanError) -> None:
        self.state.out.append(effects.Rejected(error))

    def _take(self, taken: effects.Taken) -> None:
        self.state.leases.past.reported(taken.requests)

    def _drop_engine(self, drop: effects.DropReaders) -> None:
        readers = [reader for reader in self.state.sessions if reader.name == drop.name]
        of_engine = [write for write in self.writes if write.reader.name == drop.name]
        for reader in readers:
            self._readers.drop(reader, "its engine was dropped")
        if drop.dead:
            self.writes.bury(drop.name)
        if not readers and all(write.phase is WritePhase.BURIED for write in of_engine):
            self._reject(HandshakeError(f"decode engine {drop.name!r} is not connected"))

    def _close(self, _: effects.Close) -> None:
        for reader in list(self.state.sessions):
            self._readers.drop(reader, "this worker ends")
        # Whoever moved these moves nothing any more.
        for write in [write for write in self.writes if write.phase is WritePhase.BURIED]:
            self.writes.settled(effects.WriteSettled(write.key, lost=True))
        self.comparisons.clear()
        self.announcer.changed.clear()

    def _compute(self, computed: effects.Computed) -> None:
        source = self.state.sources.get(computed.request)
        if source is not None and source.advance(computed.count):
            self.announcer.changed[computed.request] = None

    def _expire(self, _: effects.Expire) -> None:
        self.state.leases.expire(self.state.now)

    def _round(self, one: effects.Round) -> None:
        self.state.lends = one.lends
        self.announcer.announce(one.behind)
        self.writes.advance()
        self._readers.probe(one.borrowers)
        self.comparisons.renew()
        self._readers.drop_silent()

    def _report_released(self) -> None:
        """Say which pins are over, also to those who still claim one: before its name can be held again."""
        while released := self.state.leases.past.take():
            for one in released:
                self.state.out.append(effects.Free(one))
                self._readers.end(one.request, LeaseError(f"hold of the request is over: {one.why}"))
