"""A review in short: every change once, with the plans that have it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kvplan.dsl.text.diagnostics import ranges
from kvplan.review.changes import SIDES, Change
from kvplan.review.facts import Subject, Value
from kvplan.review.review import PairReview
from kvplan.review.rules import POSITION, RULES, Category

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
# The number of a pair in the review, and the side that changes, empty for both.
Where = tuple[int, str]
TABLES = {"SPANS", "SPANS_CUT"}
# A digest distinguishes tables that look the same in short. It is compared, not shown.
TAG = re.compile(r" \([0-9a-f]{8}\)")
# Rules whose values only say that a thing exists.
EXISTENCE = {"CACHE", "GROUP", "TENSOR", "PAIR_NEW", "PAIR_GONE"}
# Up to this many different values of one thing are all shown.
FEW = 3
PERCENT, FACTOR, LARGE_FACTOR = "{:+.{digits}f} %", "× {:.3g}", "× {:,.0f}"


@dataclass(frozen=True, slots=True)
class FoldedChange:
    """Equal changes of several plans as one. `subject` is in words; `shares` are the growth of a number.

    If a thing has more than FEW values, `more` of them are left out, and `shares` are the least and the largest.
    """

    rule: str
    subject: str
    unit: str
    before: Value | None
    after: Value | None
    where: tuple[Where, ...]
    more: int = 0
    shares: tuple[float, ...] = ()

    @property
    def category(self) -> Category:
        return RULES[self.rule].category

    def text(self, full: bool = False) -> str:
        """`attention: 2,096 → 1,056 tokens (−50 %)`; `full` adds where spans lie."""
        if self.rule in EXISTENCE:
            return f"{self.subject} {'new' if self.before is None else 'removed'}"
        return f"{self.subject}: {self._values(full)}" if self.subject else self._values(full)

    def _values(self, full: bool) -> str:
        before, after = shown(self.before), shown(self.after)
        if self.rule in TABLES:
            before, after = (_counted(text, full) for text in (before, after))
        unit = f" {self.unit}" if self.unit else ""
        values = f"{before}{unit} → {after}" if self.after is None else f"{before} → {after}{unit}"
        numbers = values if before != after else f"{after} at other places"
        grown = " to ".join(dict.fromkeys(map(percent, self.shares)))
        return numbers + (f", and {self.more} more" if self.more else "") + (f" ({grown})" if grown else "")


def _counted(tables: str, full: bool) -> str:
    """Tables, each once: `2 × 128 spans of 8,192 B`; `full` adds the place of the first span."""
    every = TAG.sub("", tables).split(" / ")
    counts = Counter(table if full else table.partition(", first at")[0] for table in every)
    return " / ".join(table if count == 1 else f"{count} × {table}" for table, count in counts.items())


def folded(pairs: Sequence[PairReview]) -> list[FoldedChange]:
    """The changes of all pairs, each once, in the order of the rules."""
    alike: dict[Change, list[Where]] = {}
    for number, pair in enumerate(pairs, 1):
        for change in pair.changes:
            key = replace(change, subject=replace(change.subject, side=""), workers="")
            alike.setdefault(key, []).append((number, change.subject.side))
    every = [(change, tuple(sorted(set(where)))) for change, where in alike.items()]
    return sorted(_short(_joined_parts(every)), key=lambda one: POSITION[one.rule])


def alone(change: Change) -> FoldedChange:
    """A change of one plan as a folded change, without a place."""
    return _joined_parts([(change, ())])[0]


def _joined_parts(every: Sequence[tuple[Change, tuple[Where, ...]]]) -> list[FoldedChange]:
    """Folded changes: equal ones of several tensors of a cache, or of several caches, are one."""
    by_cache = _grouped(every, lambda one: (replace(one[0], subject=replace(one[0].subject, part="")), one[1]))
    named = [
        (replace(change, subject=replace(change.subject, name=_dotted([c.subject for c, _ in some]))), where)
        for (change, where), some in by_cache.items()
    ]
    by_name = _grouped(named, lambda one: (replace(one[0], subject=replace(one[0].subject, name="")), one[1]))
    return [
        FoldedChange(
            change.rule,
            _subject([c.subject.name for c, _ in some], change.subject.word),
            change.subject.unit,
            change.before,
            change.after,
            where,
            shares=() if change.share is None else (change.share,),
        )
        for (change, where), some in by_name.items()
    ]


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def _dotted(subjects: Sequence[Subject]) -> str:
    """`states.b, .c`."""
    name, parts = subjects[0].name, [subject.part for subject in subjects]
    return f"{name}.{', .'.join(parts)}" if parts[0] else name


def _subject(names: Sequence[str], word: str) -> str:
    return " ".join(filter(None, [", ".join(filter(None, names)), word]))


def _short(every: Sequence[FoldedChange]) -> Iterator[FoldedChange]:
    """The changes of each thing. If it has more than FEW, only the first, with the number of the others."""
    for some in _grouped(every, lambda one: (one.rule, one.subject)).values():
        if len(some) <= FEW:
            yield from some
            continue
        shares = sorted(share for one in some for share in one.shares)
        where = tuple(sorted({place for one in some for place in one.where}))
        yield replace(some[0], where=where, more=len(some) - 1, shares=tuple(shares[:1] + shares[-1:]))


def shown(value: Value | None) -> str:
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else value


def percent(share: float) -> str:
    """`−49 %`, with a decimal near 0 and 100; `× 32` if the number at least doubled."""
    if share >= 1:
        return (FACTOR if share < 100 else LARGE_FACTOR).format(share + 1)
    return PERCENT.format(100 * share, digits=0 if 0.02 <= abs(share) <= 0.99 else 1).replace("-", "−")


def places(where: Sequence[Where], count: int) -> str:
    """Sides and plans in words: `prefill of plans 1-3; decode of plan 2`, without plans if all `count` are meant."""
    by_side = {side: {number for number, other in where if other == side} for side in ("", *SIDES)}
    if by_side["prefill"] == by_side["decode"]:
        by_side = {"": by_side[""], "both sides": by_side["decode"]}
    said = []
    for side, numbers in by_side.items():
        if numbers:
            of = "" if len(numbers) == count else numbered(numbers)
            said.append(" of ".join(filter(None, [side, of])))
    return "; ".join(filter(None, said))


def numbered(plans: Collection[int]) -> str:
    """`plan 2`, `plans 1-3, 7`."""
    return f"{'plan' if len(plans) == 1 else 'plans'} {ranges(plans)}"
