"""`kvplan bench`: the measurements of the folder bench/."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import click

from kvplan.cli.terminal import console

FEWEST, WIDE = 15, 150


@click.command("bench")
@click.argument("names", nargs=-1, metavar="[WHAT]...")
@click.option("--pairs", type=click.IntRange(min=2), default=FEWEST, show_default=True, help="How often to time each.")
@click.option("--json", "as_json", is_flag=True, help="Figures and their parts as JSON on stdout.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="json is --json.")
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON to a file too.")
def command(names: Sequence[str], pairs: int, as_json: bool, form: str, output: Path | None) -> None:
    """Measure what kvplan promises about speed, as ratios.

    Each measurement alternates with what it is compared with, and has its spread. WHAT is any of hot, lists,
    preparing, descriptors, predicting, homogeneous, hybrids, layers, staging, rounds, many, busy, idle, checksum,
    store, compiling, proof, curves; all of these by default. Only on request: peers, other connectors (`make
    bench-peers`); gpu, in a GPU's memory; fleet, engines in an etcd; simulating, a fleet beside its simulation. A
    figure that misses its target is marked; the exit code is 0 all the same, since machines differ.
    """
    # By name: commands may not import `kvplan.bench`, which is above them.
    run, report = (importlib.import_module(f"kvplan.bench.{name}") for name in ("all", "report"))
    known = (*run.MEASUREMENTS, *run.BESIDE)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.UsageError(f"no measurement {unknown[0]!r}; there are {', '.join(known)}")
    rows = run.measure(names or run.MEASUREMENTS, pairs, lambda name: click.echo(f"measuring {name} …", err=True))
    if output:
        output.write_text(report.as_json(rows) + "\n")
    if as_json or form == "json":
        click.echo(report.as_json(rows))
        return

    console(width=max(console().width, WIDE)).print(report.as_table(rows))
