"""Judge: pages as they arrived against pages as they should be, counted byte by byte."""

from __future__ import annotations

from collections import Counter

from kvplan.compiler.check.audit.finding import Findings, PageRun, alike, unlike
from kvplan.compiler.check.audit.verdict import FAULTS, Finding, Verdict
from kvplan.compiler.check.copy_list import Key
from kvplan.compiler.check.labels import Atlas, Labels, Mask, NeededTokens, paint
from kvplan.compiler.check.simulate import SourcePages, all_wanted
from kvplan.plan.types import ALL

WORDS = {
    "missing": "is not written",
    "double": "is written more than once",
    "before": "is written, and lies before the first token asked for",
}
BEHIND_ALL = 2**62


class Judge:
    """A verdict being made. Planes come in order, every one with a number."""

    def __init__(self, regions: Atlas, limit: int, copies: int = 0) -> None:
        self.regions, self.copies = regions, copies
        self.found = Findings(regions, limit + 1)
        self.counts: Counter[str] = Counter()
        self.workers: set[int] = set()

    def plane(self, number: int, key: Key, outside: Labels, padding: int) -> None:
        """Count what was written outside the request's blocks of a plane, rows of (offset, bytes)."""
        self.counts["padding"] += padding
        self._outside(number, key, outside, "lies in no block of the request")

    def skipped(self, number: int, key: Key, outside: Labels) -> None:
        """Count what was written to a plane of a cache that the prefill side does not have."""
        self._outside(number, key, outside, "the prefill side has no such cache")

    def _outside(self, number: int, key: Key, outside: Labels, why: str) -> None:
        if not len(outside):
            return
        worker, plane = key
        total, offset = int(outside[:, 1].sum()), int(outside[:, 0].min())
        text = f"plane {plane} · offset {offset:,}: is written, and {why}"
        self.found.counts["outside"] += total
        self.found.add(
            ("outside", worker, plane.partition(".")[0]),
            (number, offset),
            total,
            lambda n: Finding("outside", worker, plane, offset, text, n),
        )

    def pages(
        self,
        number: int,
        key: Key,
        target: SourcePages,
        span: tuple[int, int],
        holds: Labels,
        writes: Labels,
        want: NeededTokens,
    ) -> None:
        """Compare the pages `span` of a plane: what they hold, how often each byte was written."""
        first, last = span
        self.workers.add(key[0])
        self.counts["planes"] += first == 0
        token = target.pages.token[first:last]
        full = paint(target.plane, self.regions, token)
        need = full if all_wanted(want, token) else paint(target.plane, self.regions, token, want)
        ids, page, stride = target.pages.ids[first:last], target.plane.page, target.plane.stride
        place = PageRun(key[0], key[1], number, ids, page, stride, full)
        asked, written = need >= 0, writes > 0
        self.counts["bytes"] += int(asked.sum())
        self._faults(place, asked, written, writes, holds)
        self._spare(place, target, token, want, written & ~asked)

    def _faults(self, place: PageRun, asked: Mask, written: Mask, writes: Labels, holds: Labels) -> None:
        """What is wrong with the bytes that are needed."""
        for fault, bad in {"missing": asked & ~written, "double": asked & (writes > 1)}.items():
            if bad.any():
                alike(self.found, place, fault, bad, WORDS[fault])
        wrong = asked & written & (holds != place.full)
        if wrong.any():
            unlike(self.found, place, wrong, holds)

    def _spare(self, place: PageRun, target: SourcePages, token: Labels, want: NeededTokens, spare: Mask) -> None:
        """What was written and is not needed: padding and what lies beyond may be, what lies before may not."""
        if not spare.any():
            return
        data = spare & (place.full >= 0)
        self.counts["padding"] += int((spare & ~data).sum())
        after = NeededTokens(ALL, want.first, BEHIND_ALL if want.first < want.end or token.size else want.first)
        early = data & (paint(target.plane, self.regions, token, after) < 0)
        self.counts["beyond"] += int((data & ~early).sum())
        if early.any():
            alike(self.found, place, "before", early, WORDS["before"])

    def verdict(self) -> Verdict:
        """The counts as they stand."""
        findings, others = self.found.result()
        counts = {fault: self.found.counts[fault] for fault in FAULTS}
        counts |= {word: self.counts[word] for word in ("planes", "bytes", "beyond", "padding")}
        return Verdict(workers=len(self.workers), copies=self.copies, **counts, findings=findings, others=others)
