"""Loads: requests on their way into a decode worker, and the prefill engines that they come from, as plain data."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.plan.request import Request, RequestRules
from kvplan.plan.types import Ints, Plan, Runs
from kvplan.runtime.control.messages import CLAIMS_PER_LEASE, LEASES
from kvplan.runtime.errors import CancelledTransferError, DeadlineError
from kvplan.runtime.machine import Facts, TextEnum
from kvplan.runtime.protocol.phases import TRANSFER, Event, Phase
from kvplan.runtime.transfer.demand import NOTHING, Demand, DemandRules, Meter

if TYPE_CHECKING:
    from kvplan.runtime.checksum.checksum import Sample
    from kvplan.runtime.transfer.chunks import ChunkCover

PHASE: Callable[[LoadPart], Phase] = attrgetter("phase")
# Logical decode block ids by group.
WrittenBlocks = Mapping[str, Ints]
# Seconds that a lease is taken for until a peer says how long its leases are.
FIRST_LEASE = 6.0


class TransferState(TextEnum):
    """The state of a transfer: running, or ended in one of four ways."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @classmethod
    def after(cls, error: KvplanError) -> TransferState:
        """How a request ends that has this error."""
        if isinstance(error, CancelledTransferError):
            return cls.CANCELLED
        return cls.EXPIRED if isinstance(error, DeadlineError) else cls.FAILED


@dataclass(frozen=True, slots=True, eq=False)
class PrefillPeer(Facts):
    """One prefill worker. `name` is its name in the transport, `blocks` are its pools by group.

    `shard` is the shard of the tokens that it has. `reads` says that bytes come from it, and `size` how many bytes runs
    by pair are.
    """

    worker: int
    name: str
    shard: int
    reads: bool
    blocks: Mapping[str, int]
    size: Callable[[Mapping[str, Runs]], int]


@dataclass(frozen=True, slots=True, eq=False)
class PairRules(Facts):
    """The rules of a plan for one decode worker: how requests are checked, and what they demand.

    `pools` are logical prefill blocks by group that every prefill worker has.
    """

    plan: Plan
    rules: RequestRules
    demands: DemandRules
    pools: Mapping[str, int]


@dataclass(slots=True, eq=False)
class KnownEngine:
    """A prefill engine that was met. `push` says that it writes; otherwise this side reads.

    `heartbeats` counts the claims that were sent to it; the next ones are due at `due`, by the worker's clock. It was
    last `used` when a request was asked of it.
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
        """The number of the next claim."""
        self.heartbeats += 1
        return self.heartbeats

    def until_heartbeat(self, now: float) -> float:
        """Seconds until it is time to renew the claims."""
        return max(0.0, self.due - now)

    def heartbeat_due(self, now: float) -> bool:
        """Whether it is time to renew the claims; once for each time that comes."""
        if now < self.due:
            return False
        self.due = now + self.lease / CLAIMS_PER_LEASE
        return True

    def learn_lease(self, lease: float, now: float) -> None:
        """How long the peer's leases are, in seconds: claims must come more often."""
        low, high = LEASES
        if low <= lease <= high and lease != self.lease:
            self.lease, self.due = lease, min(self.due, now + lease / CLAIMS_PER_LEASE)


