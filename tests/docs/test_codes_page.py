"""docs/errors.md lists every code that is not of a layout file, as `kvplan explain` knows it."""

import os

import pytest
from tests.paths import ROOT

from kvplan.cli.commands.explain import all_codes
from kvplan.dsl.codes import CODES as LAYOUTS

PAGE = ROOT / "docs" / "errors.md"


def listed() -> str:
    others = {code: said for code, said in all_codes().items() if code not in LAYOUTS}
    rows = [f"| {code} | {title} | {' '.join(text.split())} |" for code, (title, text) in sorted(others.items())]
    return "\n".join(["| code | what | more |", "|---|---|---|", *rows, ""])


def test_docs_list_every_other_code() -> None:
    before, begin, rest = PAGE.read_text().partition("<!-- others -->\n")
    _, end, after = rest.partition("<!-- end of others -->\n")
    fresh = f"{before}{begin}{listed()}{end}{after}"
    if os.environ.get("KVPLAN_REGOLD") and fresh != PAGE.read_text():
        PAGE.write_text(fresh)
        pytest.fail("rewrote docs/errors.md")
    assert fresh == PAGE.read_text()
