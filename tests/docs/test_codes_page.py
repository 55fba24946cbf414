"""docs/errors.md lists every code, as `kvplan explain` knows it."""

import os

import pytest
from tests.paths import ROOT

from kvplan.cli.codes import codes_page

PAGE = ROOT / "docs" / "errors.md"


def put(page: str, begin: str, end: str, text: str) -> str:
    """`page` with `text` between two marks."""
    before, first, rest = page.partition(f"<!-- {begin} -->\n")
    _, last, after = rest.partition(f"<!-- {end} -->\n")
    assert first, begin
    assert last, end
    return f"{before}{first}{text}{last}{after}"


def test_docs_list_every_code() -> None:
    fresh = put(PAGE.read_text(), "codes", "end of codes", codes_page())
    if os.environ.get("KVPLAN_REGOLD") and fresh != PAGE.read_text():
        PAGE.write_text(fresh)
        pytest.fail("rewrote docs/errors.md")
    assert fresh == PAGE.read_text()
