"""docs/errors.md lists every code, as `kvplan explain` knows it."""

import os

import pytest
from tests.paths import ROOT

from kvplan.cli.codes import LAYOUTS, all_codes, layout_page

PAGE = ROOT / "docs" / "errors.md"


def listed() -> str:
    others = {code: said for code, said in all_codes().items() if code[0] not in LAYOUTS}
    rows = [f"| {code} | {title} | {' '.join(text.split())} |" for code, (title, text) in sorted(others.items())]
    return "\n".join(["| code | what | more |", "|---|---|---|", *rows, ""])


def put(page: str, begin: str, end: str, text: str) -> str:
    """`page` with `text` between two marks."""
    before, first, rest = page.partition(f"<!-- {begin} -->\n")
    _, last, after = rest.partition(f"<!-- {end} -->\n")
    assert first, begin
    assert last, end
    return f"{before}{first}{text}{last}{after}"


def test_docs_list_every_code() -> None:
    fresh = put(put(PAGE.read_text(), "layout files", "end", layout_page()), "others", "end of others", listed())
    if os.environ.get("KVPLAN_REGOLD") and fresh != PAGE.read_text():
        PAGE.write_text(fresh)
        pytest.fail("rewrote docs/errors.md")
    assert fresh == PAGE.read_text()
