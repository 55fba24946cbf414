"""docs/glossary.md has every word once and every public class once."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.docs.glossary import PAGE, fresh, meaning

WORD = re.compile(r"^- \*\*(.+?)\*\*: ", re.MULTILINE)
CLASS = re.compile(r"^- \[`(\w+)`\]\(\.\./(\S+)\): \S", re.MULTILINE)


def test_the_index_is_fresh() -> None:
    page = PAGE.read_text()
    assert fresh(page) == page, "python -m tests.docs.glossary, and read the diff"


def test_every_class_is_there_once() -> None:
    found = CLASS.findall(PAGE.read_text())
    assert len(found) > 300
    assert not [name for name, times in Counter(name for name, _ in found).items() if times > 1]


def test_every_word_is_there_once_and_in_order() -> None:
    words = PAGE.read_text().partition("## Classes")[0]
    assert len(WORD.findall(words)) == words.count("\n- ") > 60
    assert len(set(WORD.findall(words))) == len(WORD.findall(words))
    for section in words.split("\n## ")[1:]:
        listed = [word.lower() for word in WORD.findall(section)]
        assert listed == sorted(listed)


def test_a_class_that_says_nothing_is_noticed() -> None:
    class Silent:
        pass

    with pytest.raises(AssertionError, match="Silent does not say"):
        meaning(Silent)
