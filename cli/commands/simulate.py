"""kvplan simulate: the plan on numpy buffers against naive indexing."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import click

from kvplan.cli import errors as failure
from kvplan.cli import jobs
from kvplan.cli.options import compile_options, format_option, layouts_option, libraries, side_options
from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.request import check, parse_text
from kvplan.compiler.check.sample import sample_range, sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import Library
from kvplan.plan.request import Request


@dataclasses.dataclass(frozen=True, slots=True)
class SimulatedPair:
    """A simulation: the tokens needed, [first, end), and what was found."""

    tokens: tuple[int, int]
    report: Verdict


@click.command("simulate")
@click.argument("models", metavar="MODEL…", nargs=-1, required=True)
@side_options(required=True)
@compile_options
@click.option(
    "--tokens",
    metavar="FIRST:END",
    help="The tokens needed. By default from inside the first block over more than one, so far that windows and "
    "chunks of up to 512 tokens leave some out; around a multiple of a longer chunk.",
)
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
        click.echo(
            "".join(f"{name}\n  {_tokens(done)}: {done.report.text()}\n" for name, done in reports.items()), nl=False
        )
        click.echo("".join(f"{failure.refusal(*pair)}\n" for pair in refused.items()), nl=False, err=True)
    right = all(done.report.right for done in reports.values())
    sys.exit(failure.WRONG if not right else failure.REFUSED if refused else 0)


def _run(
    wanted: Sequence[jobs.PairJob], simulated: Callable[[jobs.PairJob], SimulatedPair]
) -> tuple[dict[str, SimulatedPair], dict[str, Exception]]:
    """Simulations by pair, and the pairs that were refused, which do not stop the others."""
    reports: dict[str, SimulatedPair] = {}
    refused: dict[str, Exception] = {}
    for job in jobs.watched(wanted):
        try:
            reports[str(job)] = simulated(job)
        except Refused as error:
            refused[str(job)] = error
    return reports, refused


def _answer(reports: Mapping[str, SimulatedPair], refused: Mapping[str, Exception]) -> dict[str, object]:
    pairs = {name: _json(done) for name, done in reports.items()}
    said = {name: {"error": failure.as_dict(error)} for name, error in refused.items()}
    return {**next(iter(said.values()), {}), **pairs, **said}


def _simulate(library: Library, job: jobs.PairJob, text: str | None, tokens: str | None, seed: int) -> SimulatedPair:
    compiled = compile_pair(library, job.model, job.prefill, job.decode, job.options)
    request = _request(compiled, text, tokens, seed)
    check(request, compiled.prefill, compiled.decode)
    found = copies(compiled.plan, request)
    return SimulatedPair(request.tokens, simulate(compiled.plan, compiled.prefill, compiled.decode, found, request))


def _request(compiled: Compiled, text: str | None, tokens: str | None, seed: int) -> Request:
    if text is not None:
        return parse_text(text)
    sides = compiled.prefill, compiled.decode
    return sample_request(*sides, _range(tokens) if tokens else sample_range(*sides), seed)


def _range(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        raise click.BadParameter(
            f"{text!r} is not FIRST:END with FIRST before END, for example 0:5000", param_hint="--tokens"
        )
    return int(first), int(end)


def _tokens(done: SimulatedPair) -> str:
    return f"tokens {done.tokens[0]}:{done.tokens[1]}"


def _json(done: SimulatedPair) -> dict[str, object]:
    return {"tokens": list(done.tokens), **dataclasses.asdict(done.report), "right": done.report.right}
