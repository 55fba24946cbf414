"""YAML as this project reads it: every key and value in its place, scalars by our own rules."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.functions import EVERY
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable, read, read_text


def tree(text: str) -> YamlTable:
    return read_text(text, Path("x.yaml")).root


def scalars(node: Tree) -> list[YamlScalar]:
    if isinstance(node, YamlScalar):
        return [node]
    inner = node.items if isinstance(node, YamlList) else tuple(part for e in node.entries for part in (e.key, e.value))
    return [scalar for part in inner for scalar in scalars(part)]


def test_every_scalar_is_where_its_span_says() -> None:
    text = 'a: one\n"b": \'two words\'\nc: [1, "x", ~]\nd:\n  é: {f: on, g: 1:30}\n'
    found = scalars(tree(text))
    assert list(found) == [
        "a",
        "one",
        "b",
        "two words",
        "c",
        "1",
        "x",
        "~",
        "d",
        "é",
        "f",
        "on",
        "g",
        "1:30",
    ]
    for scalar in found:
        line = text.split("\n")[scalar.span.line - 1]
        assert scalar.exact
        assert line[scalar.span.column - 1 :][: scalar.span.length] == scalar


def test_scalars_that_are_not_written_letter_by_letter() -> None:
    found = scalars(tree("a: 'it''s'\nb: \"\\t\"\nc: |\n  x\nd: y\n  z\n"))
    assert [s.exact for s in found if s not in "abcd"] == [False] * 4


def test_what_was_meant_where_a_comma_cut_a_value() -> None:
    document = read_text("a: {b: max(c, d), e: 1}\n", Path("x.yaml"))
    assert [d.code for d in document.errors] == ["Y010"]
    inner = document.root.get("a")
    assert isinstance(inner, YamlTable)
    value = inner.get("b")
    assert isinstance(value, YamlScalar)
    assert (value, value.span.column) == ("max(c, d)", 8)


@pytest.mark.parametrize(
    ("data", "code", "line"),
    [
        (b"a: 1\nb: \xff\n", "Y007", 2),
        (b"", "Y008", 1),
        (b"# only a comment\n", "Y008", 1),
        (b"a:\n\t- 1\n", "Y009", 2),
        (b"a: b: c\n", "Y001", 1),
        (b"a: \x00\n", "Y014", 1),
        (b"a: 1\n---\nb: 2\n", "Y006", 2),
        (b"word\n", "Y013", 1),
    ],
)
def test_unreadable(tmp_path: Path, data: bytes, code: str, line: int) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    with pytest.raises(DslError) as caught:
        read(path)
    found = caught.value.diagnostics[0]
    assert (found.code, found.span.line) == (code, line)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(DslError, match="Y012"):
            read(path)


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert [entry.key for entry in read(path).root.entries] == ["a", "b"]


@pytest.mark.parametrize(
    "character", ["\u202e", "\u2066", "\u200b", "\u061c", "\ufeff", "\x07", "\x1b", "\x85", "\x7f"]
)
@pytest.mark.parametrize("text", ["kvplan: 1\nmodel: a # {}\n", "kvplan: 1\nmodel: a{}\n", "kvplan: 1\nmo{}del: a\n"])
def test_what_nobody_sees_is_refused(text: str, character: str) -> None:
    with pytest.raises(DslError) as caught:
        read_text(text.format(character), Path("m.yaml"))
    (error,) = caught.value.diagnostics
    assert (error.code, error.span.line) == ("Y014", 2)
    assert f"U+{ord(character):04X}" in error.message
    assert character not in str(caught.value)


@pytest.mark.parametrize("escape", [r"\u202e", r"\e", r"\x07", r"\u200b"])
def test_an_escape_hides_nothing(escape: str) -> None:
    document = read_text(f'kvplan: 1\ntitle: "a{escape}b"\n', Path("m.yaml"))
    assert [error.code for error in document.errors] == ["Y014"]


def test_ends_of_lines_and_other_scripts_are_seen() -> None:
    assert read_text("kvplan: 1\r\ntitle: 模型 é – ×\r\n", Path("m.yaml")).errors == ()


def test_a_scalar_is_a_text_that_keeps_its_place() -> None:
    """In expressions it is a word like any other, and a copy of it is the same."""
    scalar = read_text("kvplan: 1\ntitle: fp8\n", Path("m.yaml")).root.entries[1].value
    assert isinstance(scalar, YamlScalar)
    assert evaluate(parse_expr("dtype == 'fp8' and dtype != 'f16'"), {"dtype": scalar}) is True
    assert evaluate(parse_expr("among(dtype, 'fp8')", functions=EVERY), {"dtype": scalar}) is True
    again = pickle.loads(pickle.dumps(scalar))
    assert (again, again.span, again.exact, again.quoted) == ("fp8", scalar.span, True, False)
