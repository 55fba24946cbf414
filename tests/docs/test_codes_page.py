"""docs/errors.md lists every code, as `kvplan explain` knows it."""

import os
import re

import pytest
from tests.paths import ROOT

from kvplan.cli.codes import all_codes, families

PAGE = ROOT / "docs" / "errors.md"
# A page of the documentation, as codes name it.
NAMED = re.compile(r"`?\bdocs/(\w[\w-]*\.md(?:#[\w-]+)?)`?")

EXAMPLE = re.compile(r"^Wrong:\n\n((?:    .*\n?)+)\nRight:\n\n((?:    .*\n?)+)", re.MULTILINE)


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


def test_texts_fit_a_terminal() -> None:
    """A longer line would be wrapped by itself, which tears its paragraph."""
    assert not [line for said in all_codes().values() for line in said.text.splitlines() if len(line) > 120]


def codes_page() -> str:
    """Every code below the heading of its letter as Markdown."""
    return "\n".join(_family(letter, *said) for letter, said in families().items())


def _family(letter: str, title: str, text: str) -> str:
    every = [(code, said) for code, said in sorted(all_codes().items()) if code[0] == letter]
    sections = [f"### {code}: {said.title}\n\n{_linked(EXAMPLE.sub(_one_block, said.text))}\n" for code, said in every]
    return "\n".join([f"## {letter}: {title}\n\n{_linked(text)}\n", *sections])


def _one_block(found: re.Match[str]) -> str:
    """The wrong and the right example as one block of code."""
    return f"    # wrong\n{found[1]}\n    # right\n{found[2]}"


def _linked(text: str) -> str:
    return NAMED.sub(r"[\1](\1)", text)
