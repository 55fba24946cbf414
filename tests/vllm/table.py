"""The tables of docs/vllm.md: a row for each case, a column for each connector. A run writes the rows that it ran."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.paths import DOCS
from tests.vllm.cases import CASES, Case, Connector

PAGE = DOCS / "vllm.md"
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
NOT_RUN, NOT_MEANT = "not run", "–"
Cells = dict[tuple[str, Connector], str]


def write(cells: Mapping[tuple[str, Connector], str], times: Sequence[Sequence[str]] = ()) -> None:
    """Write `cells`, and `times` where there are any, into the page; other rows stay as they are."""
    page = PAGE.read_text()
    text = {"cases": drawn({**read(page), **cells})}
    if times:
        text["times"] = markdown(times)
    PAGE.write_text(TABLE.sub(lambda hit: f"{hit[1]}\n{text[hit[2]]}\n{hit[3]}" if hit[2] in text else hit[0], page))


def read(page: str) -> Cells:
    """The cells that a page has."""
    rows = [row.strip("|").split("|") for row in page.splitlines() if row.startswith("| ")]
    by_name = {name.strip(): [cell.strip() for cell in cells] for name, *cells in rows}
    return {
        (case.name, connector): cell
        for case in CASES
        for connector, cell in zip(Connector, by_name.get(case.name, ()), strict=False)
    }


def drawn(cells: Cells) -> str:
    head = ["case", *(connector.value for connector in Connector)]
    return markdown([head, *([case.name, *row(case, cells)] for case in CASES)])


def row(case: Case, cells: Cells) -> list[str]:
    return [
        cells.get((case.name, connector), NOT_RUN) if connector in case.connectors else NOT_MEANT
        for connector in Connector
    ]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body]) + "\n"
