"""docs/compatibility.md and README have the table of what runs, as the compiler answers now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.golden.compatibility import KINDS, MADE, WAYS, cell, fresh, table

from kvplan.compiler.explain.matrix import PairCost


@pytest.mark.parametrize("page", MADE, ids=lambda page: page.name)
def test_tables_are_fresh(page: Path) -> None:
    assert fresh(page) == page.read_text(), "make goldens, and read the diff"


def test_every_cell_has_words() -> None:
    """A sign alone is nothing to a screen reader, and a box to a font that lacks it."""
    head, _, *rows = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in table().splitlines())
    assert all(re.search("[A-Za-z]{2}", cell) for row in (head, *rows) for cell in row)


def test_every_kind_has_a_word_of_vllm_for_every_way() -> None:
    assert {len(kind.published) for kind in KINDS} == {len(WAYS)}


def test_every_pair_of_the_table_has_a_plan() -> None:
    """What the front page promises; a refusal would be shown with its code, and is to be looked at before."""
    cells = [cell(kind, way) for kind in KINDS for way in WAYS]
    assert [found for found in cells if not isinstance(found.outcome, PairCost)] == []
