"""docs/dsl.md has the tables that the reader's definitions make. tests/golden/dsl_page.py writes them again."""

from __future__ import annotations

import re

import pytest
from tests.golden.dsl_page import PAGE, SECTIONS, fresh, made


def anchors(page: str) -> set[str]:
    """The headings of a page as links name them."""
    found = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in found}


def test_tables_are_fresh() -> None:
    page = PAGE.read_text()
    assert fresh(page) == page, "python tests/golden/dsl_page.py, and read the diff"


def test_every_table_is_shown_once() -> None:
    shown = re.findall(r"<!-- table: (\S+) -->", PAGE.read_text())
    assert sorted(shown) == sorted(made())


def test_links_lead_somewhere() -> None:
    page = PAGE.read_text()
    assert {*re.findall(r"\]\(#([^)]*)\)", page), *SECTIONS} <= anchors(page)
    paths = set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page))
    assert paths
    assert not [path for path in paths if not (PAGE.parent / path).exists()]


def test_an_old_table_is_noticed() -> None:
    with pytest.raises(KeyError):
        fresh(PAGE.read_text().replace("<!-- table: models -->", "<!-- table: modles -->"))
    assert fresh(PAGE.read_text().replace("required", "optional")) != PAGE.read_text().replace("required", "optional")
