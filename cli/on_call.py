"""docs/operations.md as values: what is seen in production, what it means, and what to do; and a connector's keys."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from kvplan.cli.codes import page

PAGE = "operations.md"
TABLE = re.compile(r"^\| seen \| means \| do \|\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)
METRICS = re.compile(r"^\| `(\w+:\w+)` \| (.*) \|$", re.MULTILINE)
GROUP = re.compile(r"^  - name: (.*)\n((?:    .*\n)+)", re.MULTILINE)
ALERT = re.compile(r"\{alert: (\w+), expr: '(.*?)'(?:, for: (\w+))?\}")
KEYS = re.compile(r"^\| `(\w+)` \| ([^|]*) \| (.*) \|$", re.MULTILINE)
CODE, SERIES, QUOTED = re.compile(r"\b[A-Z]\d{3}\b"), re.compile(r"(?:\w+:)?kvplan_\w+"), re.compile(r"`([^`]+)`")
WORD = re.compile(r"\w+")
# A line of the log has a blank or a value; a name has neither.
LINE = re.compile(r" |^\w+=")
# The suffixes that Prometheus adds to the names of counters and histograms.
ADDED = re.compile(r"_(total|created|bucket|sum|count)$")
LINK = re.compile(r"\[([^]]+)\]\(([^)]*)\)")


class Sign(NamedTuple):
    """A row of a table: what is seen, what it means, and what to do, as plain text."""

    seen: str
    means: str
    do: str


@cache
def signs() -> tuple[Sign, ...]:
    """Return all rows."""
    lines = [line for table in TABLE.findall(page(PAGE)) for line in table.splitlines()]
    return tuple(Sign(*map(_plain, line.strip("| ").split(" | "))) for line in lines)


class Alert(NamedTuple):
    """An alert: the engines that it is about, its condition, and for how long that must be true, empty for no time."""

    about: str
    condition: str
    lasting: str


@cache
def alerts() -> dict[str, Alert]:
    """Return every alert by name."""
    groups = GROUP.findall(page(PAGE))
    return {name: Alert(about, *more) for about, rules in groups for name, *more in ALERT.findall(rules)}


@cache
def connector_keys() -> dict[str, tuple[str, str]]:
    """Return the default and the meaning of every key of a connector."""
    section = page("connector.md").partition("\n## Configuration\n")[2].partition("\n## ")[0]
    return {name: (default, LINK.sub(r"\1", meaning)) for name, default, meaning in KEYS.findall(section)}


def names() -> set[str]:
    """Return all alerts, metrics and quoted lines of the log."""
    return {
        *alerts(),
        *map(plain_name, SERIES.findall(page(PAGE))),
        *(name for sign in signs() for name in _phrases(sign)),
    }


@cache
def engine_metrics() -> dict[str, str]:
    """Return what each metric of an engine tells."""
    return {name: _plain(tells) for name, tells in METRICS.findall(page(PAGE))}


def signs_of(what: str) -> list[Sign]:
    """Return the rows that have a name or words as they are, and those that fit a line or an alert's condition best.

    A line or a condition has the rows of each code, metric and event that it names.
    """
    known = alert(what)
    text = alerts()[known].condition if known else what
    rows: dict[str, list[Sign]] = {}
    for sign in signs():
        for name in _named(sign, text):
            rows.setdefault(name, []).append(sign)
    best = {sign for found in rows.values() for sign in _fitting(found, text)}
    return [sign for sign in signs() if sign in best or _has(sign, what)]


def plain_name(name: str) -> str:
    """Return a name in small letters, without a metric's labels and what Prometheus adds to it."""
    return ADDED.sub("", name.casefold().partition("{")[0])


def alert(name: str) -> str:
    """Return the name of an alert as the page has it, in whatever case it is asked for; "" if there is none."""
    return next((known for known in alerts() if known.casefold() == name.casefold()), "")


def event(line: str) -> str:
    """Return the longest event or words of an error that a line of the log has, as a row names them; else the line."""
    quoted = {name for sign in signs() for name in _phrases(sign)}
    return max((name for name in quoted if name in line), key=len, default=line)


def _has(sign: Sign, what: str) -> bool:
    """Whether the first column of a row has a name, or words beside each other."""
    words = LINE.search(what) and what in sign.seen.replace("`", "")
    return plain_name(what) in _names(sign.seen) or bool(words)


def _named(sign: Sign, text: str) -> set[str]:
    """Return the codes and metrics of a row that a text names, and the row's events that it has."""
    return _names(sign.seen) & _names(text) | {name for name in _phrases(sign) if " " in name and name in text}


def _fitting(rows: list[Sign], text: str) -> list[Sign]:
    """Return the rows that fit a text best."""
    most = max(_fit(sign, text) for sign in rows)
    return [sign for sign in rows if _fit(sign, text) == most]


def _fit(sign: Sign, text: str) -> tuple[int, int, bool]:
    """Return how well a row fits a text: by its phrases, by its other words; and a row without phrases needs none."""
    phrases = _phrases(sign)
    rest = QUOTED.sub(lambda name: "" if " " in name[1] else name[1], sign.seen)
    others = set(WORD.findall(rest)) & set(WORD.findall(text))
    return sum(phrase in text for phrase in phrases), len(others), not phrases


def _phrases(sign: Sign) -> list[str]:
    """Return what a row quotes of lines of the log."""
    return [name for name in QUOTED.findall(sign.seen) if " " in name or "=" in name]


def _names(text: str) -> set[str]:
    """Return the codes, metrics and words in backticks of a text."""
    return {plain_name(name) for names in (CODE, SERIES, QUOTED) for name in names.findall(text)}


def _plain(cell: str) -> str:
    """Return a cell without links: `Keys (docs/operations.md#keys)`."""
    return LINK.sub(lambda link: f"{link[1]} (docs/{PAGE if link[2].startswith('#') else ''}{link[2]})", cell)
