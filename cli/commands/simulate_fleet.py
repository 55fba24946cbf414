"""kvplan simulate-fleet: say which pair of sides serves some traffic best."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap

import click

from kvplan.cli.errors import REFUSED, as_dict, refusal
from kvplan.cli.extras import check_extra
from kvplan.cli.options import format_option, layouts_option
from kvplan.cli.progress import watched
from kvplan.cli.terminal import say, width
from kvplan.compiler.errors import Refused
from kvplan.compiler.words import columns, many
from kvplan.dsl.library import load
from kvplan.dsl.schema.fleet import FleetFile
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.traffic.arrivals import Arrival, arrivals_of
from kvplan.traffic.candidates import pairs_of, simulated_pair
from kvplan.traffic.figures import CandidateFigures, best_of, bound, figures_of, why
from kvplan.traffic.plot import SUFFIXES, ComparedRun, draw
from kvplan.traffic.simulate import simulated

HEAD = ("", "milliseconds", "first token p50", "p90", "p99", "moved p50", "p90", "p99", "requests/s", "lost")
BUSY = ("busy, %", "compute", "posting", "rails", "cores", "prefill blocks", "decode blocks", "refused", "expired")
LEGEND = (
    "first token: since it arrived; moved: since it was computed and decode had blocks; lost: refused or expired;",
    "busy is who of a sort is busiest, as a share of the time; blocks are the most that were in use at once",
)


@click.command("simulate-fleet")
@click.argument("file", metavar="FLEET.yaml", type=click.Path(path_type=Path))
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Draw times and what they are made of, as FILE.svg or FILE.png.")  # fmt: skip
@layouts_option
@format_option("text", "json")
def command(file: Path, plot: Path | None, layouts: tuple[Path, ...], form: str) -> None:
    """Say which pair of sides serves some traffic best.

    FLEET.yaml has the engines' figures, the pairs to choose from, and what arrives: a trace in Mooncake's format, or
    arrivals that are drawn. Every request goes through queues, blocks, cards and the runtime's limits, what moving
    costs being what the machine's profile says. The same file gives the same answer.
    """
    check_extra("simpy", "simulate")
    if plot is not None:
        check_plot(plot)
    library = load((), layouts)
    fleet = library.fleet(file)
    profile = library.machine(fleet.machine or library.default_machine)
    arrivals = arrivals_of(fleet)
    compared, refused = list[ComparedRun](), dict[str, Refused]()
    for pair in watched(pairs_of(fleet), lambda pair: pair.name):
        try:
            run = simulated(simulated_pair(library, fleet, pair, profile), arrivals)
            compared.append((figures_of(pair.name, run), run))
        except Refused as error:
            refused[pair.name] = error
    figures = [figures for figures, _ in compared]
    if plot is not None:
        draw(compared, plot)
    said = answer if form == "json" else text
    say(said(FleetComparison(fleet, profile, arrivals, figures, refused)))
    if not figures:
        sys.exit(REFUSED)


def check_plot(path: Path) -> None:
    """Raise BadInput (S033) if matplotlib is missing, and BadParameter for another type of picture."""
    if path.suffix not in SUFFIXES:
        raise click.BadParameter(f"{path} is no {' or '.join(SUFFIXES)}", param_hint="--plot")
    check_extra("matplotlib", "plots")


@dataclasses.dataclass(frozen=True, slots=True)
class FleetComparison:
    """A fleet, the profile and arrivals of its simulation, and figures of every candidate that was not refused."""

    fleet: FleetFile
    profile: MachineProfile
    arrivals: Sequence[Arrival]
    figures: Sequence[CandidateFigures]
    refused: Mapping[str, Refused]


def answer(found: FleetComparison) -> str:
    """All figures as JSON; null stands for values that do not exist."""
    best = best_of(found.figures)
    told = {
        "fleet": found.fleet.name,
        "model": found.fleet.model,
        "machine": {"name": found.profile.name, "says": found.profile.says},
        "requests": len(found.arrivals),
        "candidates": [dataclasses.asdict(each) for each in found.figures],
        "best": best and {"name": best.name, "why": why(best, found.figures), "bound": bound(best)},
        "refused": [{"name": name, **as_dict(error)} for name, error in found.refused.items()],
    }
    return json.dumps(_plain(told), indent=2)


def _plain(value: object) -> object:
    """The value with None in place of numbers that JSON lacks, such as infinity."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text(found: FleetComparison) -> str:
    """A table of times, a table of shares of the time, and the answer."""
    fleet, profile, figures = found.fleet, found.profile, found.figures
    best = best_of(figures)
    lines = [
        f"{fleet.name}: {fleet.model}, {traffic(found.arrivals)}",
        *wrap(f"moving by {profile.name}: {profile.says}", width()),
        "",
        *columns(HEAD, [_times(each, each is best) for each in figures]),
        "",
        *columns(BUSY, [_shares(each) for each in figures]),
        "",
        *LEGEND,
        *(refusal(name, error) for name, error in found.refused.items()),
        "",
        f"best: {best.name}; {why(best, figures)}; {bound(best)}" if best else "no pair answers anything",
    ]
    return "\n".join(lines)


def traffic(arrivals: Sequence[Arrival]) -> str:
    """`1,000 requests in 60 s, of 1,500 tokens and 200 answered in the mean`."""
    if not arrivals:
        return "nothing arrives"
    prompt, output = (sum(getattr(each, name) for each in arrivals) / len(arrivals) for name in ("input", "output"))
    seconds = (arrivals[-1].at - arrivals[0].at) / 1e6
    count = many(len(arrivals), "request")
    return f"{count} in {seconds:,.0f} s, of {prompt:,.0f} tokens and {output:,.0f} answered in the mean"


def _times(each: CandidateFigures, best: bool) -> tuple[object, ...]:
    times = (each.first_token, each.transfer)
    numbers = [_number(value, 1) for time in times for value in (time.p50, time.p90, time.p99)]
    return "*" if best else "", each.name, *numbers, _number(each.per_second, 2), each.lost


def _shares(each: CandidateFigures) -> tuple[object, ...]:
    busy = each.busy.compute, each.busy.posting, each.busy.rails, each.busy.cores
    shares = [_number(100 * share, 0) for share in (*busy, each.prefill_blocks, each.decode_blocks)]
    return each.name, *shares, each.refused, each.expired


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if math.isfinite(value) else "–"
