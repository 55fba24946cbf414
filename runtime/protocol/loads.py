"""Loads: requests that a decode worker loads, and the prefill engines that they come from, as plain data."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.plan.types import Ints, Runs
from kvplan.runtime.control.messages import CLAIMS_PER_LEASE, FIRST_LEASE, LEASE_RANGE
from kvplan.runtime.errors import CancelledTransferError, DeadlineError
from kvplan.runtime.machine import Facts, TextEnum
from kvplan.runtime.protocol.phases import TRANSFER, Event, Phase
from kvplan.runtime.transfer.demand import Meter, PairRules

if TYPE_CHECKING:
    from kvplan.runtime.checksum.checksum import Sample
    from kvplan.runtime.transfer.chunks import ChunkCover

PHASE: Callable[[LoadPart], Phase] = attrgetter("phase")
# Logical decode block ids by group.
WrittenBlocks = Mapping[str, Ints]


class TransferState(TextEnum):
    """The state of a transfer: running, or ended in one of four ways."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @classmethod
    def after(cls, error: KvplanError) -> TransferState:
        """Return the state of a request that ends with this error."""
        if isinstance(error, CancelledTransferError):
            return cls.CANCELLED
        return cls.TIMED_OUT if isinstance(error, DeadlineError) else cls.FAILED


@dataclass(frozen=True, slots=True, eq=False)
class PrefillPeer(Facts):
    """One prefill worker. `name` is its name in the transport, `blocks` are its pools by group.

    `shard` is its shard of the tokens. `reads` says that bytes come from it. `size` returns the bytes of runs by pair.
    """

    worker: int
    name: str
    shard: int
    reads: bool
    blocks: Mapping[str, int]
    size: Callable[[Mapping[str, Runs]], int]


@dataclass(slots=True, eq=False)
class KnownEngine:
    """A connected prefill engine. `push` says that it writes; otherwise this side reads.

    `heartbeats` counts the claims that were sent to it; the next ones are due at `due`, by the worker's clock. `used`
    is when the last request from it began.
    """

    name: str
    push: bool
    pair: PairRules
    peers: tuple[PrefillPeer, ...]
    due: float
    used: float
    heartbeats: int = 0
    lease: float = FIRST_LEASE

    def next_heartbeat(self) -> int:
        """Return the number of the next claim."""
        self.heartbeats += 1
        return self.heartbeats

    def until_heartbeat(self, now: float) -> float:
        """Return the seconds until the claims have to be renewed."""
        return max(0.0, self.due - now)

    def heartbeat_due(self, now: float) -> bool:
        """Return whether it is time to renew the claims. True once per interval, and sets the next time."""
        if now < self.due:
            return False
        self.due = now + self.lease / CLAIMS_PER_LEASE
        return True

    def learn_lease(self, lease: float, now: float) -> None:
        """Take the length of the peer's leases, in seconds, so that claims come more often than that."""
        low, high = LEASE_RANGE
        if low <= lease <= high and lease != self.lease:
            self.lease, self.due = lease, min(self.due, now + lease / CLAIMS_PER_LEASE)


