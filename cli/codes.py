"""The texts of error codes and of words, read only when they are asked for.

codes.md has the codes of layout files, compiler and command line, classes have the runtime's, the glossary has words.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from inspect import cleandoc
from typing import NamedTuple

FAMILY = re.compile(r"^# ([A-Z]): (.*)\n\n((?:[^#\n].*\n)+)", re.MULTILINE)
WORD = re.compile(r"^- \*\*(.+?)\*\*: (.*)$", re.MULTILINE)
SECTION = re.compile(r"^## ([A-Z]\d{3}): (.*)\n\n", re.MULTILINE)


class ErrorCode(NamedTuple):
    """A code's sentence and its long text."""

    title: str
    text: str


@cache
def families() -> dict[str, ErrorCode]:
    """By the first letter of codes: the source of these codes, and where to read on."""
    return {letter: ErrorCode(title, text.strip()) for letter, title, text in FAMILY.findall(page("codes.md"))}


@cache
def written() -> dict[str, ErrorCode]:
    """The codes of codes.md, in its order."""
    _, *sections = SECTION.split(FAMILY.sub("", page("codes.md")))
    parts = zip(sections[::3], sections[1::3], sections[2::3], strict=True)
    return {code: ErrorCode(title, body.strip()) for code, title, body in parts}


@cache
def words() -> dict[str, str]:
    """The words of the glossary, each with its line."""
    found = WORD.findall(page("glossary.md"))
    return {word: line for said, line in found for word in said.split(", ")}


@cache
def page(name: str) -> str:
    """The text of a page of the package."""
    return files("kvplan.cli").joinpath(name).read_text("utf-8")


def all_codes() -> dict[str, ErrorCode]:
    """Every code: first those in codes.md, then those of the runtime, the store and the fleet."""
    from kvplan.fleet import errors as fleet
    from kvplan.runtime import errors as runtime
    from kvplan.store import errors as store

    values = [value for room in (runtime, store, fleet) for value in vars(room).values()]
    kinds = [value for value in values if isinstance(value, type) and issubclass(value, runtime.KvplanError)]
    return {
        **written(),
        **{kind.code: ErrorCode(kind.__name__, cleandoc(kind.__doc__ or "")) for kind in reversed(kinds)},
    }
