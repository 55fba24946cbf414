"""What a simulation found: how much was compared, what was wrong, and the first wrong byte in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kvplan.compiler.words import many

Labels = npt.NDArray[np.int64]
FAULTS = ("missing", "double", "wrong", "outside", "loose", "uneven")
COUNTS = ("planes", "copies", "bytes", "bridged", *FAULTS)


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """Counts are bytes but for `workers`, `planes`, `copies` and `loose` (copies that begin or end off the data) and
    `uneven` (tensors whose readers are spread unevenly over equal holders).

    `bridged` bytes are padding written from padding; `outside` bytes were written though nobody asked for them.
    """

    workers: int
    planes: int
    copies: int
    bytes: int
    bridged: int = 0
    missing: int = 0
    double: int = 0
    wrong: int = 0
    outside: int = 0
    loose: int = 0
    uneven: int = 0
    first: str | None = None

    @property
    def right(self) -> bool:
        return self.first is None and not any(getattr(self, fault) for fault in FAULTS)

    def text(self) -> str:
        """What was compared, and what was found."""
        workers = many(self.workers, "decode worker")
        what = f"{many(self.bytes, 'byte')} in {many(self.planes, 'plane')} of {workers}"
        copies = "1 copy" if self.copies == 1 else f"{self.copies:,} copies"
        said = f"compared {what}, written by {copies}"
        if self.right:
            return f"{said}: each written once, from its own coordinate"
        counts = ", ".join(f"{getattr(self, f):,} {f}" for f in FAULTS if getattr(self, f))
        return f"{said}: {counts}\n{self.first}"


@dataclass(slots=True)
class Tally:
    """A report being counted."""

    workers: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    first: str | None = None

    def seen(self, worker: int) -> None:
        self.workers.add(worker)

    def stray(self, where: str, count: int) -> None:
        """Count bytes written where the request has nothing."""
        self.counts["outside"] += count
        self.first = self.first or (f"{where}: {count:,} bytes written where none are needed" if count else None)

    def crowded(self, found: list[str]) -> None:
        """Count tensors whose readers crowd on some of their holders."""
        self.counts["uneven"] += len(found)
        self.first = self.first or (found[0] if found else None)

    def compare(
        self, got: Labels, writes: Labels, need: Labels, full: Labels, words: Callable[[int], str], who: str
    ) -> None:
        """Compare pages: `need` labels the bytes asked for, `full` all data; below 0 is padding."""
        asked, written = need >= 0, writes > 0
        bridged = ~asked & written & (full < 0) & (got == full)
        outside = ~asked & written & ~bridged
        wrong = asked & written & (got != need)
        double = asked & (writes > 1)
        missing = asked & ~written
        found = {"bytes": asked, "bridged": bridged, "missing": missing, "double": double, "wrong": wrong}
        for name, mask in {**found, "outside": outside}.items():
            self.counts[name] += int(mask.sum())
        faults = np.flatnonzero(missing | double | wrong | outside)
        if faults.size and self.first is None:
            at = int(faults[0])
            label, holds, times = (int(a.reshape(-1)[at]) for a in (full, got, writes))
            self.first = f"{who} · {words(label)}: holds {words(holds)}, written {times} times"

    def report(self) -> SimulationReport:
        """The counts as they stand."""
        first = self.first or ("a copy begins or ends in padding" if self.counts["loose"] else None)
        counts = {name: self.counts[name] for name in COUNTS}
        return SimulationReport(workers=len(self.workers), first=first, **counts)
