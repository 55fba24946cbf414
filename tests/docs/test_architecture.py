"""docs/architecture.md: its links lead somewhere, it has every room, and its grammar is that of the classes."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from tests.paths import CODE, ROOT

from kvplan.compiler import bound
from kvplan.compiler.placement import tree
from kvplan.dsl.lang import nodes
from kvplan.plan import types

PAGE = ROOT / "docs" / "architecture.md"
FORMS = {"1": nodes, "2": bound, "3": tree, "4": types}
# Rooms that have no line of their own: folders of data, and those that the line of another room is about.
UNTOLD = {
    "compiler/check/audit",
    "compiler/explain/landing",
    "compiler/explain/picture",
    "compiler/emit/templates",
    "cli",
}
PRODUCTION = re.compile(r"^(\w+) += \(([^)]*)\)", re.MULTILINE)


def grammar(page: str) -> dict[str, list[tuple[str, list[str]]]]:
    """By the number of the form: the names of its classes and their fields, as written."""
    text = page.partition("```text\n")[2].partition("\n```")[0]
    parts = re.split(r"^-- (\d)\..*$", text, flags=re.MULTILINE)[1:]
    return {
        number: [(name, listed.split(", ")) for name, listed in PRODUCTION.findall(body)]
        for number, body in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.mark.parametrize("form", FORMS)
def test_the_grammar_is_that_of_the_classes(form: str) -> None:
    productions = grammar(PAGE.read_text())[form]
    assert len(productions) >= 5
    for name, listed in productions:
        assert [field.name for field in fields(getattr(FORMS[form], name))] == listed, name


def test_links_lead_somewhere() -> None:
    paths = re.findall(r"\]\((?!https:)([^)#]+)\)", PAGE.read_text())
    assert len(paths) > 40
    assert not [path for path in paths if not (PAGE.parent / path).exists()]


def test_every_room_has_a_line() -> None:
    rooms = {str(path.parent.relative_to(ROOT)) for top in CODE for path in (ROOT / top).rglob("__init__.py")}
    told = {name.rstrip("/") for name in re.findall(r"`([a-z_]+/[a-z_/]*)`", PAGE.read_text())}
    inner = {room for room in rooms if any(other.startswith(f"{room}/") for other in rooms)}
    assert rooms - inner - UNTOLD <= told


def test_what_decides_is_in_the_file_that_is_named() -> None:
    decided = PAGE.read_text().partition("## Where things are decided")[2].partition("## Four forms")[0]
    rows = re.findall(r"^\| [^|]+\? \| \[\w+\.py\]\((\S+)\) \| `([\w.]+)`(?:, `([\w.]+)`)?", decided, re.MULTILINE)
    assert len(rows) > 8
    for path, *names in rows:
        source = (PAGE.parent / path).read_text()
        for name in "".join(f" {name}" for name in names).replace(".", " ").split():
            assert re.search(rf"^ *(?:def|class) {name}\b|^{name}\b", source, re.MULTILINE), (path, name)
