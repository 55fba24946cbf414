"""Judge: compare pages as they arrived with pages as they should be, and count byte by byte."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvplan.compiler.check.audit.finding import Findings, PageRun, add_fault, add_wrong
from kvplan.compiler.check.audit.verdict import FAULTS, STRICT_FAULTS, Finding, Verdict
from kvplan.compiler.check.copy_list import Key
from kvplan.compiler.check.labels import PADDING, Atlas, Labels, Mask, NeededTokens, paint
from kvplan.compiler.check.pages import PlanePages, all_needed
from kvplan.plan.types import ALL

WORDS = {
    "missing": "is not written",
    "double": "is written more than once",
    "before": "is written, and lies before the first token asked for",
    "beyond": "is written, and lies beyond what is needed",
    "spilled": "is written, and not from padding",
    "loose": "a copy begins or ends here, where nothing is needed",
}
BEHIND_ALL = 2**62


@dataclass(frozen=True, slots=True)
class WrittenPages:
    """Pages of a plane as copies left them, one per row: the labels they hold, how often each byte was written, and
    whether a copy begins or ends there."""

    holds: Labels
    writes: Labels
    ends: Mask


class Judge:
    """A verdict in progress. Planes come in order, and each has a number."""

    def __init__(self, regions: Atlas, limit: int, strict: bool = False, copies: int = 0) -> None:
        self.regions, self.strict, self.copies = regions, strict, copies
        self.findings = Findings(regions, limit + 1)
        self.counts: Counter[str] = Counter()
        self.workers: set[int] = set()

    def plane(self, number: int, key: Key, outside: Labels, padding: int) -> None:
        """Count the bytes written outside the request's blocks of a plane, rows of (offset, bytes)."""
        self.counts["padding"] += padding
        self._outside(number, key, outside, "lies in no block of the request")

    def lacking(self, number: int, key: Key, outside: Labels) -> None:
        """Count the bytes written to a plane that does not exist, or to a cache that the prefill side lacks."""
        self._outside(number, key, outside, "the prefill side has no such cache")

    def _outside(self, number: int, key: Key, outside: Labels, why: str) -> None:
        if not len(outside):
            return
        worker, plane = key
        total, offset = int(outside[:, 1].sum()), int(outside[:, 0].min())
        text = f"plane {plane} · offset {offset:,}: is written, and {why}"
        self.findings.counts["outside"] += total
        self.findings.add(
            ("outside", worker, plane.partition(".")[0]),
            (number, offset),
            total,
            lambda n: Finding("outside", worker, plane, offset, text, n),
        )

    def pages(
        self, number: int, key: Key, target: PlanePages, span: tuple[int, int], pages: WrittenPages, need: NeededTokens
    ) -> None:
        """Compare the pages `span` of a plane."""
        first, last = span
        self.workers.add(key[0])
        self.counts["planes"] += first == 0
        token = target.pages.token[first:last]
        full = paint(target.plane, self.regions, token)
        labels = full if all_needed(need, target.plane, token) else paint(target.plane, self.regions, token, need)
        ids, page, stride = target.pages.ids[first:last], target.plane.page, target.plane.stride
        place = PageRun(key[0], key[1], number, ids, page, stride, full)
        asked, written = labels >= 0, pages.writes > 0
        self.counts["bytes"] += int(asked.sum())
        self._find(place, "missing", asked & ~written)
        self._find(place, "double", asked & (pages.writes > 1))
        wrong = asked & written & (pages.holds != full)
        if wrong.any():
            add_wrong(self.findings, place, wrong, pages.holds)
        self._spare(place, target, token, need, written & ~asked, pages.holds)
        if self.strict:
            self._find(place, "loose", pages.ends & ~asked)

    def _find(self, place: PageRun, fault: str, bad: Mask) -> None:
        if bad.any():
            add_fault(self.findings, place, fault, bad, WORDS[fault])

    def _spare(
        self, place: PageRun, target: PlanePages, token: Labels, need: NeededTokens, spare: Mask, holds: Labels
    ) -> None:
        """Count the unneeded bytes that were written: padding and later tokens are allowed, earlier tokens are not."""
        if not spare.any():
            return
        data = spare & (place.full >= 0)
        after = NeededTokens(ALL, need.first, BEHIND_ALL if need.first < need.end or token.size else need.first)
        early = data & (paint(target.plane, self.regions, token, after) < 0)
        self.counts["padding"] += int((spare & ~data).sum())
        self.counts["beyond"] += int((data & ~early).sum())
        self._find(place, "before", early)
        if self.strict:
            self._find(place, "beyond", data & ~early)
            self._find(place, "spilled", spare & ~data & (holds != PADDING))

    def verdict(self) -> Verdict:
        """Return the verdict of the counts so far."""
        findings, others = self.findings.result()
        found = {fault: self.findings.counts[fault] for fault in (*FAULTS, *STRICT_FAULTS)}
        found |= {word: self.counts[word] for word in ("planes", "bytes", "beyond", "padding")}
        return Verdict(
            len(self.workers), copies=self.copies, strict=self.strict, **found, findings=findings, others=others,
            crowded=(),
        )  # fmt: skip
