"""The tables of docs/vllm.md have a row for each case, and a run writes its own rows only."""

from __future__ import annotations

from tests.vllm.cases import CASES, Connector
from tests.vllm.table import NOT_RUN, PAGE, drawn, read

FIRST, SECOND = CASES[0].name, CASES[1].name


def test_the_page_shows_today_s_cases() -> None:
    page = PAGE.read_text()
    assert drawn(read(page)) in page


def test_rows_that_did_not_run_stay() -> None:
    page = drawn({(FIRST, Connector.KVPLAN): "right", (SECOND, Connector.NIXL): "**wrong**"})
    cells = {**read(page), (FIRST, Connector.NIXL): "refused"}
    assert f"| {FIRST} | right | refused |" in drawn(cells)
    assert f"| {SECOND} | {NOT_RUN} | **wrong** |" in drawn(cells)
