"""kvplan show: a plan, or all pairs of a model, as a page or as a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvplan.cli.options import AskedPairs, format_option, layouts_option, leave_out, pair_options
from kvplan.cli.page.assemble import page
from kvplan.cli.progress import watched
from kvplan.compiler.errors import BadInput
from kvplan.deploy import plans

if TYPE_CHECKING:
    from kvplan.compiler.cost.cost import PlanCost
    from kvplan.plan.types import Plan

# The sides of a model if none are given.
SIDES = "tp=1/2/4/8"
FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
PAGE, STDOUT, SVG = Path("page.html"), Path("-"), ".svg"
Plain = dict[str, Any]


@click.command("show")
@click.argument("what", metavar="PLAN|MODEL")
@pair_options(required=False)
@click.option("--before", metavar="PLAN|REVISION", help="Show a change: the plan before, or the revision that has it.")
@click.option("--worker", type=int, metavar="N", help="The decode worker of an SVG; 0 by default.")
@click.option("--svg", is_flag=True, help="A figure for a text, without tables; so is a FILE that ends with .svg.")
@click.option("-o", "--out", type=FILE, default=PAGE, show_default=True)
@layouts_option
@format_option("text", "json")
def command(
    what: str, asked: AskedPairs, before: str | None, worker: int | None, svg: bool, out: Path, form: str
) -> None:
    """Show a plan, or what all pairs of sides cost, as a page.

    A PLAN on disk, or a MODEL with --prefill and --decode: both sides' pages to scale, what lands where, who reads
    whom. A MODEL with several pairs, or without sides: what each pair costs. The page is one file that loads nothing;
    `-o -` writes it to stdout.
    """
    _check_is_no_folder(what, asked)
    svg = svg or out.suffix == SVG
    _check_name(out, SVG if svg else PAGE.suffix)
    if svg:
        from kvplan.compiler.explain.picture.figure import figure

        leave_out("a figure shows no change", {"--before": before})
        named = out.with_suffix(SVG) if out == PAGE else out
        _write(figure(_plan(what, asked)[1], worker or 0), named, form)
        return
    leave_out("a page has all workers", {"--worker": worker})
    title, data = _data(what, asked, before)
    _write(page(title, data), out, form)


def _check_is_no_folder(what: str, asked: AskedPairs) -> None:
    """Raise BadInput (S021) for a directory of plans, unless a model has its name."""
    if not Path(what).is_dir():
        return
    from kvplan.dsl.library import load

    known = load((), asked.layouts)
    if what not in known.models and not known.family(what):
        plans.check_one(what)


def _check_name(out: Path, ends: str) -> None:
    """Raise UsageError if the suffix of a file contradicts what will be in it."""
    if out not in (PAGE, STDOUT) and out.suffix not in ("", ends):
        what = "figure" if ends == SVG else "page"
        raise click.UsageError(f"a {what} is written, and {out.name} says otherwise: end its name with {ends}")


def _write(text: str, out: Path, form: str) -> None:
    if out == STDOUT:
        click.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8")
    size = len(text.encode())
    click.echo(json.dumps({"path": str(out), "bytes": size}) if form == "json" else f"wrote {out}, {size:,} B")


def _data(what: str, asked: AskedPairs, before: str | None) -> tuple[str, Plain]:
    """The page's title, and its data."""
    from kvplan.compiler.explain.picture.describe_picture import picture

    given = asked.given() | ({"before": before} if before else {})
    command = " ".join(["kvplan show", what, *(f"--{name} {value}" for name, value in given.items())])
    if _several(what, asked):
        if before:
            raise click.UsageError(
                "--before is for one plan: give one --prefill and one --decode, or the path of a plan"
            )
        costs = _matrix(what, asked)
        return str(costs["model"]), {"command": command, "matrix": costs}
    text, plan, facts = _plan(what, asked)
    data = {"command": command, "plan": picture(plan, facts)}
    return f"{plan.title}: {plan.prefill.key} to {plan.decode.key}", data | (
        _change(before, what, text, asked.layouts) if before else {}
    )


def _several(what: str, asked: AskedPairs) -> bool:
    """Whether the command line means more than one plan."""
    from kvplan.compiler.side.text import sides

    if what.endswith(plans.SUFFIX):
        return False
    return not (asked.prefill and asked.decode) or len(sides(asked.prefill)) * len(sides(asked.decode)) > 1


def _plan(what: str, asked: AskedPairs) -> tuple[str, Plan, PlanCost]:
    """A plan's text, the plan and its cost."""
    if what.endswith(plans.SUFFIX):
        asked.leave_out("a plan has its own sides and options")
        return _on_disk(what, None)
    compiled = asked.compiled(what)
    return compiled.text, compiled.plan, compiled.facts


def _on_disk(what: str, like: str | None) -> tuple[str, Plan, PlanCost]:
    text = _one_text(what, like)
    return text, *plans.costed(text, what)


def _one_text(what: str, like: str | None) -> str:
    plans.check_one(what)
    texts = plans.read(what, like)
    if len(texts) != 1:
        raise BadInput("S021", f"{what!r} has {len(texts)} plans, and one is shown", "give the path of one plan")
    return next(iter(texts.values()))


def _former(before: str, path: str) -> tuple[str, str]:
    """The name and the text of the former plan. If a revision has it under another name, `diff` finds that one."""
    from kvplan.review.sources import former

    try:
        return before, _one_text(before, path or None)
    except BadInput:
        is_revision = ":" not in before.removeprefix(plans.GIT) and Path(path).is_file()
        found = former(before, path) if is_revision else None
        if found is None:
            raise
        return found


def _change(before: str, what: str, text: str, layouts: tuple[Path, ...]) -> Plain:
    """The former plan as a picture, and the result of `kvplan diff`: verdict, causes, effects, costs."""
    from kvplan.compiler.explain.picture.describe_picture import picture
    from kvplan.review.sources import change_of
    from kvplan.review.summary import told
    from kvplan.review.verdict import verdict

    path = what if what.endswith(plans.SUFFIX) else ""
    before, old = _former(before, path)
    plan, facts = plans.costed(old, before)
    found = change_of((before, old), (path, text), layouts)
    blocks = [[heading, [[one.rule, one.text] for one in changes]] for heading, changes in told(found) if changes]
    return {"before": picture(plan, facts), "change": {"verdict": verdict(found), "blocks": blocks}}


def _matrix(what: str, asked: AskedPairs) -> Plain:
    from kvplan.cli.commands.matrix import answer
    from kvplan.compiler.explain.matrix import matrix
    from kvplan.compiler.side.text import sides

    found, name = asked.library(what)
    prefills, decodes = sides(asked.prefill or SIDES), sides(asked.decode or SIDES)
    cells = matrix(found, name, prefills, decodes, asked.options, watched)
    return {**answer(name, asked.options, cells), "title": found.model(name).title}