@dataclass(slots=True, eq=False)
class LoadPart:
    """The part of one prefill worker in the load of `request`: its phase, and what may still be written.

    `expects` computes how many bytes come from it, as the plan has them. `pin` is the number that the worker gave, and
    `heartbeat` that of the claim that named its blocks: answers to earlier ones are not to this load. `not_held` says
    that the worker answered that it does not hold the request yet. `cover` and `offers` are the chunks that have come
    and their number, `written` the bytes that the worker says it wrote. `writes` says that it was asked to write and
    has not stopped. `begun` says that something was handed over to be moved, and `placed` that all of that is in its
    place. `pieces` are the buffers that the writer asked for and has not filled, by number. `summing` says that its
    checksums were asked for. `note` is what the worker attached.

    After a failure: `leave_unsent` says that its Leave is still to be sent, and `settled` that what was handed over can
    be written no more. `linger_s` are the seconds for which what was sent may still land, None while more may be sent.
    """

    request: str
    peer: PrefillPeer
    expects: Callable[[], int]
    phase: Phase = Phase.CLAIMING
    pin: int | None = None
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
        """The next phase. Raises PhaseError."""
        self.phase = TRANSFER.after(self.phase, event)

    def stopped(self) -> None:
        """The worker does not write any more, by its own word or because it is lost."""
        self.on(Event.STOPPED)
        self.writes = self.leave_unsent = False
        self.linger_s = None

    def wrote(self, size: int) -> None:
        """The worker says that it has written all, of so many bytes."""
        self._expected = self.written = max(0, size)

    @property
    def worker(self) -> int:
        return self.peer.worker

    @property
    def expected(self) -> int:
        """Bytes that come from the worker. They are counted when somebody first asks: few do."""
        if self._expected is None:
            self._expected = self.expects()
        return self._expected

    @property
    def arrived(self) -> int:
        """Bytes that are there."""
        return self.written or self.meter.moved

    @property
    def progress(self) -> float:
        if Phase.ARRIVED <= self.phase <= Phase.CONFIRMED:
            return 1.0
        return self.arrived / self.expected if self.expected else 0.0


@dataclass(slots=True, eq=False)
class Load:
    """One request and how far it is. `state` is running, done, failed, cancelled or expired; `error` then says why.

    `deadline` is by the worker's clock, and so is `held_by`, until when prefill has to hold it. `written` are the
    decode blocks that it writes, by group. `attempt`, `engine` and `parts`, one for each prefill worker that the plan
    names, are there once it is begun.
    """

    request: Request
    deadline: float
    began: float
    streamed: bool = False
    sample: Sample | None = None
    held_by: float = math.inf
    attempt: int = 0
    state: TransferState = TransferState.RUNNING
    error: KvplanError | None = None
    engine: KnownEngine = field(init=False, repr=False)
    demand: Demand = field(default=NOTHING, repr=False)
    parts: tuple[LoadPart, ...] = field(default=(), repr=False)
    written: WrittenBlocks = field(default_factory=dict, repr=False)

    @property
    def ended(self) -> bool:
        return self.state is not TransferState.RUNNING

    @property
    def phase(self) -> Phase:
        """How far it is with the prefill worker that it is least far with."""
        return min(map(PHASE, self.parts), default=Phase.CONFIRMED)

    @property
    def placed(self) -> bool:
        """Whether all that was read is in its place."""
        return all(part.placed for part in self.parts)

    @property
    def untrusted(self) -> dict[str, tuple[int, ...]]:
        """Decode block ids by group that may hold anything, after any end but done."""
        return dict(self.error.untrusted) if isinstance(self.error, RequestError) else {}

    @property
    def note(self) -> builtins.bytes:
        """The note of the prefill engine, once the request has arrived: that of its first worker with one."""
        return next((part.note for part in self.parts if part.note), b"")

    @property
    def bytes(self) -> int:
        """Bytes that have arrived."""
        return sum(part.arrived for part in self.parts)

    @property
    def total(self) -> int:
        """Bytes that the request comes to on this worker."""
        return sum(part.expected for part in self.parts)

    @property
    def progress(self) -> float:
        """From 0 to 1, which only a request that is done reaches: by bytes, each prefill worker counting equally."""
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
        """Descriptors that the transport counted, None where it does not count."""
        counts = [part.meter.posted for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    def moves(self, part: LoadPart) -> bool:
        """Whether anything comes from a prefill worker."""
        return part.peer.reads and bool(self.demand.runs)

    def in_chunks(self, part: LoadPart) -> bool:
        """Whether this part is taken chunk by chunk.

        A worker that nothing comes from is asked for the whole request: it frees its blocks when it is told that they
        are not needed, which must not be before they are computed.
        """
        return self.moves(part) and (self.streamed or self.engine.push)

    def runs(self, part: LoadPart) -> dict[str, Runs]:
        """All that it takes from a prefill worker, by pair."""
        return self.demand.of(part.peer.shard)
