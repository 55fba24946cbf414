"""docs/operations.md as values: what is seen in production, what it means, and what to do."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from kvplan.cli.codes import page

PAGE = "operations.md"
TABLE = re.compile(r"^\| seen \| means \| do \|\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)
METRICS = re.compile(r"^\| `(\w+:\w+)` \| (.*) \|$", re.MULTILINE)
ALERT = re.compile(r"\{alert: (\w+), expr: '(.*?)'[,}]")
CODE, SERIES, QUOTED = re.compile(r"\b[A-Z]\d{3}\b"), re.compile(r"(?:\w+:)?kvplan_\w+"), re.compile(r"`([^`]+)`")
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


@cache
def alerts() -> dict[str, str]:
    """Return the condition of every alert."""
    return dict(ALERT.findall(page(PAGE)))


@cache
def engine_metrics() -> dict[str, str]:
    """Return what each metric of an engine tells."""
    return {name: _plain(tells) for name, tells in METRICS.findall(page(PAGE))}


def signs_of(what: str) -> list[Sign]:
    """Return the rows that name a code or a metric, or what a line of the log or an alert's condition names.

    Rows with the most words of the line come alone, except for what they do not name.
    """
    asked = _names(alerts().get(alert(what), what)) | {plain_name(what)}
    shared = {sign: sum(phrase in what for phrase in _phrases(sign)) for sign in signs()}
    most = max(shared.values())
    best = [sign for sign, count in shared.items() if count == most > 0]
    asked -= {name for sign in best for name in _names(sign.seen)}
    return [sign for sign in signs() if sign in best or asked & _names(sign.seen)]


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


def _phrases(sign: Sign) -> list[str]:
    """Return what a row quotes of lines of the log."""
    return [name for name in QUOTED.findall(sign.seen) if " " in name or "=" in name]


def _names(text: str) -> set[str]:
    """Return the codes, metrics and words in backticks of a text."""
    return {plain_name(name) for names in (CODE, SERIES, QUOTED) for name in names.findall(text)}


def _plain(cell: str) -> str:
    """Return a cell without links: `Keys (docs/operations.md#keys)`."""
    return LINK.sub(lambda link: f"{link[1]} (docs/{PAGE if link[2].startswith('#') else ''}{link[2]})", cell)
