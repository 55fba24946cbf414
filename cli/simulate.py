"""kvplan simulate: the plan on numpy buffers against naive indexing."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from kvplan.cli import failure, jobs
from kvplan.cli.options import compile_options, format_option, layouts_option, libraries, side_options

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled
    from kvplan.compiler.report import Report
    from kvplan.compiler.request import Request
    from kvplan.dsl.library import Library


@click.command("simulate")
@click.argument("models", metavar="MODEL…", nargs=-1, required=True)
@side_options(required=True)
@compile_options
@click.option("--tokens", metavar="FIRST:END", help="The tokens needed; by default one and a half blocks, less a few.")
@click.option("--seed", default=0, show_default=True, help="Draws the block ids.")
@click.option("--request", type=click.File("r", encoding="utf-8", errors="replace"), help="A JSON file, as for trace.")
@layouts_option
@format_option("text", "json")
def command(
    models: tuple[str, ...], prefill: str, decode: str, options: Mapping[str, str], tokens: str | None, seed: int,
    request: TextIO | None, layouts: tuple[Path, ...], form: str,
) -> None:  # fmt: skip
    """Run plans on numpy buffers, compare each byte.

    The buffers hold labels; what arrives is compared with naive indexing of the caches.
    """
    found, names = libraries(models, layouts)
    text = request.read() if request else None
    wanted = jobs.product(names, prefill, decode, options)
    reports, refused = _run(wanted, lambda job: _simulate(found, job, text, tokens, seed))
    if form == "json":
        click.echo(json.dumps(_answer(reports, refused), indent=2))
    else:
        click.echo("".join(f"{name}\n  {report.text()}\n" for name, report in reports.items()), nl=False)
        click.echo("".join(f"{failure.refusal(*pair)}\n" for pair in refused.items()), nl=False, err=True)
    right = all(report.right for report in reports.values())
    sys.exit(failure.WRONG if not right else failure.REFUSED if refused else 0)


def _run(
    wanted: Sequence[jobs.Job], simulated: Callable[[jobs.Job], Report]
) -> tuple[dict[str, Report], dict[str, Exception]]:
    """Reports by pair, and the pairs that were refused, which do not stop the others."""
    from kvplan.compiler.errors import Refused

    reports: dict[str, Report] = {}
    refused: dict[str, Exception] = {}
    for job in jobs.watched(wanted):
        try:
            reports[str(job)] = simulated(job)
        except Refused as error:
            refused[str(job)] = error
    return reports, refused


def _answer(reports: Mapping[str, Report], refused: Mapping[str, Exception]) -> dict[str, object]:
    pairs = {name: _json(report) for name, report in reports.items()}
    said = {name: {"error": failure.as_dict(error)} for name, error in refused.items()}
    return {**next(iter(said.values()), {}), **pairs, **said}


def _simulate(library: Library, job: jobs.Job, text: str | None, tokens: str | None, seed: int) -> Report:
    from kvplan.compiler.api import compile_pair
    from kvplan.compiler.fits import check
    from kvplan.compiler.simulate import simulate
    from kvplan.compiler.trace import copies

    compiled = compile_pair(library, job.model, job.prefill, job.decode, job.options)
    request = _request(compiled, text, tokens, seed)
    check(request, compiled.prefill, compiled.decode)
    return simulate(compiled.plan, compiled.prefill, compiled.decode, copies(compiled.plan, request), request)


def _request(compiled: Compiled, text: str | None, tokens: str | None, seed: int) -> Request:
    from kvplan.compiler.request import parse_text
    from kvplan.compiler.sample import sample_request

    if text is not None:
        return parse_text(text)
    return sample_request(compiled.prefill, compiled.decode, _range(tokens) if tokens else _some(compiled), seed)


def _range(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        raise click.BadParameter(
            f"{text!r} is not FIRST:END with FIRST before END, for example 0:5000", param_hint="--tokens"
        )
    return int(first), int(end)


def _some(compiled: Compiled) -> tuple[int, int]:
    """A range that begins and ends inside blocks of both sides and spans at least one whole one."""
    sides = (compiled.prefill, compiled.decode)
    largest = max((g.tokens * s.ways for s in sides for g in s.groups), default=0)
    return 3, max(100, largest * 5 // 2 - 3)


def _json(report: Report) -> dict[str, object]:
    return {**dataclasses.asdict(report), "right": report.right}
