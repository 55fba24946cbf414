"""Rows of the benchmark's report, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from kvplan.bench.sample import Ratio


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure: `value` against `target` in words; `met` is None without a target.

    `spread` are the quartiles of `value` over `pairs` pairs; `details` are the figures that it was made of.
    """

    area: str
    name: str
    value: str
    target: str = ""
    met: bool | None = None
    spread: str = ""
    pairs: int = 0
    details: dict[str, object] = field(default_factory=dict)


def faster(area: str, name: str, ratio: Ratio, least: float | None = None) -> Row:
    """Return a row that says how many times faster than the other; `least` is the target."""
    target = "" if least is None else f"at least {least:g}x"
    met = None if least is None else 1 / ratio.ratio >= least
    spread = f"{1 / ratio.high:.2f}..{1 / ratio.low:.2f}"
    return Row(area, name, f"{1 / ratio.ratio:.2f}x faster", target, met, spread, ratio.pairs, asdict(ratio))


def within(area: str, name: str, ratio: Ratio, most: float | None = None) -> Row:
    """Return a row with the time over the other's time; `most` is the target."""
    target = "" if most is None else f"at most {most:g}x"
    met = None if most is None else ratio.ratio <= most
    spread = f"{ratio.low:.3f}..{ratio.high:.3f}"
    return Row(area, name, f"{ratio.ratio:.3f}x the time", target, met, spread, ratio.pairs, asdict(ratio))


def skipped(area: str, why: str) -> Row:
    """Return a row for a measurement that this machine cannot make, with the reason."""
    return Row(area, "not measured", why)


def as_json(rows: Sequence[Row]) -> str:
    """Return all rows with their details and the machine, as JSON text."""
    cores, load = os.cpu_count(), round(os.getloadavg()[1], 1)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": cores, "load": load}
    return json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2)


MET = {True: ("yes", "green"), False: ("no", "red"), None: ("", "")}


def as_table(rows: Sequence[Row]) -> Table:
    """Return all rows as a rich table."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="kvplan bench", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("what", min_width=44)
    # The reason why something was not measured may be a sentence: it is folded, and narrows no other column.
    table.add_column("measured", max_width=40, overflow="fold")
    for column in ("quartiles", "pairs", "asked for", "met"):
        table.add_column(column, no_wrap=True)
    area = ""
    for row in rows:
        if row.area != area:
            area = row.area
            table.add_row(Text(area, style="bold"))
        met = Text(*MET[row.met])
        table.add_row(f"  {row.name}", row.value, row.spread, str(row.pairs or ""), row.target, met)
    return table
