"""Verdicts that were accepted, as a file, and what has changed since: which way, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.corpus import lines
from tests.conformance.judge import (
    REFUSED,
    RIGHT,
    UNJUDGED,
    UNJUDGED_WARNED,
    WARNED,
    WORDS,
    WRONG,
    WRONG_WARNED,
    Verdict,
)

from kvplan.dsl.text.grouped import grouped

# The verdict on an architecture is the first of these words that one of its configurations has.
OF_ARCHITECTURES = (WRONG, RIGHT, WARNED, WRONG_WARNED, REFUSED, UNJUDGED, UNJUDGED_WARNED)
LONGEST = 240


@dataclass(frozen=True, slots=True)
class Change:
    """A verdict that is not the one that was accepted; `before` is none for a new configuration."""

    before: Verdict | None
    now: Verdict

    @property
    def way(self) -> str:
        if self.before is None:
            return "new"
        return "better" if _rank(self.now) < _rank(self.before) else "worse"

    def __str__(self) -> str:
        before = f"{_said(self.before)} → " if self.before else ""
        why = f": {self.now.why}" if self.now.why else ""
        return f"{self.way}: {self.now.key}: {before}{_said(self.now)}{why}"


def changes(accepted: Mapping[str, Verdict], found: Iterable[Verdict]) -> list[Change]:
    """The verdicts that differ from the accepted ones, the worst first."""
    pairs = (Change(accepted.get(verdict.key), verdict) for verdict in found)
    changed = (pair for pair in pairs if pair.before is None or _said(pair.before) != _said(pair.now))
    return sorted(changed, key=lambda pair: (("worse", "new", "better").index(pair.way), pair.now.key))


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """The accepted verdicts by key; none where nothing was accepted yet."""
    return {verdict.key: verdict for verdict in map(_verdict, lines(path))}


def written(verdicts: Iterable[Verdict]) -> str:
    """A file of verdicts, a line each, by key."""
    return "".join(f"{_line(verdict)}\n" for verdict in sorted(verdicts, key=lambda v: v.key))


def of_architectures(words: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The word of each architecture, from those of its configurations."""
    found = grouped(words)
    return {name: word_of(found[name]) for name in sorted(found)}


def word_of(words: Iterable[str]) -> str:
    """The word of an architecture whose configurations have these."""
    return min(words, key=OF_ARCHITECTURES.index)


def counted(words: Iterable[str]) -> str:
    """`244 right, 16 WRONG`"""
    found = Counter(words)
    return ", ".join(f"{found[word]} {word}" for word in WORDS if found[word])


def _rank(verdict: Verdict) -> tuple[int, int, int]:
    return WORDS.index(verdict.word), -verdict.equal, verdict.refused


def _said(verdict: Verdict) -> str:
    refused = f", {verdict.refused} refused" if verdict.refused else ""
    return f"{verdict.word} ({verdict.equal} of {verdict.of} equal{refused})" if verdict.of else verdict.word


def _line(verdict: Verdict) -> str:
    numbers = f"{verdict.equal}/{verdict.refused}/{verdict.of}"
    lists = (",".join(verdict.kinds), ",".join(verdict.keys))
    return "\t".join((verdict.key, verdict.word, numbers, *lists, verdict.why[:LONGEST])).rstrip()


def _verdict(line: str) -> Verdict:
    key, word, numbers, *rest = line.split("\t")
    equal, refused, of = map(int, numbers.split("/"))
    kinds, keys, why = (*rest, "", "", "")[:3]
    return Verdict(
        key, word, equal, refused, of, why, *(tuple(filter(None, text.split(","))) for text in (kinds, keys))
    )
