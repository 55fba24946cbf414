"""The figures of docs/performance.md. Run with a report of `kvplan bench -o bench.json` it writes them there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.paths import DOCS

PAGE = DOCS / "performance.md"
BEGIN, END = "<!-- table: bench -->\n", "<!-- end of table -->"
MARKS = {True: "yes", False: "**no**", None: "–"}


def table(report: str) -> str:
    """The rows of a report, JSON as `kvplan bench` writes it, and the machine."""
    found = json.loads(report)
    rows = ["| what | figure | value | quartiles | asked for | met |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        cells = (row["area"], row["name"], row["value"], row["spread"], row["target"], MARKS[row["met"]])
        rows.append(f"| {' | '.join(cells)} |")
    machine = found["machine"]
    told = f"{machine['cores']} cores ({machine['machine']}), Python {machine['python']}, no GPU."
    return "\n".join([*rows, "", told, ""])


def fresh(page: str, report: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(report)}\n{rest[rest.index(END) :]}"


if __name__ == "__main__":
    PAGE.write_text(fresh(PAGE.read_text(), Path(sys.argv[1]).read_text()))
