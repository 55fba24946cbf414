"""kvplan calibrate: the cost of transfers and copies on this machine, as a machine file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kvplan.cli.progress import watched
from kvplan.dsl.schema.fields import LABEL

UNNAMED = "this-machine"
WIRE = "this is the wire between two processes of this machine; between hosts, a network card takes other times"


@click.command("calibrate")
@click.option("-o", "--out", metavar="FILE.yaml", type=click.Path(dir_okay=False, path_type=Path),
              help="Where to, named as the file is; stdout if not given. No file is overwritten.")  # fmt: skip
@click.option("--memory", type=click.Choice(["DRAM", "VRAM"], case_sensitive=False), default="DRAM", show_default=True,
              help="The host's, or that of the first GPU, which takes torch.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=25, show_default=True,
              help="How often each is timed, in turns; medians count.")  # fmt: skip
@click.option(
    "--mib",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="MiB of one transfer or copy: more than caches of processors hold.",
)
def command(out: Path | None, memory: str, rounds: int, mib: int) -> None:
    """Measure what transfers and copies cost on this machine.

    Transfers are between two processes of this machine over NIXL, not over a network card. UCX_TLS and the like count
    as in an engine. It takes seconds. `kvplan advise --machine NAME --layouts DIR` predicts by what is measured. A
    busy machine gives times of a busy machine, and the file says how busy it was.
    """
    from kvplan.calibrate.machine_text import machine_text
    from kvplan.calibrate.measure import calibrated
    from kvplan.compiler.errors import BadInput
    from kvplan.demo.processes import ProcessError

    if out and out.exists():
        raise BadInput("S030", f"{out} is there already, and is not overwritten", "give another name, or remove it")
    if out and (not LABEL.fullmatch(out.stem) or out.suffix not in (".yaml", ".yml")):
        raise click.BadParameter(f"{out.name!r} is no name of a layout file: NAME.yaml", param_hint="--out")
    if out and not os.access(out.parent, os.W_OK):
        raise click.BadParameter(f"nothing can be written in '{out.parent}'", param_hint="--out")
    click.echo("starting two processes …", err=True)
    try:
        calibration = calibrated(memory.upper(), rounds, mib << 20, lambda turns: watched([*turns], lambda _: "rounds"))
    except ProcessError as error:
        raise click.ClickException(str(error)) from error
    how = f"kvplan calibrate, medians of {rounds} rounds of {mib} MiB"
    text = machine_text(out.stem if out else UNNAMED, calibration, memory.upper(), how)
    if not out:
        click.echo(text, nl=False)
        click.echo(WIRE, err=True)
        return
    with out.open("x", encoding="utf-8") as file:
        file.write(text)
    click.echo(f"wrote {out}")
    click.echo(WIRE, err=True)
