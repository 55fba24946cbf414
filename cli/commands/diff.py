"""kvplan diff: the changes between plans, folded for a review, judged for a pipeline."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kvplan.cli import errors as failure
from kvplan.cli.commands.check import faults_in_deployments
from kvplan.cli.fleets import EtcdAccess, engines_of, etcd_options, places_of
from kvplan.cli.options import format_option, layouts_option, leave_out
from kvplan.cli.progress import watched
from kvplan.cli.terminal import width
from kvplan.dsl.named import is_layout_file
from kvplan.review import judge, reports
from kvplan.review.markdown import markdown
from kvplan.review.rollout import fleet_rollout
from kvplan.review.sources import annotated, compared


@click.command("diff")
@click.argument("old")
@click.argument("new")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="RULE",
    help="A rule or a category that fails, repeatable; by default all but TEXT, PAIR_NEW and a lower cost.",
)
@click.option("--cost-growth", metavar="10%", help="By how much a COST may grow before it fails; 0% by default.")
@click.option(
    "--accept", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"A file of accepted changes, with reasons; {judge.FILE} by default, if it exists.",
)  # fmt: skip
@click.option(
    "--review", type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="A file to write the report to as Markdown, too.",
)  # fmt: skip
@click.option("--verbose", is_flag=True, help="Also show every change of every plan.")
@click.option(
    "--fleet",
    metavar="URL[,URL]|FILE",
    help="Engines that run, from etcd or a file: say which to roll first.",
)
@etcd_options
@layouts_option
@format_option(*reports.FORMATS)
def command(
    old: str, new: str, fail_on: tuple[str, ...], cost_growth: str | None, accept: Path | None, review: Path | None,
    verbose: bool, fleet: str | None, etcd: EtcdAccess, layouts: tuple[Path, ...], form: str,
) -> None:  # fmt: skip
    """Compare plans by what they do.

    OLD and NEW are each a deployment file, which is compiled first, a plan, a directory of plans, git:REVISION:PATH of
    a plan or such a directory, or git:REVISION (with the path of the other one); git: may be left out.

    With --fleet it also says which engines change, which of them can talk while one index has the plans of both OLD
    and NEW, and which to roll out first. --prefix, --ca, --cert, --cert-key and --seconds are etcd connection options.

    Exit codes: 0 nothing fails, 1 a rule fails, 2 bad input, 3 a pair of a deployment is refused, 70 a fault of kvplan.
    """
    if not fleet:
        leave_out("these are of the etcd of --fleet", etcd.given())
    policy = judge.policy(fail_on, cost_growth, accept)
    engines = engines_of(places_of(fleet), etcd) if fleet else None
    with faults_in_deployments([Path(name) for name in (old, new) if is_layout_file(name)], layouts):
        found = compared(old, new, layouts, engines is not None, watched)
    judgement = judge.judged(found.review, policy)
    rollout = None if engines is None else fleet_rollout(engines, found.review, found.before, found.after)
    if review:
        review.write_text(f"{markdown(found.review, judgement, rollout)}\n", "utf-8")
    said = reports.report(form, found.review, judgement, annotated(old, new), verbose, rollout, width())
    click.echo(said.rstrip("\n"))
    sys.exit(failure.without_plan(found.refused) or (failure.WRONG if judgement.rules else 0))
