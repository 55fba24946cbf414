"""kvplan compile: write plans for pairs of sides, or for a deployment file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kvplan.cli import complete
from kvplan.cli import errors as failure
from kvplan.cli.commands.check import faults_in_deployments
from kvplan.cli.options import AskedPairs, format_option, layouts_option, pair_options
from kvplan.cli.progress import watched
from kvplan.cli.terminal import painted_diff, say
from kvplan.compiler.api import faster
from kvplan.compiler.options import DIRECT, MACHINE
from kvplan.compiler.words import many
from kvplan.deploy import files, jobs, plan_index
from kvplan.deploy.nearest import nearest_path
from kvplan.deploy.plan_index import Leftovers
from kvplan.doctor.examine import limits
from kvplan.dsl.library import Library
from kvplan.dsl.named import is_path
from kvplan.plan.files.index import NAME


@click.command("compile")
@click.argument("models", metavar="MODEL…|DEPLOYMENT", nargs=-1, required=True, shell_complete=complete.models)
@pair_options(required=False)
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("plans"), show_default=True)
@click.option("--check", is_flag=True, help="Write nothing; fail, and show the diff, where plans on disk are stale.")
@click.option("--prune", is_flag=True, help="Remove plans that kvplan wrote and the deployment asks for no more.")
@layouts_option
@format_option("text", "json")
def command(models: tuple[str, ...], asked: AskedPairs, out: Path, check: bool, prune: bool, form: str) -> None:
    """Compile plans, one for each pair of sides.

    Either those of MODELs for every pair of --prefill and --decode, or all of a DEPLOYMENT file.

    A refused pair does not stop the others; the exit code is then 3. The file index.json in the directory says
    which plan is for which pair, so that engines find it.
    """
    found, wanted, whole = _wanted(models, asked)
    if prune and (check or not whole):
        raise click.UsageError("--prune goes with a deployment file, and without --check")
    if whole:
        with faults_in_deployments([*map(Path, models)], asked.layouts):
            outcome = jobs.run(found, wanted, watched)
    else:
        outcome = jobs.run_beside(out, found, wanted, watched)
    texts = {path: compiled.text for path, compiled in outcome.plans.items()}
    left = plan_index.leftovers(out, texts) if whole else Leftovers()
    # A refusal may be a slip: no plan is removed because of it, and none leaves the index.
    alone = whole and not outcome.refused
    index = plan_index.expected(out, outcome.plans, alone) if check else {}
    every = {**texts, **index}
    states = {path: files.state(out, path, text) for path, text in every.items()} if check else {}
    changed = files.not_current(states) if check else plan_index.write(out, outcome.plans, alone)
    removed = left.plans if prune and alone else ()
    if removed:
        plan_index.prune(out, removed)
    _say(
        form,
        CompileReport(
            out,
            check,
            states,
            every,
            changed,
            left,
            removed,
            outcome,
            _limits(found, outcome),
            [] if check else _hints(found, outcome),
        ),
    )
    if outcome.refused:
        sys.exit(failure.without_plan(outcome.refused))
    sys.exit(failure.WRONG if check and (changed or left) else 0)


@dataclass(frozen=True, slots=True)
class CompileReport:
    """The result of a compilation. `texts` are all files by path, `changed` the paths that are or were not current.

    `states` has the state of every file with --check, and is empty otherwise.
    """

    out: Path
    check: bool
    states: Mapping[str, str]
    texts: Mapping[str, str]
    changed: Sequence[str]
    left: Leftovers
    removed: Sequence[str]
    outcome: jobs.CompileOutcome
    # Reasons why connectors do not run these plans, found by doctor: headers of plans do not have them.
    limits: Sequence[str]
    # Hints on faster ways to move the bytes.
    hints: Sequence[str]

    @property
    def is_elsewhere(self) -> bool:
        """Whether the directory has none of the plans that were asked for: its path may be wrong."""
        return self.check and all(self.states[path] == "missing" for path in self.outcome.plans)

    @property
    def doubts(self) -> list[str]:
        return [*self.outcome.doubts, *self.limits]


def _limits(library: Library, outcome: jobs.CompileOutcome) -> list[str]:
    """A sentence for each reason why a connector does not run a plan, with the first such plan."""
    found: dict[str, str] = {}
    for path, compiled in outcome.plans.items():
        for part, side in (("prefill", compiled.prefill), ("decode", compiled.decode)):
            if why := limits(library, side, part):
                found.setdefault(f"kvplan's connector does not {part} with it on {side.engine} (I012): {why}", path)
    return [f"{path}: {said}" for said, path in found.items()]


def _hints(library: Library, outcome: jobs.CompileOutcome) -> list[str]:
    """Hints: plans that another strategy makes much faster, and the machine that strategies assume if none is named."""
    options = [dict(compiled.plan.options) for compiled in outcome.plans.values()]
    unnamed = any(chosen["strategy"] != DIRECT and MACHINE not in chosen for chosen in options)
    profile = library.machine(library.default_machine)
    by_machine = (
        f"no --machine is given: strategies are chosen for {profile.name} ({profile.title}). Name yours: "
        "`kvplan list` shows them, `kvplan calibrate` measures one"
    )
    return [*filter(None, [faster(outcome.plans, library)]), *([by_machine] if unnamed else [])]


def _wanted(models: Sequence[str], asked: AskedPairs) -> tuple[Library, list[jobs.PairJob], bool]:
    """The layout files, the pairs, and whether the pairs are those of whole deployments."""
    if asked.prefill and asked.decode:
        return *asked.jobs(models), False
    if asked.prefill or asked.decode or not all(is_path(model) for model in models):
        raise click.UsageError("give --prefill SIDE and --decode SIDE, or a deployment file without them")
    return *jobs.opened([*map(Path, models)], asked.options, asked.layouts), True


def _say(form: str, report: CompileReport) -> None:
    if form == "json":
        click.echo(json.dumps(_answer(report), indent=2))
        return
    out, states = report.out, report.states
    for path in report.changed:
        if states.get(path) == "missing":
            click.echo(f"missing: {out / path}")
        elif report.check:
            click.echo(painted_diff(files.unified(out, path, report.texts[path]).rstrip("\n")))
        elif path in report.outcome.plans:
            click.echo(f"wrote {out / path}")
    for path in report.removed:
        click.echo(f"removed {out / path}")
    for line in _left(report):
        say(line, err=True)
    for job, error in report.outcome.refused:
        say(failure.refusal(job, error, next(iter(job.places), None)), err=True)
    for doubt in report.doubts:
        say(doubt, err=True)
    for hint in report.hints:
        say(f"hint: {hint}", err=True)
    say(_summary(report), err=True)
    if report.check and report.changed:
        say(_to_do(report), err=True)


def _left(report: CompileReport) -> list[str]:
    """Lines about files that nothing asks for; none if the directory may be the wrong one."""
    if report.is_elsewhere:
        return []
    plans = (path for path in report.left.plans if path not in report.removed)
    return [
        *(f"{report.out / path}: {_why_left(path, report)}" for path in plans),
        *(f"{report.out / path}: kvplan did not write this file; move it elsewhere" for path in report.left.strays),
    ]


def _why_left(path: str, report: CompileReport) -> str:
    if not report.outcome.refused:
        return "no pair asks for this plan, so index.json leaves it out; --prune removes it"
    be = "is" if path in {job.path for job, _ in report.outcome.refused} else "may be"
    return f"it {be} the old plan of a refused pair: kept, in index.json, too"


def _to_do(report: CompileReport) -> str:
    # A plan that nothing asks for stays in the directory, and fails again, without --prune.
    prunes = report.left.plans and not (report.outcome.refused or report.is_elsewhere)
    asked = "with --prune in place of --check" if prunes else "without --check"
    write = f"the same command {asked}, then commit what it writes"
    if not report.is_elsewhere:
        return f"to bring them up to date: {write}"
    what = "has none of these plans" if report.out.is_dir() else "is no directory"
    near = "" if report.out.is_dir() else nearest_path(str(report.out))
    first = f"{near} Otherwise" if near else "check the path after -o first. If it is right"
    return f"{report.out} {what}: {first}: {write}"


def _summary(report: CompileReport) -> str:
    states, outcome = report.states, report.outcome
    plans = [path for path in report.changed if path in outcome.plans]
    missing = [path for path in plans if states.get(path) == "missing"]
    counts = {"stale" if report.check else "written": len(plans) - len(missing)}
    counts |= {"missing": len(missing)} if missing else {}
    counts |= {"up to date": len(outcome.plans) - len(plans)}
    counts |= {"removed": len(report.removed)} if report.removed else {}
    left = len(report.left.plans) + len(report.left.strays) - len(report.removed)
    counts |= {"refused": len(outcome.refused)} if outcome.refused else {}
    said = ", ".join(f"{n} {word}" for word, n in counts.items())
    said += f"; {many(left, 'other file')} {'kept' if outcome.refused else 'not asked for'}" if left else ""
    said += f"; {NAME} is {states[NAME]}" if states.get(NAME, "current") != "current" and not plans else ""
    every = len(outcome.plans) + len(outcome.refused)
    return f"{many(every, 'pair' if outcome.refused else 'plan')}: {said}"


def _answer(report: CompileReport) -> dict[str, object]:
    out, outcome = report.out, report.outcome
    checked = {
        path: {"state": state, "diff": files.unified(out, path, report.texts[path])}
        for path, state in report.states.items()
    }
    about = {path: {"changed": path in report.changed, **checked.get(path, {})} for path in (*outcome.plans, NAME)}
    refused = [{"pair": str(job), **failure.as_dict(error)} for job, error in outcome.refused]
    answer: dict[str, object] = {
        "plans": [
            {"path": str(out / path), "digest": compiled.plan.digest, **about[path]}
            for path, compiled in outcome.plans.items()
        ],
        "orphans": [str(out / path) for path in report.left.plans],
        "strays": [str(out / path) for path in report.left.strays],
        "removed": [str(out / path) for path in report.removed],
        "refused": refused,
        "doubts": report.doubts,
        "hints": list(report.hints),
        "index": {"path": str(out / NAME), **about[NAME]},
    }
    first = failure.as_dict(outcome.refused[0][1]) if outcome.refused else None
    return {"error": first, **answer} if first else answer
