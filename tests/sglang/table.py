"""The tables of docs/sglang.md: a row for each case, a column for each backend. A run writes the cells that it ran."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.paths import DOCS
from tests.sglang.cases import CASES, MODES, TIMED, Case, Fault
from tests.sglang.mixed_cases import MIXED, TIMED_MIXED
from tests.vllm.table import markdown

PAGE = DOCS / "sglang.md"
KVPLAN, OWN, GAP, RATIO = "kvplan", "nixl", "gap", "ratio"
BACKENDS = (KVPLAN, OWN)
OWN_TITLE = "SGLang's NIXL backend"
TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)
NOT_RUN, TIMES = "not run", "sglang-times"
ROUTED = "pages 16 → 64, two servers over HTTP behind `sglang-router`"
Cell = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page: its word there, its rows, and its columns with their titles; the first one is of rows."""

    word: str
    head: str
    rows: tuple[str, ...]
    columns: Mapping[str, str]

    def drawn(self, cells: Mapping[Cell, str]) -> str:
        body = ([row, *(cells.get((row, column), NOT_RUN) for column in self.columns)] for row in self.rows)
        return markdown([[self.head, *self.columns.values()], *body])

    def read(self, text: str) -> dict[Cell, str]:
        """The cells that the text of a table has."""
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
        found = {line[0]: line[1:] for line in lines if len(line) == len(self.columns) + 1}
        pairs = {row: zip(self.columns, found.get(row, ()), strict=False) for row in self.rows}
        return {(row, column): cell for row, cells in pairs.items() for column, cell in cells}


def over_http(case: str) -> str:
    """The row of a case whose time to first token was taken over HTTP, behind the router."""
    return f"{case}, over HTTP"


TABLES = (
    Table("sglang", "case", (*(case.name for case in CASES if case.fault is None), ROUTED),
          {KVPLAN: KVPLAN, OWN: OWN_TITLE}),
    Table("sglang-faults", "what happens", tuple(fault.value for fault in Fault),
          {mode: f"kvplan, {mode}" for mode in MODES} | {OWN: OWN_TITLE}),
    Table("mixed", "prefill → decode", tuple(case.name for case in MIXED), {KVPLAN: KVPLAN, GAP: "logprobs within"}),
    Table(TIMES, "case", (*TIMED, *map(over_http, TIMED_MIXED)),
          {KVPLAN: KVPLAN, OWN: OWN_TITLE, RATIO: "ratio"}),
)  # fmt: skip


def cell_of(case: Case, backend: str) -> Cell:
    """The row and the column of a case."""
    if case.fault is None:
        return case.name, backend
    return case.fault.value, backend if backend == OWN else str(case.config["mode"])


def write(cells: Mapping[Cell, str], times: bool = False) -> None:
    """Write `cells` into the tables of outcomes, or of `times`; other cells stay as they are."""
    tables = {table.word: table for table in TABLES if (table.word == TIMES) == times}

    def text(hit: re.Match[str]) -> str:
        table = tables.get(hit[2])
        return f"{hit[1]}\n{table.drawn({**table.read(hit[3]), **cells})}\n{hit[4]}" if table else hit[0]

    PAGE.write_text(TABLE.sub(text, PAGE.read_text()))
