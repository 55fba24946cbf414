"""kvplan advise: which settings of two engines would move caches faster, and by how much."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import click

from kvplan.cli import complete, jobs
from kvplan.cli.commands.matrix import size
from kvplan.cli.options import format_option, layouts_option, side_options
from kvplan.cli.terminal import width
from kvplan.compiler.cost.cost import TOKENS
from kvplan.compiler.explain.advise import Advice, AdvisedPair, SettingChange, Sides, advise, worth
from kvplan.compiler.pair.elect import AUTO, DIRECT
from kvplan.compiler.words import columns
from kvplan.dsl.model import MachineProfile
from kvplan.dsl.named import library

LEGEND = (
    "time is that of the decode worker that takes longest; requests and bytes are those of all;",
    f"with --strategy {AUTO} a pair goes by unpack where decode reads whole pages, by pack otherwise",
)


@click.command("advise")
@click.argument("model", shell_complete=complete.models)
@side_options(required=True)
@click.option("--machine", metavar="NAME", help="The machine whose times count, the default one if not given.")
@click.option("--all", "every", is_flag=True, help="All that was compared, not only what wins time.")
@layouts_option
@format_option("text", "json")
def command(
    model: str, prefill: str, decode: str, machine: str | None, every: bool, layouts: tuple[Path, ...], form: str
) -> None:
    """Say which engine settings would move caches faster.

    Either engine is compared with each order, block size and the like that it can have, by itself and both alike, and
    each pair with every strategy: what one request of 1024 tokens takes, as the machine's profile predicts it. A
    setting is named as the engine has it. Not predicted is whether a kernel takes a block size, and how fast it then
    computes. `kvplan calibrate` makes a profile of a machine, which --layouts DIR finds.
    """
    layout_files, name = library(model, layouts)
    profile = layout_files.machine(machine or layout_files.default_machine)
    advice = advise(layout_files, name, prefill, decode, profile, lambda pairs: jobs.watched(pairs, _step))
    if form == "json":
        click.echo(json.dumps(answer(name, profile, advice), indent=2))
        return
    click.echo(text(name, profile, advice, advice.others if every else worth(advice)))


def _step(sides: Sides) -> str:
    return " -> ".join(side.text for side in sides)


def answer(model: str, profile: MachineProfile, advice: Advice) -> dict[str, object]:
    """Everything that was compared, the fastest first."""
    machine = {"name": profile.name, "says": profile.says}
    told = dataclasses.asdict(advice)
    best = [dataclasses.asdict(each) for each in worth(advice)]
    return {"model": model, "tokens": TOKENS, "machine": machine, **told, "worth": best}


def text(model: str, profile: MachineProfile, advice: Advice, shown: Sequence[AdvisedPair]) -> str:
    now = advice.now
    head = [
        f"{model}, one request of {TOKENS:,} tokens: {now.prefill} -> {now.decode}",
        *wrap(f"times by {profile.name}: {profile.says}", width()),
        "",
    ]
    rows = [_row(each, now) for each in (now, *shown)]
    table = columns(("     time", "of now", "requests", "bytes", "strategy", "change"), rows)
    refused = [f"{advice.refused} combinations are refused, as `kvplan matrix` says it"] if advice.refused else []
    nothing = [] if shown else ["", "nothing that these engines can be set to wins time"]
    return "\n".join([*head, *table, *nothing, "", *LEGEND, *refused])


def _row(each: AdvisedPair, now: AdvisedPair) -> tuple[object, ...]:
    alone = "as it is" if each.strategy == DIRECT else f"kvplan compile --strategy {AUTO}"
    change = "; ".join(map(_told, each.changes)) or alone
    time, part = f"{each.us / 1000:9,.2f} ms", f"{100 * each.us / now.us:4.0f} %"
    return time, part, each.requests, size(each.bytes), each.strategy, change


def _told(change: SettingChange) -> str:
    """`decode: --block-size 64 (now 16)`: a flag has a space before its value, a variable an equals sign."""
    equals = " " if change.setting.startswith("-") else "="
    return f"{change.side}: {change.setting}{equals}{change.then} (now {change.now})"
