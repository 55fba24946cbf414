"""Pins: what keeps the blocks of one request, who was promised them until when, and who has read them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import NamedTuple

from kvplan.runtime.control.messages import LossReason
from kvplan.runtime.machine import StateMachine
from kvplan.runtime.ops.metrics import MessageKind

# Pairs of run and plan that read one request.
PAIRS = 8
# The end of the promise to a claimant that has none.
UNPROMISED = -math.inf


class PinPhase(IntEnum):
    """How far a pin is, from the hold to the release of its blocks."""

    # Claims are taken.
    KEPT = auto()
    # Given up: no claims are taken, and promises are kept.
    WITHDRAWN = auto()
    # Lapsed, but this worker's own pushes still read the blocks.
    OVER = auto()
    RELEASED = auto()


class PinEvent(Enum):
    """What happens to a pin."""

    WITHDRAWN = auto()
    # All who read it have said so, or the last promise is over.
    LAPSED = auto()
    # No push of this worker reads the blocks any more.
    FREED = auto()


PIN = StateMachine(
    "a pin",
    {
        (PinPhase.KEPT, PinEvent.WITHDRAWN): PinPhase.WITHDRAWN,
        (PinPhase.KEPT, PinEvent.LAPSED): PinPhase.OVER,
        (PinPhase.WITHDRAWN, PinEvent.LAPSED): PinPhase.OVER,
        (PinPhase.OVER, PinEvent.FREED): PinPhase.RELEASED,
    },
)


@dataclass(frozen=True, slots=True)
class Claimant:
    """A decode worker that reads: which run of which engine, by which plan (its digest)."""

    run: str
    plan: str
    worker: int

    @property
    def pair(self) -> tuple[str, str]:
        return self.run, self.plan

    def is_worker(self, other: Claimant) -> bool:
        """Whether both are one decode worker, by whatever plans: what is written for either lands in its blocks."""
        return (self.run, self.worker) == (other.run, other.worker)


@dataclass(slots=True)
class Pin:
    """A request whose blocks are kept.

    `claims` say until when a claimant was promised the blocks: UNPROMISED once it is done or has left. Runs that are
    forgotten were promised them until `promised`. `reason` is why the pin is over, `timer` when to look at it next.
    `writers` are this side's own writes that read the blocks.
    """

    request: str
    number: int
    until: float
    phase: PinPhase = PinPhase.KEPT
    reason: LossReason = LossReason.EXPIRED
    promised: float = UNPROMISED
    timer: float = math.inf
    writers: int = 0
    claims: dict[Claimant, float] = field(default_factory=dict)
    done: set[Claimant] = field(default_factory=set)
    finished: set[tuple[str, str]] = field(default_factory=set)

    def on(self, event: PinEvent) -> None:
        self.phase = PIN.after(self.phase, event)

    @property
    def over(self) -> bool:
        return self.phase >= PinPhase.OVER

    def due(self) -> float:
        """When it lapses, unless it is claimed again."""
        if not self.finished and self.phase is PinPhase.KEPT:
            return self.until
        return max(self.promised, max(self.claims.values(), default=UNPROMISED))

    def lapse(self) -> None:
        """Nobody is promised anything any more."""
        withdrawn = LossReason.WITHDRAWN if self.phase is PinPhase.WITHDRAWN else LossReason.EXPIRED
        self.reason = LossReason.FINISHED if self.finished else withdrawn
        self.on(PinEvent.LAPSED)

    def count_done(self, claimant: Claimant, contract: frozenset[int]) -> MessageKind:
        """Count a Done: counted or duplicate. A claim after a Done is a new read, whose Done counts."""
        again = claimant in self.done and self.claims[claimant] == UNPROMISED
        self.claims[claimant] = UNPROMISED
        self.done.add(claimant)
        if contract <= {other.worker for other in self.done if other.pair == claimant.pair}:
            self.finished.add(claimant.pair)
        return MessageKind.DUPLICATE if again else MessageKind.COUNTED

    def forget(self, run: str) -> None:
        for claimant in [claimant for claimant in self.claims if claimant.run == run]:
            self.promised = max(self.promised, self.claims.pop(claimant))
            self.done.discard(claimant)
        self.finished = {pair for pair in self.finished if pair[0] != run}

    def runs_in_the_way(self, claimant: Claimant, expired: float) -> list[str]:
        """The runs that leave no room for one more pair of run and plan; pairs whose leases `expired` make room."""
        if len({other.pair for other in self.claims} | {claimant.pair}) <= PAIRS:
            return []
        busy = {other.pair for other, until in self.claims.items() if until > expired} | self.finished
        for other in [other for other in self.claims if other.pair not in busy]:
            del self.claims[other]
            self.done.discard(other)
        return sorted({run for run, _ in busy}) if len(busy) >= PAIRS else []


class PastPin(NamedTuple):
    """A pin that was released."""

    number: int
    reason: LossReason
    finished: frozenset[tuple[str, str]]