@dataclass(slots=True, eq=False)
class LoadPart:
    """The part of one prefill worker in the load of `request`: its phase, and what may still be written.

    `runs` are all that come from it by the plan, by pair; none if nothing does. `hold` is the number of the
    worker's hold, `heartbeat` that of the claim that named its blocks: answers to earlier claims are about an earlier
    load. `not_held` says that the worker answered that it does not hold the request yet. `cover` has the tokens of the
    chunks that have come, `offers` their number. `written` are the bytes that the worker says it wrote. `writes` says
    that it was asked to write and has not stopped. `begun` says that runs were handed over to be moved, `placed` that
    all of them are in their places. `pieces` are the numbers of buffers that the writer asked for and has not filled.
    `summing` says that its checksums were asked for. `note` is the worker's note.

    After a failure: `leave_unsent` says that its Leave must be sent again, `settled` that no read can write any more.
    `linger_s` are the seconds for which sent bytes may still land, None while more may be sent.
    """

    request: str
    peer: PrefillPeer
    runs: Mapping[str, Runs]
    phase: Phase = Phase.CLAIMING
    hold: int | None = None
    heartbeat: int = 0
    not_held: bool = False
    cover: ChunkCover | None = None
    offers: int = 0
    written: int = 0
    writes: bool = False
    begun: bool = False
    placed: bool = True
    pieces: set[int] = field(default_factory=set)
    summing: bool = False
    note: bytes = b""
    leave_unsent: bool = False
    settled: bool = False
    linger_s: float | None = None
    meter: Meter = field(default_factory=Meter)
    _expected: int | None = field(init=False, default=None)

    def on(self, event: Event) -> None:
        """Enter the phase after an event. Raises PhaseError."""
        self.phase = TRANSFER.after(self.phase, event)

    def stopped(self) -> None:
        """Note that the worker writes no more, because it said so or is lost."""
        self.on(Event.STOPPED)
        self.writes = self.leave_unsent = False
        self.linger_s = None

    def wrote(self, size: int) -> None:
        """Note that the worker says it has written all, and how many bytes."""
        self._expected = self.written = max(0, size)

    @property
    def worker(self) -> int:
        return self.peer.worker

    @property
    def expected(self) -> int:
        """Bytes that come from the worker. They are counted on first use, because few callers need them."""
        if self._expected is None:
            self._expected = self.peer.size(self.runs) if self.runs else 0
        return self._expected

    @property
    def arrived(self) -> int:
        """Bytes that have arrived from the worker."""
        return self.written or self.meter.moved

    @property
    def progress(self) -> float:
        if Phase.ARRIVED <= self.phase <= Phase.CONFIRMED:
            return 1.0
        return self.arrived / self.expected if self.expected else 0.0


@dataclass(slots=True, eq=False)
class Load:
    """One request and its progress. `state` is running, done, failed, cancelled or timed_out; `error` says why.

    `deadline` is by the worker's clock, as is `hold_deadline`: prefill must hold the request `hold_within` seconds
    after it begins. `written` are the decode blocks that it writes, by group. `attempt`, `engine`, `hold_deadline` and
    `parts` are set when it begins; `parts` has one part for each prefill worker that the plan names.
    """

    request: Request
    deadline: float
    began: float
    streamed: bool = False
    sample: Sample | None = None
    hold_within: float = math.inf
    attempt: int = 0
    state: TransferState = TransferState.RUNNING
    error: KvplanError | None = None
    engine: KnownEngine = field(init=False, repr=False)
    hold_deadline: float = field(init=False, default=math.inf)
    parts: tuple[LoadPart, ...] = field(default=(), repr=False)
    written: WrittenBlocks = field(default_factory=dict, repr=False)

    @property
    def ended(self) -> bool:
        return self.state is not TransferState.RUNNING

    @property
    def phase(self) -> Phase:
        """The phase of the prefill worker that is least far."""
        return min(map(PHASE, self.parts), default=Phase.CONFIRMED)

    @property
    def placed(self) -> bool:
        """Whether all bytes are in their places."""
        return all(part.placed for part in self.parts)

    @property
    def untrusted(self) -> dict[str, tuple[int, ...]]:
        """Decode block ids by group that may hold anything, because the request failed."""
        return dict(self.error.untrusted) if isinstance(self.error, RequestError) else {}

    @property
    def note(self) -> builtins.bytes:
        """The note of the first prefill worker that attached one, once the request has arrived."""
        return next((part.note for part in self.parts if part.note), b"")

    @property
    def bytes(self) -> int:
        """Bytes that have arrived."""
        return sum(part.arrived for part in self.parts)

    @property
    def total(self) -> int:
        """Bytes that the request has on this worker."""
        return sum(part.expected for part in self.parts)

    @property
    def progress(self) -> float:
        """Progress from 0 to 1 by bytes, each prefill worker counting equally. Only a request that is done has 1."""
        if self.state is TransferState.DONE:
            return 1.0
        shares = [part.progress for part in self.parts]
        return min(0.999, sum(shares) / len(shares)) if shares else 0.0

    @property
    def descriptors(self) -> int:
        """Descriptors that the transport was predicted to post so far."""
        return sum(part.meter.descriptors for part in self.parts)

    @property
    def posted(self) -> int | None:
        """Descriptors that the transport counted, None if it does not count them."""
        counts = [part.meter.posted for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    def in_chunks(self, part: LoadPart) -> bool:
        """Return whether this part is taken chunk by chunk.

        A worker that sends no bytes is asked for the whole request: it frees its blocks on Done, which must not come
        before they are computed.
        """
        return bool(part.runs) and (self.streamed or self.engine.push)
