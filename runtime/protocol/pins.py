"""Pins: what keeps the blocks of one request, who was promised them until when, and who has read them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import NamedTuple

from kvplan.runtime.control.messages import LossReason
from kvplan.runtime.machine import StateMachine
from kvplan.runtime.ops.metrics import MessageKind

# Runs, each by one plan, that read one request.
MOST_RUNS = 8
# Before all time: what was never done was done then.
NEVER = -math.inf
# The end of the promise to a claimant that has none.
UNPROMISED = NEVER


class PinPhase(IntEnum):
    """How far a pin is, from the hold to the release of its blocks."""

    # Claims are taken.
    HELD = auto()
    # Given up: no claims are taken, and promises stay in force.
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
        (PinPhase.HELD, PinEvent.WITHDRAWN): PinPhase.WITHDRAWN,
        (PinPhase.HELD, PinEvent.LAPSED): PinPhase.OVER,
        (PinPhase.WITHDRAWN, PinEvent.LAPSED): PinPhase.OVER,
        (PinPhase.OVER, PinEvent.FREED): PinPhase.RELEASED,
    },
)


@dataclass(frozen=True, slots=True)
class Claimant:
    """A decode worker that reads: which run of which engine, by which plan (its digest).

    `connection` is the number of the one over which it speaks: a later one has a higher number.
    """

    run: str
    plan: str
    worker: int
    connection: int = field(default=0, compare=False)

    @property
    def run_and_plan(self) -> tuple[str, str]:
        return self.run, self.plan

    def is_worker(self, other: Claimant) -> bool:
        """Whether both are one decode worker, by whatever plans: what is written for either lands in its blocks."""
        return (self.run, self.worker) == (other.run, other.worker)


class Promise(NamedTuple):
    """A claimant's blocks are kept until `end`: UNPROMISED once it is done or has left.

    It is made over a `connection`, by number. Earlier connections of the claimant do not end it.
    """

    end: float
    connection: int


@dataclass(slots=True)
class Pin:
    """A request whose blocks are kept.

    `lease_end` moves with the hold and every claim; each claim is answered with one of the `promises`. `done` are the
    claimants that said Done, `finished` the runs of which all have. `reason` is why the pin is over, `next_look` when
    it may lapse. `writers` counts this side's writes that read the blocks.
    """

    request: str
    number: int
    lease_end: float
    phase: PinPhase = PinPhase.HELD
    reason: LossReason = LossReason.EXPIRED
    next_look: float = math.inf
    writers: int = 0
    promises: dict[Claimant, Promise] = field(default_factory=dict)
    done: set[Claimant] = field(default_factory=set)
    finished: set[tuple[str, str]] = field(default_factory=set)

    def on(self, event: PinEvent) -> None:
        self.phase = PIN.after(self.phase, event)

    @property
    def over(self) -> bool:
        return self.phase >= PinPhase.OVER

    def due(self) -> float:
        """When it lapses, unless it is claimed again."""
        if not self.finished and self.phase is PinPhase.HELD:
            return self.lease_end
        return max((promise.end for promise in self.promises.values()), default=UNPROMISED)

    def promise(self, claimant: Claimant, end: float) -> None:
        """Keep the blocks for a claimant until then."""
        self.lease_end = end
        self.promises[claimant] = Promise(end, claimant.connection)

    def promised(self, claimant: Claimant) -> bool:
        """Whether a claimant has had a promise, over this connection of it or an earlier one."""
        promise = self.promises.get(claimant)
        return promise is not None and promise.connection <= claimant.connection

    def end_promise(self, claimant: Claimant) -> None:
        self.promises[claimant] = Promise(UNPROMISED, claimant.connection)

    def lapse(self) -> None:
        """Nobody is promised anything any more."""
        withdrawn = LossReason.WITHDRAWN if self.phase is PinPhase.WITHDRAWN else LossReason.EXPIRED
        self.reason = LossReason.FINISHED if self.finished else withdrawn
        self.on(PinEvent.LAPSED)

    def count_done(self, claimant: Claimant, contract: frozenset[int]) -> MessageKind:
        """Count a Done: counted or duplicate. A claim after a Done is a new read, whose Done counts."""
        again = claimant in self.done and self.promises[claimant].end == UNPROMISED
        self.end_promise(claimant)
        self.done.add(claimant)
        if contract <= {other.worker for other in self.done if other.run_and_plan == claimant.run_and_plan}:
            self.finished.add(claimant.run_and_plan)
        return MessageKind.DUPLICATE if again else MessageKind.COUNTED

    def runs_in_the_way(self, claimant: Claimant, expired: float) -> list[str]:
        """The runs that leave no room for one more; those whose promises `expired` make room."""
        if len({other.run_and_plan for other in self.promises} | {claimant.run_and_plan}) <= MOST_RUNS:
            return []
        busy = {other.run_and_plan for other, (end, _) in self.promises.items() if end > expired} | self.finished
        for other in [other for other in self.promises if other.run_and_plan not in busy]:
            del self.promises[other]
            self.done.discard(other)
        return sorted({run for run, _ in busy}) if len(busy) >= MOST_RUNS else []


class PastPin(NamedTuple):
    """A pin that was released."""

    number: int
    reason: LossReason
    finished: frozenset[tuple[str, str]]
