"""How errors look, and that their codes are all listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.dsl.check import check
from kvplan.dsl.lang.nodes import SizeSet
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, listed, nearest, nearest_or_all, render
from kvplan.dsl.text.source import SourceSpan

LINE = "  LBHNC:     layer { block { head { tokens { k[dim] v[dim] } } } }"
MESSAGE = "storage 'LBHNC' uses axis 'tokens', which tensor k does not have"
NOTE = "k has axes head, token, dim, besides layer and block"
GUESS = "did you mean 'token'?"
ONE = Diagnostic("E012", MESSAGE, SourceSpan("layouts/kinds/gqa.yaml", 18, 37, 6, LINE), (NOTE,), GUESS)


def test_text() -> None:
    assert render([ONE]) == "\n".join(
        [
            f"layouts/kinds/gqa.yaml:18:37: error[E012]: {MESSAGE}",
            "   |",
            f"18 | {LINE}",
            "   |                                     ^^^^^^",
            f"   = {NOTE}",
            f"   = {GUESS}",
            "1 error",
        ]
    )


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("tokens", ("head", "token"), "token"),
        ("head_dim", ("dim", "heads", "layers"), "dim"),
        ("head_dim", ("head", "dims", "layers"), "head"),
        ("block_size", ("block", "size"), "block"),
        ("heads_query", ("heads_of_query", "query"), "heads_of_query"),
    ],
)
def test_the_nearest_name_is_a_word_of_the_unknown_one_or_spelled_alike(
    word: str, known: tuple[str, ...], meant: str
) -> None:
    assert nearest(word, known) == f"did you mean '{meant}'?"


def test_names_that_share_the_word_are_all_proposed() -> None:
    """A person who writes `heads` may mean those of keys or of values."""
    known = ("conv", "key_heads", "value_heads", "key_dim")
    assert nearest("heads", known) == "did you mean 'key_heads' or 'value_heads'?"
    assert nearest("Heads", ("conv", "value_heads")) == "did you mean 'value_heads'?"


def test_of_allowed_values_all_are_told_however_many() -> None:
    values = [f"{letter}{letter}" for letter in "abcdefghi"]
    assert (nearest("zz", values), nearest_or_all("zz", values)) == ("", f"expected {listed(values)}")


def test_order_count_and_repeats() -> None:
    other = Diagnostic("K001", "x", SourceSpan("layouts/kinds/gqa.yaml", 2, 1, 1, "a: b"))
    text = render([ONE, other, ONE])
    assert text.index("K001") < text.index("E012")
    assert text.endswith("\n2 errors")
    assert render([]) == ""


def test_caret_stays_in_the_line_and_under_tabs() -> None:
    text = render([Diagnostic("K001", "x", SourceSpan("f", 7, 2, 99, "\tab"))])
    assert text.split("\n")[2:4] == [" 7 | \tab", "   | \t^^"]


def test_json_and_github() -> None:
    record = json.loads(render([ONE], "json"))[0]
    assert (record["code"], record["line"], record["column"], record["length"]) == ("E012", 18, 37, 6)
    assert json.loads(render([], "json")) == []
    head = "::error file=layouts/kinds/gqa.yaml,line=18,col=37,endColumn=43,title=E012::storage"
    assert render([ONE], "github").startswith(head)
    assert "\n" not in render([ONE], "github")


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "bad").glob("[!d]*.yaml")), ids=lambda path: path.stem)
def test_guesses_are_help_and_facts_are_notes(path: Path) -> None:
    notes = [note for diagnostic in check([path]) for note in diagnostic.notes]
    assert not [note for note in notes if "did you mean" in note or note.startswith("expected ")]


@pytest.mark.parametrize("form", ["text", "json"])
def test_values_are_written_as_in_a_side(form: str) -> None:
    values = (("a", SizeSet(step=16)), ("b", SizeSet(only=(16, 32))), ("c", True))
    text = render([Diagnostic("B001", "x", SourceSpan("f", 1, 1, 1, "a"), values=values)], form)
    if form == "json":
        assert json.loads(text)[0]["values"] == {"a": "multiples(16)", "b": "16+32", "c": "true"}
    else:
        assert "a = multiples(16), b = 16+32, c = true" in text
    assert f"{SizeSet(step=16)!r}" == "multiples(16)"


def test_error_shows_itself() -> None:
    assert str(DslError(ONE)) == render([ONE])


def test_words() -> None:
    assert nearest("tokens", ["token", "head"]) == "did you mean 'token'?"
    assert nearest("zzz", ["b", "a"]) == "expected a or b"
    assert nearest("zzz", [f"name{n}" for n in range(20)]) == ""
    assert listed(["a", "b", "c"]) == "a, b or c"


def test_a_file_is_named_from_where_one_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was read before, from elsewhere, and has not changed since."""
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "a.yaml").write_text("kvplan: 2\n")
    names = []
    for place in (tmp_path, folder):
        monkeypatch.chdir(place)
        names.append({found.span.path for found in check([folder / "a.yaml"])})
    assert names == [{"inner/a.yaml"}, {"a.yaml"}]


@pytest.mark.parametrize("column", [1, 150, 5_000, 10_000])
def test_of_a_long_line_what_is_near_is_shown(column: int) -> None:
    line = "".join(chr(ord("a") + i % 26) for i in range(10_000))
    _, _, shown, caret, _ = render([Diagnostic("Y001", "bad", SourceSpan("x.json", 1, column, 1, line))]).splitlines()
    assert len(shown) < 220
    assert shown[caret.index("^")] == line[column - 1]
