"""The figures that a soak prints at its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.cluster.cluster import Tally
from tests.slowness import slowness

LONGEST_OVERRUN = 5.0


@dataclass(slots=True)
class Figures:
    """Faults by kind: injected, and survived (a request sent afterwards is done). Any of `bad` fails the soak."""

    injected: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    begun: Counter[str] = field(default_factory=Counter)
    garbage: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    good: int = 0
    harmed: list[str] = field(default_factory=list)
    overrun: float = 0.0
    late: str = ""

    def add(self, tally: Tally) -> None:
        self.begun += tally.begun
        self.good += tally.good
        self.harmed += tally.harmed
        self.ended += tally.ended
        self.codes += tally.codes
        self.wrong += tally.wrong
        if tally.overrun > self.overrun:
            self.overrun, self.late = tally.overrun, tally.late

    @property
    def bad(self) -> bool:
        missing = self.injected - self.survived
        known = self.lost or self.wrong or self.leaked or self.broken or self.harmed or missing
        return bool(known) or self.overrun > LONGEST_OVERRUN * slowness() or self.begun.total() != self.ended.total()

    def lines(self) -> list[str]:
        """Problems first, the figures last."""
        problems = [
            f"{name}: {text}"
            for name in ("lost", "wrong", "leaked", "broken", "harmed")
            for text in dict.fromkeys(getattr(self, name))
        ]
        faults = [
            f"  {kind:24} {count:6}   survived {self.survived[kind]}" for kind, count in sorted(self.injected.items())
        ]
        ended = ", ".join(f"{self.ended[state]} {state}" for state in (*STATES, *sorted(set(self.ended) - set(STATES))))
        codes = ", ".join(f"{code} {count}" for code, count in sorted(self.codes.items()) if code[:1] == "R")
        return [
            *problems,
            f"requests: {self.begun.total()} begun, {ended}",
            f"requests by mode: {', '.join(f'{mode} {count}' for mode, count in sorted(self.begun.items()))}",
            f"outcomes by code, of every worker: {codes or 'none'}",
            f"fuzzed messages: {self.garbage}",
            f"faults injected: {sum(self.injected.values())}, survived: {sum(self.survived.values())}",
            *faults,
            f"lost: {len(self.lost) + self.begun.total() - self.ended.total()}",
            f"wrong bytes: {len(self.wrong)}",
            f"leaked: {len(self.leaked)}",
            f"good requests failed by another's fault: {len(self.harmed)} of {self.good}",
            f"longest overrun of a deadline: {self.overrun:.3f} s{' (' + self.late + ')' if self.late else ''}",
        ]


STATES = ("done", "failed", "cancelled", "timed_out", "died")
