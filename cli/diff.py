"""kvplan diff: two plans or directories of plans, by meaning."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kvplan.cli import plans
from kvplan.cli.failure import WRONG
from kvplan.cli.options import format_option

if TYPE_CHECKING:
    from kvplan.compiler.diff import Change


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
        click.echo(
            json.dumps({path: [_json(change) for change in changes] for path, changes in unlike.items()}, indent=2)
        )
    else:
        click.echo(_text(unlike, len(found)))
    sys.exit(WRONG if unlike else 0)


def _compare(old: tuple[str, str | None], new: tuple[str, str | None]) -> list[Change]:
    """What differs between two plans, each its name and its text, None where it is not there."""
    from kvplan.compiler.diff import Change, diff

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
        lines += [f"  {change.text()}" for change in changes if change.about == about]
    return "\n".join(lines)


def _json(change: Change) -> dict[str, str | None]:
    return {"about": change.about, "where": change.where, "before": change.before, "after": change.after}
