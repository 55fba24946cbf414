"""kvplan advise: the settings of two engines that would move caches faster, and by how much."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import click

from kvplan.cli import complete
from kvplan.cli.commands.matrix import size
from kvplan.cli.options import format_option, layouts_option, side_options
from kvplan.cli.progress import watched
from kvplan.cli.requests import MOST_TOKENS
from kvplan.cli.terminal import fitted, say, table, width
from kvplan.compiler.api import settled
from kvplan.compiler.cost.cost import TOKENS
from kvplan.compiler.explain.advise import Advice, AdvisedPair, SettingChange, Sides, advise, worth
from kvplan.compiler.options import AUTO, DIRECT
from kvplan.dsl.named import library
from kvplan.dsl.schema.machine import MachineProfile

LEGEND = (
    "time is that of the slowest decode worker; descriptors and bytes are those of all workers;",
    f"with --strategy {AUTO} decode unpacks if it reads whole pages; otherwise prefill packs;",
    "`options:` are those of the pair in a deployment",
)
UNNAMED = (
    "No --machine is given: here are the times on each machine that kvplan has a profile of, with the best change, the",
    "best two, and so on. `--machine NAME` has all settings that are as fast. If yours is none of these, measure it:",
    "`kvplan calibrate -o profiles/NAME.yaml`, then `--machine NAME --layouts profiles`.",
)


@click.command("advise")
@click.argument("model", shell_complete=complete.models)
@side_options(required=True)
@click.option("--machine", metavar="NAME", help="Predict times by this machine's profile, not by every known one.")
@click.option(
    "--strategy", metavar="NAME", default=DIRECT, help="The strategy of the pair's plan now; direct by default."
)
@click.option(
    "--tokens", type=click.IntRange(1, MOST_TOKENS), default=TOKENS, show_default=True, help="Length of the request."
)
@click.option("--all", "every", is_flag=True, help="Show every setting that was tried, not only faster ones.")
@layouts_option
@format_option("text", "json")
def command(
    model: str,
    prefill: str,
    decode: str,
    machine: str | None,
    strategy: str,
    tokens: int,
    every: bool,
    layouts: tuple[Path, ...],
    form: str,
) -> None:
    """Say which engine settings would move caches faster.

    For each engine, and for both together, it tries each order, block size and similar option, with every strategy,
    and predicts how long one request takes. Times depend on the wire, so they are predicted from a
    machine's profile; without --machine, from each one that is known. Settings have the engine's own names. It does
    not predict whether a kernel accepts a block size, or how fast it then computes. `kvplan calibrate` writes a profile
    of a machine; --layouts DIR finds it.
    """
    settled({"strategy": strategy})
    layout_files, name = library(model, layouts)
    names = [machine] if machine else list(layout_files.machines)
    found = {
        profile: advise(
            layout_files, name, prefill, decode, profile, lambda pairs: watched(pairs, _step), strategy, tokens
        )
        for profile in map(layout_files.machine, names)
    }
    if form == "json":
        answers = [answer(profile, advice) for profile, advice in found.items()]
        click.echo(json.dumps({"model": model, "tokens": tokens, "machines": answers}, indent=2))
        return
    now = next(iter(found.values())).now
    say(f"{model}, one request of {tokens:,} tokens: {now.prefill} -> {now.decode}")
    for profile, advice in found.items():
        title = [f"{profile.title} ({profile.name})", *([fitted(profile.says, width())] if machine else [])]
        say(text(model, title, profile, advice, _shown(advice, bool(machine), every)))
    say("\n".join(["", *LEGEND, *(() if machine else ("", *UNNAMED))]))


def _step(sides: Sides) -> str:
    return " -> ".join(side.text for side in sides)


def _shown(advice: Advice, alone: bool, every: bool) -> Sequence[AdvisedPair]:
    """The settings that a table shows; beside tables of other machines, one for each number of changes."""
    if every:
        return advice.others
    best = worth(advice)
    return best if alone else [next(alike) for _, alike in groupby(best, key=lambda each: len(each.changes))]


def answer(profile: MachineProfile, advice: Advice) -> dict[str, object]:
    """All settings that were compared on one machine, the fastest first."""
    machine = {"name": profile.name, "says": profile.says}
    best = [dataclasses.asdict(each) for each in worth(advice)]
    return {"machine": machine, **dataclasses.asdict(advice), "worth": best}


def text(
    model: str, title: Sequence[str], profile: MachineProfile, advice: Advice, shown: Sequence[AdvisedPair]
) -> str:
    """A table of one machine, under its title."""
    head = ["", *title, ""]
    rows = [_row(each, advice.now, profile) for each in (advice.now, *shown)]
    lines = table(("     time", "times faster", "descriptors", "bytes", "strategy", "change"), rows)
    words = ["kvplan", "matrix", model, "--prefill", advice.every[0], "--decode", advice.every[1]]
    refused = (
        [f"{advice.refused} combinations are refused; this says why: {shlex.join(words)}"] if advice.refused else []
    )
    nothing = [] if shown else ["no setting of these engines is faster"]
    return "\n".join([*head, *lines, *nothing, *refused])


def _row(each: AdvisedPair, now: AdvisedPair, profile: MachineProfile) -> tuple[object, ...]:
    change = "; ".join([*map(_change_text, each.changes), *_strategy_text(each, now, profile)]) or "as it is"
    time, faster = f"{each.us / 1000:9,.2f} ms", f"{now.us / each.us:12,.1f}"
    return time, faster, each.descriptors, size(each.bytes), each.strategy, change


def _strategy_text(each: AdvisedPair, now: AdvisedPair, profile: MachineProfile) -> list[str]:
    """The options of a pair whose strategy is not that of the pair as it is; none otherwise."""
    if each.strategy == now.strategy:
        return []
    if each.changes:
        return [f"with --strategy {DIRECT if each.strategy == DIRECT else AUTO}"]
    chosen = f"{AUTO}, machine: {profile.name}" if now.strategy == DIRECT else each.strategy
    return [f"options: {{strategy: {chosen}}}"]


def _change_text(change: SettingChange) -> str:
    """`decode: --block-size 64 (now 16)`: a flag has a space before its value, a variable an equals sign.

    The engine's word for the present value is followed by the side's: `(now LBNHC, nhd)`.
    """
    equals = " " if change.setting.startswith("-") else "="
    now = f"{change.now}, {change.alias}" if change.alias else change.now
    return f"{change.side}: {change.setting}{equals}{change.then} (now {now})"
