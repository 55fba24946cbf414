"""kvplan diff: two plans or directories of plans, by meaning."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import click

from kvplan.cli import plans
from kvplan.cli.errors import WRONG
from kvplan.cli.options import format_option
from kvplan.compiler.explain.diff import Change, diff
from kvplan.dsl.text.diagnostics import ranges

GROUP = re.compile(r"(?<=\w\.)\d+(?!\w)")


@click.command("diff")
@click.argument("old")
@click.argument("new")
@format_option("text", "json")
def command(old: str, new: str, form: str) -> None:
    """Compare two plans by what they do.

    Or two directories of plans.

    OLD or NEW may be a git revision, which stands for the other one's path at that revision, or REVISION:PATH.
    The exit code is 1 where they differ.
    """
    before, after = plans.read(old, new), plans.read(new, old)
    found = {
        path: _compare((path or old, before.get(path)), (path or new, after.get(path)))
        for path in sorted({*before, *after})
    }
    unlike = {path: changes for path, changes in found.items() if changes}
    if form == "json":
        answer = {path: [_json(change) for change in changes] for path, changes in unlike.items()}
        click.echo(json.dumps(answer, indent=2))
    else:
        click.echo(_text(unlike, len(found)))
    sys.exit(WRONG if unlike else 0)


def _compare(old: tuple[str, str | None], new: tuple[str, str | None]) -> list[Change]:
    """What differs between two plans, each its name and its text, None where it is not there."""
    if old[1] == new[1]:
        return []
    before, after = (None if text is None else plans.parsed(text, name) for name, text in (old, new))
    if before is None or after is None:
        return [Change("plan", "the plan", *(plan.title if plan else None for plan in (before, after)))]
    return diff(before, after)


def _text(unlike: Mapping[str, list[Change]], count: int) -> str:
    if not unlike:
        return f"no change of meaning in {count} {'plan' if count == 1 else 'plans'}"
    return "\n\n".join(_plan(path, changes) for path, changes in unlike.items())


def _plan(path: str, changes: list[Change]) -> str:
    lines = [path] if path else []
    for about in dict.fromkeys(change.about for change in changes):
        lines.append(about)
        lines += [f"  {change.text()}" for change in _folded([one for one in changes if one.about == about])]
    return "\n".join(lines)


def _folded(changes: Sequence[Change]) -> list[Change]:
    """Equal changes of several groups of one cache, `states.0` and `states.1`, as one of `states.0-1`."""
    alike: dict[tuple[str, str, str | None, str | None], list[int]] = {}
    for change in changes:
        head, number, tail = _numbered(change.where)
        alike.setdefault((head, tail, change.before, change.after), []).append(number)
    return [
        replace(changes[0], where=head + ("" if -1 in numbers else ranges(numbers)) + tail, before=before, after=after)
        for (head, tail, before, after), numbers in alike.items()
    ]


def _numbered(where: str) -> tuple[str, int, str]:
    """What stands before the number of a group, the number, -1 where there is none, and what stands behind it."""
    found = GROUP.search(where)
    return (where[: found.start()], int(found[0]), where[found.end() :]) if found else (where, -1, "")


def _json(change: Change) -> dict[str, str | None]:
    return {"about": change.about, "where": change.where, "before": change.before, "after": change.after}
