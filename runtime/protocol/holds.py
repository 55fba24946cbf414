"""Holds: requests whose blocks are kept, each with its promises to decode workers, and when it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from kvplan.runtime.control.messages import LossReason
from kvplan.runtime.ops.metrics import MessageKind

# Engine runs, each with one plan, that may read one request.
MOST_RUNS = 8
# Before all time: the end of a promise that its claimant ended, and of a hold that ends at once.
LONG_AGO = -math.inf


@dataclass(frozen=True, slots=True)
class Claimant:
    """A decode worker that claims requests: its engine's run, and the digest of the plan by which it reads.

    `connection` is the number of its connection: a later connection has a higher number.
    """

    run: str
    plan: str
    worker: int
    connection: int = field(default=0, compare=False)

    @property
    def run_and_plan(self) -> tuple[str, str]:
        return self.run, self.plan

    def is_before(self, other: Claimant) -> bool:
        """Return whether both are one decode worker, by any plans, and the other's connection is not earlier.

        Writes for either land in the same blocks.
        """
        return (self.run, self.worker) == (other.run, other.worker) and self.connection <= other.connection


class Promise(NamedTuple):
    """A promise to keep the blocks for a claimant until `end`, which is LONG_AGO once it has said Done or Leave.

    `connection` is that of the claim: no message over an earlier connection ends the promise.
    """

    end: float
    connection: int


@dataclass(slots=True)
class Hold:
    """A request whose blocks are kept.

    `lease_end` is one lease after the hold, or the last offer, claim or comparison of checksums. `done` are the
    claimants that said Done, `finished_runs` the runs whose claimants all did. A hold that the engine has `withdrawn`
    accepts no claims, and its promises stay in force. `next_look` is the time of the next check whether it ends.
    """

    request: str
    number: int
    lease_end: float
    withdrawn: bool = False
    next_look: float = math.inf
    promises: dict[Claimant, Promise] = field(default_factory=dict)
    done: set[Claimant] = field(default_factory=set)
    finished_runs: set[tuple[str, str]] = field(default_factory=set)

    @property
    def reason(self) -> LossReason:
        """The reason why the hold ends when it is due."""
        withdrawn = LossReason.WITHDRAWN if self.withdrawn else LossReason.EXPIRED
        return LossReason.FINISHED if self.finished_runs else withdrawn

    def due(self) -> float:
        """Return when it ends: at `lease_end`, or if it is withdrawn or a run has finished, with its last promise."""
        if not self.finished_runs and not self.withdrawn:
            return self.lease_end
        return max((promise.end for promise in self.promises.values()), default=LONG_AGO)

    def extend(self, end: float) -> None:
        """Let the lease last until `end`, unless it lasts longer."""
        self.lease_end = max(self.lease_end, end)

    def promise(self, claimant: Claimant, end: float) -> None:
        """Promise a claimant the blocks until `end`."""
        self.extend(end)
        self.promises[claimant] = Promise(end, claimant.connection)

    def has_claimed(self, claimant: Claimant) -> bool:
        """Return whether a claimant has claimed it at any time, over this connection or an earlier one."""
        promise = self.promises.get(claimant)
        return promise is not None and promise.connection <= claimant.connection

    def end_promise(self, claimant: Claimant) -> None:
        self.promises[claimant] = Promise(LONG_AGO, claimant.connection)

    def count_done(self, claimant: Claimant, contract: frozenset[int]) -> MessageKind:
        """Count a Done, and return counted or duplicate. A claim after a Done begins a new read, whose Done counts."""
        again = claimant in self.done and self.promises[claimant].end == LONG_AGO
        self.end_promise(claimant)
        self.done.add(claimant)
        if contract <= {other.worker for other in self.done if other.run_and_plan == claimant.run_and_plan}:
            self.finished_runs.add(claimant.run_and_plan)
        return MessageKind.DUPLICATE if again else MessageKind.COUNTED

    def runs_in_the_way(self, claimant: Claimant, heard_until: float) -> list[str]:
        """Return the runs that leave no room: they have read, or have promises that end after `heard_until`."""
        if self._has_room(claimant):
            return []
        others = self._busy(heard_until) - {claimant.run_and_plan}
        return sorted({run for run, _ in others}) if len(others) >= MOST_RUNS else []

    def make_room(self, claimant: Claimant, heard_until: float) -> None:
        """If too many runs have claimed, forget those with no Done and no promise that ends after `heard_until`."""
        if self._has_room(claimant):
            return
        busy = self._busy(heard_until)
        self.promises = {other: promise for other, promise in self.promises.items() if other.run_and_plan in busy}

    def _has_room(self, claimant: Claimant) -> bool:
        return len({other.run_and_plan for other in self.promises} | {claimant.run_and_plan}) <= MOST_RUNS

    def _busy(self, heard_until: float) -> set[tuple[str, str]]:
        promised = {other for other, promise in self.promises.items() if promise.end > heard_until}
        return {other.run_and_plan for other in promised | self.done}
