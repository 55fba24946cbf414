"""The table of architectures: the file that comes with kvplan, the pages and the verdicts say the same."""

from __future__ import annotations

import pytest
from tests.conformance.judge import RIGHT, WARNED, WORDS, WRONG, Verdict
from tests.conformance.page import DATA, FRONT, MEANS, PAGE, front, page, row_of, rows

from kvplan.dsl.configs.architectures import architectures, parsed_table, table_text


def test_the_table_and_the_pages_are_those_of_the_verdicts() -> None:
    """`make goldens` writes them."""
    found = rows()
    assert architectures() == tuple(found)
    assert DATA.read_text() == table_text(found)
    assert page(PAGE.read_text(), found) == PAGE.read_text()
    assert front(FRONT.read_text(), found) == FRONT.read_text()


def test_a_table_is_read_back() -> None:
    found = (row_of("A", "engine 1.0", [Verdict("a", RIGHT, 2, 0, 2, "", ("gqa",), ("n_kv",))], ["a-7b"]),)
    assert parsed_table(table_text(found)) == found
    assert (found[0].kinds, found[0].models, found[0].keys) == (("gqa",), ("a-7b",), ("n_kv",))
    assert found[0].evidence == "1 of 1 configuration right, 2 dumps"


def test_keys_of_a_wrong_layout_prove_nothing() -> None:
    every = [Verdict("a", RIGHT, 2, 0, 2, keys=("n_kv",)), Verdict("b", WRONG, 1, 0, 2, keys=("head",))]
    assert row_of("A", "engine 1.0", every, []).keys == ("n_kv",)


def test_every_word_is_explained() -> None:
    assert {*MEANS} == {*WORDS}
    assert all(f"| {word} |" in PAGE.read_text() for word in WORDS)


@pytest.mark.parametrize(
    ("words", "word", "right"), [((RIGHT, WARNED), RIGHT, 2), ((WARNED,), WARNED, 1), ((RIGHT, WRONG), WRONG, 1)]
)
def test_a_row_has_the_worst_that_nobody_is_warned_of(words: tuple[str, ...], word: str, right: int) -> None:
    found = row_of("A", "engine 1.0", [Verdict(f"{n}", w, int(w != WRONG), 0, 1) for n, w in enumerate(words)], [])
    assert (found.verdict, found.right, found.configurations) == (word, right, len(words))
