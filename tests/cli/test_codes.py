"""Codes that are raised are written about, in codes.md or by the runtime's classes, and the other way round."""

from __future__ import annotations

import re

from tests.paths import CODE as ROOMS
from tests.paths import ROOT, TESTS

from kvplan.cli.codes import all_codes, families, written
from kvplan.plan.errors import RequestFault

CODE = re.compile(r'"([A-Z]\d{3})"')
# The letters of codes that layout files have; each of these has an example.
LAYOUTS = "YKETBF"
# Their codes are those of their classes of errors.
WITH_CODES_OF_THEIR_OWN = {"plan", "runtime", "remote", "store", "fleet", "registry"}
RAISED = {
    code
    for folder in ROOMS
    if folder not in WITH_CODES_OF_THEIR_OWN
    for path in (ROOT / folder).rglob("*.py")
    for code in CODE.findall(path.read_text())
} | {fault.value for fault in RequestFault}


def test_every_code_that_is_raised_is_written_about_and_no_other() -> None:
    assert {*written()} == RAISED
    assert len(written()) > 150


def test_titles_are_short_and_texts_are_sentences() -> None:
    assert all(title and len(title) < 70 for title, _ in written().values())
    assert all(text.partition("\n\n")[0].endswith(".") for _, text in written().values())


def test_codes_are_in_order_of_what_they_are_about() -> None:
    letters = [code[0] for code in written()]
    assert "".join(dict.fromkeys(letters)) == "".join(letter for letter, _ in _runs(letters)) == "YKETBFWSQCPDI"


def _runs(letters: list[str]) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for letter in letters:
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        else:
            runs.append((letter, 1))
    return runs


def test_codes_of_layout_files_have_an_example() -> None:
    own = {code: said for code, said in written().items() if code[0] in LAYOUTS}
    assert all("Wrong:" in text and "Right:" in text and title[0].islower() for title, text in own.values())


def test_every_code_of_layout_files_is_in_a_bad_file_or_a_test() -> None:
    texts = [
        path.read_text()
        for room in ("dsl", "deploy", "cli")
        for path in (TESTS / room).rglob("*")
        if path.suffix in (".py", ".yaml")
    ]
    seen = set(re.findall(r"\b([A-Z]\d{3})\b", "".join(texts)))
    assert {code for code in written() if code[0] in LAYOUTS} <= seen


def test_the_runtime_has_codes_of_its_own() -> None:
    others = {*all_codes()} - {*written()}
    assert others
    assert {code[0] for code in others} == {"R"}


def test_every_letter_says_where_to_read_on() -> None:
    assert {*families()} == {code[0] for code in all_codes()}
    assert all(text.endswith(".") for _, text in families().values())
    named = {name for _, text in families().values() for name in re.findall(r"docs/(\w[\w-]*\.md)", text)}
    assert named
    assert all((ROOT / "docs" / name).exists() for name in named)


def test_errors_of_the_runtime_say_what_to_do() -> None:
    bases, in_their_sentence = {"R000", "R040", "R060"}, {"R007", "R035", "R061"}
    silent = {code for code, (_, text) in all_codes().items() if code[0] == "R" and "\n\n" not in text}
    assert silent == {*bases - {"R000"}, *in_their_sentence}
