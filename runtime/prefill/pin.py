"""One hold of a request's blocks: who was promised them until when, who is done, and when it is over."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

PAIRS = 8
NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Claimant:
    """A decode worker that reads: which run of which engine, by which plan (its digest)."""

    run: str
    plan: str
    worker: int

    @property
    def pair(self) -> tuple[str, str]:
        return self.run, self.plan


@dataclass(frozen=True, slots=True)
class Released:
    """A request whose blocks may be freed. `why` is finished, expired or withdrawn."""

    request: str
    why: str


@dataclass(frozen=True, slots=True)
class LeaseEvent:
    """What a message meant. Of leases: counted, left, duplicate, unexpected, stale, late or unknown."""

    kind: str
    request: str | None = None
    worker: int | None = None
    text: str = ""


@dataclass(slots=True)
class Pin:
    """A request whose blocks are kept.

    `claims` say until when a claimant was promised the blocks: NEVER once it is done or has left. `floor` is what
    was promised to runs that are forgotten, `ending` why the hold is over though pins still keep it, `alarm` when to
    look at it next.
    """

    request: str
    number: int
    until: float
    floor: float = NEVER
    alarm: float = math.inf
    writers: int = 0
    withdrawn: bool = False
    ending: str = ""
    claims: dict[Claimant, float] = field(default_factory=dict)
    done: set[Claimant] = field(default_factory=set)
    finished: set[tuple[str, str]] = field(default_factory=set)

    def due(self) -> float:
        """When the hold is over, unless it is claimed again."""
        if not self.finished and not self.withdrawn:
            return self.until
        return max(self.floor, max(self.claims.values(), default=NEVER))

    def why(self) -> str:
        return "finished" if self.finished else "withdrawn" if self.withdrawn else "expired"

    def tell(self, claimant: Claimant, contract: frozenset[int]) -> str:
        """Count a Done: counted or duplicate. A claim after a Done is a new read, whose Done counts."""
        kind = "duplicate" if claimant in self.done and self.claims[claimant] == NEVER else "counted"
        self.claims[claimant] = NEVER
        self.done.add(claimant)
        if contract <= {other.worker for other in self.done if other.pair == claimant.pair}:
            self.finished.add(claimant.pair)
        return kind

    def forget(self, run: str) -> None:
        for claimant in [claimant for claimant in self.claims if claimant.run == run]:
            self.floor = max(self.floor, self.claims.pop(claimant))
            self.done.discard(claimant)
        self.finished = {pair for pair in self.finished if pair[0] != run}

    def crowd(self, claimant: Claimant, now: float) -> list[str]:
        """The runs that leave no room for one more pair of run and plan; pairs whose leases are over make room."""
        if len({other.pair for other in self.claims} | {claimant.pair}) <= PAIRS:
            return []
        busy = {other.pair for other, until in self.claims.items() if until > now} | self.finished
        for other in [other for other in self.claims if other.pair not in busy]:
            del self.claims[other]
            self.done.discard(other)
        return sorted({run for run, _ in busy}) if len(busy) >= PAIRS else []
