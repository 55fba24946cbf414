"""The table of README with pairs of real engines: every case that it stands for is listed, and is in the right pair."""

from __future__ import annotations

from tests.golden.engines import COLUMNS, PAIRS, cell, read
from tests.paths import DOCS


def test_every_case_is_listed_and_every_pair_has_all_columns() -> None:
    known = {name for page in ("vllm.md", "sglang.md") for name in read((DOCS / page).read_text())}
    assert not {name for columns in PAIRS.values() for names in columns for name in names} - known
    assert {len(columns) for columns in PAIRS.values()} == {len(COLUMNS)}


def test_cases_of_a_mixed_pair_name_its_engines_in_order() -> None:
    for pair, columns in PAIRS.items():
        first, second = pair.split(" → ")
        for name in [name for names in columns for name in names if first != second]:
            before, _, after = name.partition(" → ")
            assert (before.split()[0], after.split()[0]) == (first, second)


def test_cases_that_came_to_unlike_words_are_all_named() -> None:
    cells = {"a": "right", "b": "right", "c": "**wrong**", "d": "not run"}
    assert cell(cells, ("a", "b")) == "right"
    assert cell(cells, ("a", "c", "d")) == "right, **wrong**, not run"
    assert cell(cells, ()) == "not run"
