"""The tables of docs/performance.md: each is written by itself."""

from __future__ import annotations

import pytest
from tests.golden.performance import BEGIN, END, PAGE, fresh

from kvplan.bench.report import Row, as_json

TABLES = ("bench", "peers")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_written_in_its_own_place_and_no_other(name: str) -> None:
    page = "".join(f"before {each}\n{BEGIN.format(each)}old {each}\n{END}\n" for each in TABLES)
    written = fresh(page, as_json([Row("area", "figure", "7 us")]), name)
    (other,) = set(TABLES) - {name}
    assert f"old {other}\n{END}" in written
    assert f"old {name}" not in written
    assert "| area | figure | 7 us |  |  | – |" in written[written.index(BEGIN.format(name)) :]
    assert fresh(written, as_json([Row("area", "figure", "7 us")]), name) == written


def test_the_page_has_both() -> None:
    assert [PAGE.read_text().count(BEGIN.format(name)) for name in TABLES] == [1, 1]
