"""The lint of words finds every pattern in every kind of text, and nothing in code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.english.lint import code, exceptions, findings, patterns, prose
from tests.paths import ROOT

SAID = {
    "unlike": "two unlike sides",
    "alike": "they are alike",
    "anew": "it is met anew",
    "seldom": "it is seldom meant",
    "lest": "lest it fails",
    "whoever": "whoever calls",
    "that which": "that which is read",
    "held against": "it is held against a list",
    "sort of": "a sort of cache",
    "under way": "a read is under way",
    "mend": "mend the file",
    "for ever": "it waits for ever",
    "let go": "what it let go",
    "gone": "the peer is gone",
    "Where tokens are shared, the": "Where tokens are shared, the rows are cut.",
    "Of a": "Of a window the last tokens move.",
    "Who": "Who waits asks again.",
    "What is read is": "What is read is checked.",
    "There is": "There is no plan.",
    "is told": "decode is told later",
    "of which": "a plan of which one side is stored",
}


@pytest.mark.parametrize(("phrase", "text"), SAID.items())
def test_each_pattern_is_found_in_a_page(phrase: str, text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\nA first line.\n\n{text}\n")
    assert [(one.phrase, one.line) for one in findings([page])] == [(phrase, 5)]


@pytest.mark.parametrize("word", ["What", "Who", "Whose", "Whom", "Of", "Those", "That", "There", "As"])
def test_no_sentence_of_code_begins_without_its_subject(word: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f'"""{word} one says."""\n\n# {word} = 1\n\n# A first. {word} one says.\n')
    assert [(one.phrase, one.line) for one in findings([module])] == [(word, 1), (word, 5)]


def test_every_pattern_has_a_text() -> None:
    texts = "\n".join(SAID.values())
    assert [one.instead for one in patterns() if not any(one.found.search(text) for text in texts.splitlines())] == []


def test_code_has_three_kinds_of_texts() -> None:
    source = '"""A module."""\n\nSAID = "a message"\n# A comment\n# of two lines.\nNAME = "anew"\n'
    assert [(one.kind, one.words) for one in code(source)] == [
        ("docstrings", "A module."),
        ("messages", "a message"),
        ("comments", "A comment of two lines."),
    ]


def test_code_in_pages_is_no_prose() -> None:
    page = "Use `alike`.\n\n```text\nalike\n```\n\n    alike\n\n[a](alike.md)\n"
    assert not [one for one in prose(page) if "alike" in one.words]


def test_exceptions_are_few_and_needed() -> None:
    listed = exceptions()
    assert len(listed) <= 5
    assert [one for one in listed if one["text"] not in (ROOT / one["path"]).read_text()] == []
