"""kvplan compile: plans for pairs of sides, or for a whole deployment file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kvplan.cli import complete, files, jobs, plan_index
from kvplan.cli import errors as failure
from kvplan.cli.options import compile_options, format_option, is_path, layouts_option, side_options
from kvplan.cli.terminal import painted_diff
from kvplan.dsl.library import Library
from kvplan.plan.index import NAME


@click.command("compile")
@click.argument("models", metavar="MODEL…|DEPLOYMENT", nargs=-1, required=True, shell_complete=complete.models)
@side_options(required=False)
@compile_options
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("plans"), show_default=True)
@click.option("--check", is_flag=True, help="Write nothing; fail, and show the diff, where a plan on disk is stale.")
@layouts_option
@format_option("text", "json")
def command(
    models: tuple[str, ...], prefill: str | None, decode: str | None, options: Mapping[str, str], out: Path,
    check: bool, layouts: tuple[Path, ...], form: str,
) -> None:  # fmt: skip
    """Compile plans, one for each pair of sides.

    Either those of MODELs for every pair of --prefill and --decode, or all of a DEPLOYMENT file.

    A refused pair does not stop the others; the exit code is then 3. The file index.json in the directory says
    which plan is for which pair, so that engines find it.
    """
    found, wanted, whole = _wanted(models, prefill, decode, options, layouts)
    outcome = jobs.run(found, wanted)
    texts = {path: compiled.text for path, compiled in outcome.plans.items()}
    left = files.orphans(out, texts) if whole else []
    index = plan_index.expected(out, outcome.plans, left) if check else {}
    changed = files.stale(out, {**texts, **index}) if check else plan_index.write(out, outcome.plans, left)
    _say(form, out, {**texts, **index}, changed, left, check, outcome)
    if outcome.refused:
        sys.exit(failure.REFUSED)
    sys.exit(failure.WRONG if check and (changed or left) else 0)


def _wanted(
    models: Sequence[str], prefill: str | None, decode: str | None, options: Mapping[str, str], layouts: Sequence[Path]
) -> tuple[Library, list[jobs.PairJob], bool]:
    """The layout files, the pairs, and whether they are all of a deployment."""
    if prefill and decode:
        return *jobs.of_models(models, prefill, decode, options, layouts), False
    if prefill or decode or not all(is_path(model) for model in models):
        raise click.UsageError("give --prefill SIDE and --decode SIDE, or a deployment file without them")
    return *jobs.opened([*map(Path, models)], options, layouts), True


def _say(
    form: str, out: Path, texts: Mapping[str, str], changed: Sequence[str], left: Sequence[str], check: bool,
    outcome: jobs.CompileOutcome,
) -> None:  # fmt: skip
    states = {path: files.state(out, path, text) for path, text in texts.items()} if check else {}
    if form == "json":
        click.echo(json.dumps(_answer(out, texts, changed, left, states, outcome), indent=2))
        return
    for path in changed:
        if states.get(path) == "missing":
            click.echo(f"missing: {out / path}")
        elif check:
            click.echo(painted_diff(files.unified(out, path, texts[path]).rstrip("\n")))
        elif path in outcome.plans:
            click.echo(f"wrote {out / path}")
    for path in left:
        click.echo(f"{out / path}: nothing asks for this plan any more; remove it", err=True)
    for job, error in outcome.refused:
        click.echo(failure.refusal(job, error), err=True)
    for doubt in outcome.doubts:
        click.echo(doubt, err=True)
    click.echo(_summary(changed, states, check, outcome), err=True)


def _summary(changed: Sequence[str], states: Mapping[str, str], check: bool, outcome: jobs.CompileOutcome) -> str:
    plans = [path for path in changed if path in outcome.plans]
    missing = [path for path in plans if states.get(path) == "missing"]
    counts = {"stale" if check else "written": len(plans) - len(missing)}
    counts |= {"missing": len(missing)} if missing else {}
    counts |= {"up to date": len(outcome.plans) - len(plans)}
    counts |= {"refused": len(outcome.refused)} if outcome.refused else {}
    said = ", ".join(f"{n} {word}" for word, n in counts.items())
    return f"{len(outcome.plans)} plan{'s'[: len(outcome.plans) != 1]}: {said}"


def _answer(
    out: Path, texts: Mapping[str, str], changed: Sequence[str], left: Sequence[str], states: Mapping[str, str],
    outcome: jobs.CompileOutcome,
) -> dict[str, object]:  # fmt: skip
    checked = {path: {"state": state, "diff": files.unified(out, path, texts[path])} for path, state in states.items()}
    about = {path: {"changed": path in changed, **checked.get(path, {})} for path in (*outcome.plans, NAME)}
    refused = [{"pair": str(job), **failure.as_dict(error)} for job, error in outcome.refused]
    answer: dict[str, object] = {
        "plans": [
            {"path": str(out / path), "digest": compiled.plan.digest, **about[path]}
            for path, compiled in outcome.plans.items()
        ],
        "orphans": [str(out / path) for path in left],
        "refused": refused,
        "doubts": list(outcome.doubts),
        "index": {"path": str(out / NAME), **about[NAME]},
    }
    first = failure.as_dict(outcome.refused[0][1]) if outcome.refused else None
    return {"error": first, **answer} if first else answer
