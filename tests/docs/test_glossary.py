"""docs/glossary.md has each word once, in order, and no more words than somebody reads."""

from __future__ import annotations

import re

from tests.paths import ROOT

PAGE = ROOT / "docs" / "glossary.md"
WORD = re.compile(r"^- \*\*(.+?)\*\*: ", re.MULTILINE)
MOST = 150


def test_every_word_is_there_once_and_in_order() -> None:
    page = PAGE.read_text()
    words = WORD.findall(page)
    assert 60 < len(words) == page.count("\n- ") <= MOST
    assert len(set(words)) == len(words)
    for section in page.split("\n## ")[1:]:
        listed = [word.lower() for word in WORD.findall(section)]
        assert listed == sorted(listed)
