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
    found = {path: _compare(path, before.get(path), after.get(path)) for path in sorted({*before, *after})}
    unlike = {path: changes for path, changes in found.items() if changes}
    if form == "json":
        click.echo(
            json.dumps({path: [_json(change) for change in changes] for path, changes in unlike.items()}, indent=2)
        )
    else:
        click.echo(_text(unlike, len(found)))
    sys.exit(WRONG if unlike else 0)


def _compare(path: str, old: str | None, new: str | None) -> list[Change]:
    from kvplan.compiler.diff import Change, diff
    from kvplan.compiler.parse import parse

    if old == new:
        return []
    if old is None or new is None:
        texts = [None if text is None else parse(text, path or "plan").title for text in (old, new)]
        return [Change("plan", "the plan", *texts)]
    return diff(parse(old, path or "old"), parse(new, path or "new"))


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
