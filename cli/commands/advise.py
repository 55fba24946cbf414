"""kvplan advise: which settings of two engines would move caches faster, and by how much."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import click

from kvplan.cli import complete, jobs
from kvplan.cli.commands.matrix import size
from kvplan.cli.options import format_option, layouts_option, side_options
from kvplan.cli.terminal import fitted, say, table, width
from kvplan.compiler.cost.cost import TOKENS
from kvplan.compiler.explain.advise import Advice, AdvisedPair, SettingChange, Sides, advise, worth
from kvplan.compiler.pair.elect import AUTO, DIRECT
from kvplan.dsl.model import MachineProfile
from kvplan.dsl.named import library

LEGEND = (
    "time is that of the slowest decode worker; descriptors and bytes are those of all workers;",
    f"with --strategy {AUTO} decode unpacks if it reads whole pages; otherwise prefill packs",
)


@click.command("advise")
@click.argument("model", shell_complete=complete.models)
@side_options(required=True)
@click.option("--machine", metavar="NAME", help="Predict times by this machine's profile.")
@click.option("--all", "every", is_flag=True, help="Show every setting that was tried, not only faster ones.")
@layouts_option
@format_option("text", "json")
def command(
    model: str, prefill: str, decode: str, machine: str | None, every: bool, layouts: tuple[Path, ...], form: str
) -> None:
    """Say which engine settings would move caches faster.

    For each engine, and for both together, it tries each order, block size and similar option, with every strategy,
    and predicts from the machine's profile how long one request of 1024 tokens takes. Settings have the engine's own
    names. It does not predict whether a kernel accepts a block size, or how fast it then computes. `kvplan calibrate`
    writes a profile of a machine; --layouts DIR finds it.
    """
    layout_files, name = library(model, layouts)
    profile = layout_files.machine(machine or layout_files.default_machine)
    advice = advise(layout_files, name, prefill, decode, profile, lambda pairs: jobs.watched(pairs, _step))
    if form == "json":
        click.echo(json.dumps(answer(name, profile, advice), indent=2))
        return
    say(text(name, profile, advice, advice.others if every else worth(advice)))


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
        fitted(f"times by {profile.name}: {profile.says}", width()),
        "",
    ]
    rows = [_row(each, now) for each in (now, *shown)]
    lines = table(("     time", "of now", "descriptors", "bytes", "strategy", "change"), rows)
    refused = [f"{advice.refused} combinations are refused, as `kvplan matrix` says it"] if advice.refused else []
    nothing = [] if shown else ["", "no setting of these engines is faster"]
    return "\n".join([*head, *lines, *nothing, "", *LEGEND, *refused])


def _row(each: AdvisedPair, now: AdvisedPair) -> tuple[object, ...]:
    alone = "as it is" if each.strategy == DIRECT else f"kvplan compile --strategy {AUTO}"
    change = "; ".join(map(_told, each.changes)) or alone
    time, part = f"{each.us / 1000:9,.2f} ms", f"{100 * each.us / now.us:4.0f} %"
    return time, part, each.descriptors, size(each.bytes), each.strategy, change


def _told(change: SettingChange) -> str:
    """`decode: --block-size 64 (now 16)`: a flag has a space before its value, a variable an equals sign."""
    equals = " " if change.setting.startswith("-") else "="
    return f"{change.side}: {change.setting}{equals}{change.then} (now {change.now})"
