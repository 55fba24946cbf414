"""The figures of docs/performance.md and its curves, which matplotlib draws, of the extra `plots`.

Run with a report of `kvplan bench -o bench.json` it writes them there; with `peers.json peers`, of `make bench-peers`,
the table of that name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.paths import DOCS

PAGE, PICTURE = DOCS / "performance.md", DOCS / "curves.svg"
BEGIN, END = "<!-- table: {} -->\n", "<!-- end of table -->"
MARKS = {True: "yes", False: "**no**", None: "–"}


def table(report: str) -> str:
    """The rows of a report, JSON as `kvplan bench` writes it, and the machine; curves are drawn apart."""
    found = json.loads(report)
    rows = ["| what | figure | value | quartiles | asked for | met |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        if "curve" not in row["details"]:
            cells = (row["area"], row["name"], row["value"], row["spread"], row["target"], MARKS[row["met"]])
            rows.append(f"| {' | '.join(cells)} |")
    machine = found["machine"]
    cores = f"{machine['cores']} cores ({machine['machine']})"
    told = f"{cores}, Python {machine['python']}, no GPU; load {machine['load']}."
    return "\n".join([*rows, "", told, ""])


def fresh(page: str, report: str, name: str = "bench") -> str:
    """The page with the table `name` written anew."""
    begin = BEGIN.format(name)
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{table(report)}\n{rest[rest.index(END) :]}"


def draw(curves: Iterable[dict[str, Any]], path: Path) -> None:
    """A panel for each thing that is measured along an axis, both axes logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "kvplan", "svg.fonttype": "none", "font.size": 8}
    from matplotlib import pyplot

    panels: dict[str, list[dict[str, Any]]] = {}
    for curve in curves:
        panels.setdefault(curve["what"], []).append(curve)
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3 * len(panels), 2.6), layout="constrained")
    for panel, (what, several) in zip(axes, panels.items(), strict=True):
        for curve in several:
            panel.loglog(*zip(*curve["curve"], strict=True), marker=".", label=curve["name"])
        panel.set(title=what, xlabel=several[0]["along"])
        panel.grid(visible=True, alpha=0.3)
        panel.legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text()
    PAGE.write_text(fresh(PAGE.read_text(), text, *sys.argv[2:]))
    found = [row["details"] for row in json.loads(text)["rows"] if "curve" in row["details"]]
    if found:
        draw(found, PICTURE)
