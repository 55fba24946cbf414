"""`kvplan demo`: compile the demo's plans, move a request between worker processes, check every byte."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvplan.cli.terminal import say, table, width
from kvplan.compiler.emit.header import summary, title
from kvplan.plan.types import CONTEXT

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled
    from kvplan.demo.requests import Ranges
    from kvplan.demo.worker import FetchReport

# In the package, so that it is installed; examples/ has a link to it.
PAIRS = "demo.yaml"
Tick = Callable[[str], None]
# The first output of the demo, for readers who do not know kvplan yet.
INTRODUCTION = """\
Prefill and decode keep the same KV caches in different layouts. For each pair,
kvplan compiles a plan, proves it, runs it between processes, checks every byte."""
HEAD = ("decode", "from", "bytes", "descriptors", "connect", "first", "again", "bytes checked")
TIMES = (
    "A row is a decode worker: how many prefill workers it reads from, what moved, and milliseconds to connect, for "
    "the first transfer, and for a second one."
)


@click.command("demo")
@click.argument("deployment", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--transport", type=click.Choice(["auto", "nixl", "memory"]), default="auto", show_default=True,
              help="What moves the bytes; auto is nixl where it can be imported.")  # fmt: skip
@click.option("--output", "--out", "-o", "output", default="plans", show_default=True,
              type=click.Path(file_okay=False, path_type=Path),
              help="Where the plans go.")  # fmt: skip
@click.option("--seconds", type=click.IntRange(min=1), default=100, show_default=True, help="Give up after that long.")
def command(deployment: Path | None, transport: str, output: Path, seconds: int) -> None:
    """Move a request between processes, and check every byte.

    It compiles the pairs of DEPLOYMENT (by default examples/demo.yaml), starts a process for each prefill and decode
    worker with pages of the model's real size, moves a request, and compares each byte with the right one.
    """
    from kvplan.demo.processes import ProcessError

    until = time.monotonic() + seconds
    chosen = choose(transport)
    try:
        play(deployment or shipped(), output, chosen, until)
    except ProcessError as error:
        raise click.ClickException(str(error)) from error


def play(deployment: Path, output: Path, transport: str, until: float) -> None:
    """Compile, run and print every pair of a deployment. Raises ProcessError, DslError, CompileError."""
    from kvplan.cli.progress import watched
    from kvplan.demo import requests as demo_asked
    from kvplan.demo import run as demo_run
    from kvplan.deploy import jobs, plan_index

    say(f"{INTRODUCTION}\n")
    plans = jobs.compiled(deployment, watched)
    plan_index.write(output, plans)
    for path, made in plans.items():
        show_plan(output / path, made)
        with progress(made.plan.title, demo_run.steps(made)) as tick:
            outcomes = demo_run.run(made, output / path, transport, until, tick)
        show_outcomes(outcomes, demo_asked.ranges(made), transport)
    command_line = shlex.join([program(), "explain", str(output / next(iter(plans)))])
    click.echo(f"Try next:\n    {command_line}")


def show_plan(path: Path, made: Compiled) -> None:
    """Print the summary in the plan's header, and the path of the plan."""
    blocks = [[f"== {title(made.plan)}"], *summary(made.plan, made.facts, width())]
    say("\n\n".join("\n".join(lines) for lines in blocks))
    click.echo(f"\nThe plan, {len(made.text.splitlines())} lines: {path}")


def show_outcomes(outcomes: Sequence[FetchReport], asked: Ranges, transport: str) -> None:
    """Print a line per decode worker, and a sentence for all of them."""
    rows = [
        (one.worker, one.sources, one.content, one.descriptors, *map(_ms, (one.connect, one.first, one.again)),
         one.compared)
        for one in outcomes
    ]  # fmt: skip
    say("\n".join([*table(HEAD, rows), TIMES, "", sentence(outcomes, asked, transport), ""]))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


def sentence(outcomes: Sequence[FetchReport], asked: Ranges, transport: str) -> str:
    """A sentence: the bytes that all decode workers moved at once, and how fast."""
    content = sum(one.content for one in outcomes)
    ends = [one.began + one.again for one in outcomes]
    seconds = max(ends) - min(one.began for one in outcomes)
    return (
        f"{said(asked)}: {content:,} bytes over {transport} in {1000 * seconds:.1f} ms "
        f"({rate(content, seconds)}), all workers at once. Every byte on every decode worker is right."
    )


def said(asked: Ranges) -> str:
    """The ranges of a request in words: `Tokens [24, 1000)`, then ranges in other lengths by name."""
    own = (f", {name} [{first}, {end})" for name, (first, end) in asked.items() if name != CONTEXT)
    first, end = asked[CONTEXT]
    return "".join((f"Tokens [{first}, {end})", *own))


def rate(moved: int, seconds: float) -> str:
    """Bytes per second in words."""
    return f"{moved / max(seconds, 1e-9) / 1e9:.2f} GB/s"


def program() -> str:
    """The word that runs kvplan in this shell: `kvplan` if it is on the PATH, else the path of this program."""
    return "kvplan" if shutil.which("kvplan") else sys.argv[0]


def choose(transport: str) -> str:
    """The transport, nixl or memory. Prints why if `auto` falls back to memory. Raises NixlMissingError for `nixl`."""
    from kvplan.runtime.errors import NixlMissingError
    from kvplan.runtime.transport.nixl import api

    if transport == "memory":
        return transport
    try:
        api()
    except NixlMissingError as error:
        if transport == "nixl":
            raise
        say(f"NIXL is not installed: everything runs in one process, over memory.\n  {error}\n")
        return "memory"
    return "nixl"


def shipped() -> Path:
    """The demo's deployment file."""
    return Path(str(files("kvplan.demo").joinpath(PAIRS)))


@contextmanager
def progress(title: str, steps: int) -> Iterator[Tick]:
    """A progress bar on stderr. It yields a function that moves the bar one step and shows a text."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kvplan.cli import terminal

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.fields[said]}", markup=False), console=terminal.console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(title, total=steps, said="starting workers")
        yield lambda said: bar.update(task, advance=1, said=said)
