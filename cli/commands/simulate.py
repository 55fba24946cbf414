"""kvplan simulate: run plans on numpy buffers, and compare the result with naive indexing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import click
from rich.progress import Progress

from kvplan.cli import complete, progress
from kvplan.cli import errors as failure
from kvplan.cli.options import AskedPairs, format_option, layouts_option, pair_options
from kvplan.cli.requests import AskedRequest, request_options
from kvplan.cli.terminal import say
from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.sample import not_reached
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies, ways
from kvplan.deploy import jobs, plans
from kvplan.plan.block_tables import blocks
from kvplan.plan.planes import planes
from kvplan.plan.request import Request
from kvplan.plan.types import Plan

# The limit for one plane of a worker.
MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of a simulation of the tokens [first, end).

    `not_reached` names the caches whose window or chunk leaves out none of these tokens. For each it has an `end`: of
    the tokens [0, end) some would be left out.
    """

    tokens: tuple[int, int]
    verdict: Verdict
    not_reached: Mapping[str, int]

    def text(self) -> str:
        first, end = self.tokens
        more = (
            f"\n  the window or chunk of {name} leaves out none of these tokens: --tokens 0:{stop} tests it"
            for name, stop in self.not_reached.items()
        )
        return f"  tokens {first}:{end}: {self.verdict.text()}{''.join(more)}"


@click.command("simulate")
@click.argument("what", metavar="PLAN…|MODEL…", nargs=-1, required=True, shell_complete=complete.models)
@pair_options(required=False, pool=True)
@request_options
@layouts_option
@format_option("text", "json")
def command(what: tuple[str, ...], asked: AskedPairs, wanted: AskedRequest, form: str) -> None:
    """Run plans on numpy buffers, compare each byte.

    Takes PLANs on disk, or MODELs with --prefill and --decode. The buffers hold labels; what arrives is compared with
    naive indexing of the caches.
    """
    pairs = {str(job): (job, compiled) for job, compiled in _pairs(what, asked)}
    with progress.progress() as bar:
        every = progress.stepped(bar, [job for job, _ in pairs.values()])
        done, refused = jobs.each(every, lambda job: _simulate(pairs[str(job)][1](), wanted, bar))
    if form == "json":
        click.echo(json.dumps(_answer(done, refused), indent=2))
    else:
        lines = [f"{job}\n{simulated.text()}" for job, simulated in done]
        say("\n".join(lines))
        say("\n".join(failure.refusal(*pair) for pair in refused), err=True)
    right = all(simulated.verdict.right for _, simulated in done)
    sys.exit(failure.WRONG if not right else failure.without_plan(refused))


def _pairs(what: Sequence[str], asked: AskedPairs) -> Iterable[tuple[jobs.PairJob, Callable[[], Compiled]]]:
    """Every pair with a function that compiles it: pairs of plans on disk, or of models with both sides."""
    if any(one.endswith(plans.SUFFIX) for one in what) or not (asked.prefill and asked.decode):
        return [(jobs.of_plan(one.plan), partial(_same, one)) for one in map(asked.compiled, what)]
    library, every = asked.jobs(what)
    return [(job, partial(compile_pair, library, job.model, job.prefill, job.decode, job.options)) for job in every]


def _same(compiled: Compiled) -> Compiled:
    return compiled


def _answer(
    done: Iterable[tuple[jobs.PairJob, Simulated]], refused: Iterable[tuple[jobs.PairJob, Exception]]
) -> dict[str, object]:
    pairs = {
        str(job): {
            "tokens": list(found.tokens),
            **asdict(found.verdict),
            "right": found.verdict.right,
            "not_reached": dict(found.not_reached),
        }
        for job, found in done
    }
    errors = {str(job): {"error": failure.as_dict(error)} for job, error in refused}
    return {**next(iter(errors.values()), {}), **pairs, **errors}


def _simulate(compiled: Compiled, wanted: AskedRequest, bar: Progress) -> Simulated:
    sides = compiled.prefill, compiled.decode
    request = wanted.of(*sides)
    _check_size(compiled.plan, request)
    watched = partial(progress.stepped, bar, say=lambda plane: f"{plane[1][1]} of decode worker {plane[1][0]}")
    moves = (copies(compiled.plan, request, way) for way in ways(compiled.plan))
    verdicts = [simulate(compiled.plan, *sides, moved, request, watched) for moved in moves]
    worst = next((verdict for verdict in verdicts if not verdict.right), verdicts[0])
    return Simulated(request.tokens, worst, not_reached(compiled.decode, request.tokens))


def _check_size(plan: Plan, request: Request) -> None:
    """Raise UsageError if a plane is too large: every byte of it takes a label of eight bytes."""
    for side, tables in ((plan.prefill, request.prefill), (plan.decode, request.decode)):
        pages = {g.name: g.ratio * len(blocks(tables[g.name]).ids) for g in side.groups if g.name in tables}
        every = (plane for worker in dict.fromkeys(side.workers) for plane in planes(worker))
        sizes = (pages.get(plane.group, 0) * plane.page for plane in every)
        if (most := max(sizes, default=0)) > MOST_BYTES:
            text = f"a plane of {most >> 20:,} MiB is more than is simulated ({MOST_BYTES >> 20} MiB)"
            raise click.UsageError(f"{text}: give fewer tokens, or smaller blocks")
