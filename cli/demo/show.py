"""What the demo prints: the head of a plan, and what a transfer moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.plan.types import CONTEXT

if TYPE_CHECKING:
    from rich.console import Console

    from kvplan.cli.demo.requests import Ranges
    from kvplan.cli.demo.worker import MovedReport

HEAD, READS = 60, 6


@dataclass(frozen=True, slots=True)
class FetchReport:
    """What one decode worker reports: how it went, bytes of content it fetched, bytes of its memory compared."""

    moved: MovedReport
    content: int
    compared: int


def show_plan(console: Console, path: Path, text: str) -> None:
    """What the plan says about itself and its reads, and where the rest is."""
    lines = text.splitlines()
    shown = [*head(lines), "…", *reads(lines), "…"]
    console.rule(str(path), align="left")
    console.print("\n".join(shown), markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"({len(lines) - len(shown) + 2} more lines in {path})\n", style="dim", highlight=False, soft_wrap=True
    )


def head(lines: Sequence[str]) -> Sequence[str]:
    """The docstring, whole if it fits a screen or two."""
    end = next((number for number, line in enumerate(lines) if number and line.endswith('"""')), 0)
    return lines[: min(end + 1, HEAD)]


def reads(lines: Sequence[str]) -> Sequence[str]:
    """The beginning of the table of reads."""
    start = next((number for number, line in enumerate(lines) if line.startswith("READS")), len(lines))
    return lines[start : start + READS]


def show_outcomes(console: Console, outcomes: Sequence[FetchReport], asked: Ranges, transport: str) -> None:
    """One line per decode worker, and one sentence for all of them."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("decode", "from", "bytes moved", "requests", "connect", "first", "again", "bytes checked"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in outcomes:
        seconds = (one.moved.connect, one.moved.first, one.moved.again)
        counts = (f"{one.moved.worker}", f"{one.moved.sources}", f"{one.content:,}", f"{one.moved.requests:,}")
        times = (f"{1000 * value:.1f} ms" for value in seconds)
        table.add_row(*counts, *times, f"[green]{one.compared:,}")
    console.print(table)
    console.print(sentence(outcomes, asked, transport), highlight=False, soft_wrap=True)


def sentence(outcomes: Sequence[FetchReport], asked: Ranges, transport: str) -> str:
    """What moved and how fast, all decode workers at once."""
    content = sum(one.content for one in outcomes)
    ends = [one.moved.began + one.moved.again for one in outcomes]
    seconds = max(ends) - min(one.moved.began for one in outcomes)
    return (
        f"{said(asked)}: {content:,} bytes over {transport} in {1000 * seconds:.1f} ms "
        f"({rate(content, seconds)}) all at once; every byte of every decode worker is what it must be."
    )


def said(asked: Ranges) -> str:
    """The ranges of a request in words: `Tokens [24, 1000)`, and those of other lengths by name."""
    own = (f", {name} [{first}, {end})" for name, (first, end) in asked.items() if name != CONTEXT)
    first, end = asked[CONTEXT]
    return "".join((f"Tokens [{first}, {end})", *own))


def rate(moved: int, seconds: float) -> str:
    """Bytes per second in words."""
    return f"{moved / max(seconds, 1e-9) / 1e9:.2f} GB/s"
