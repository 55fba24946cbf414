"""Codes that are used are listed, and the other way round."""

from __future__ import annotations

import re

from tests.paths import ROOT

from kvplan.compiler.codes import CODES

USED = {
    code
    for folder in ("compiler", "cli")
    for path in (ROOT / folder).rglob("*.py")
    if not path.name.startswith("codes")
    for code in re.findall(r'"([SQCPD]\d{3})"', path.read_text())
}


def test_every_code_is_listed_and_used() -> None:
    assert set(CODES) == USED


def test_titles_are_short_and_texts_are_sentences() -> None:
    assert all(title and len(title) < 70 and text.endswith(".") for title, text in CODES.values())
