"""Print text in colour and in lines of the terminal's width; without a terminal plain, and as wide as a page."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

PAGE, NARROW = 120, 60  # columns
DRAWING = 92
# The extra indent of a sentence's second line.
MORE = 4
# A bar of a drawing, or a line of a file with its number.
DRAWN = re.compile(r"^ *\d* *\|")
# A command, or a part of one on a line of its own: a pasted command must have no line breaks.
COMMAND = re.compile(r"^ {4,}(?:--|[A-Z_]+=|\S+ .*--\w)|(?<![`/\w])kvplan [\w-]+ .*--\w")
# The gap between two columns of a table.
GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
Look = Mapping[str, Any]  # the arguments of click.style
# The colours of words in a line of text.
COLOURS: tuple[tuple[re.Pattern[str], Look], ...] = (
    (re.compile(r"\berror\[\w+\]"), {"fg": "red", "bold": True}),
    (re.compile(r"^refused\b.*"), {"fg": "yellow"}),
    (re.compile(r"^ *\| +\^+$"), {"fg": "red"}),
    (re.compile(r"^(?: {2,}= |missing: |note: ).*"), {"fg": "cyan"}),
    (re.compile(r"^[A-Z][A-Z ]{4,}(?=$|,| [a-z]+[=,])"), {"bold": True}),
    (re.compile(r"^(?:wrote )(?=\S+$)|^  tokens \d+:\d+: OK"), {"fg": "green"}),
)
CHANGES: tuple[tuple[re.Pattern[str], Look], ...] = (
    (re.compile(r"^\+.*"), {"fg": "green"}),
    (re.compile(r"^-.*"), {"fg": "red"}),
    (re.compile(r"^@@.*"), {"fg": "cyan"}),
)


def wanted(color: bool | None) -> bool | None:
    """The colour setting for click: `color` if given, else False under NO_COLOR (no-color.org), else None to detect."""
    return color if color is not None else False if os.environ.get("NO_COLOR") else None


def is_known() -> bool:
    """Whether the width of stdout is known: it is a terminal, or COLUMNS is set."""
    return "COLUMNS" in os.environ or sys.stdout.isatty()


def width() -> int:
    """The width in columns of the terminal, or as COLUMNS says, at most PAGE; PAGE if it is not known."""
    return max(NARROW, min(PAGE, shutil.get_terminal_size((PAGE, 24)).columns)) if is_known() else PAGE


def say(text: str, err: bool = False) -> None:
    """Print a text for people, in colour and wrapped at the terminal's width. All prose and tables are printed by it.

    Without a terminal lines are not wrapped, for logs and for tools.
    """
    if text:
        click.echo(painted(fitted(text, width()) if is_known() else text), err=err)


def fitted(text: str, most: int) -> str:
    """`text` in lines of at most `most` columns. Words, drawings, excerpts of files and commands are not broken."""
    return "\n".join(part for line in text.split("\n") for part in _parts(line, most))


def drawing() -> int:
    """The width in columns of an indented drawing."""
    return min(DRAWING, width() - MORE)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], indent: int = 0) -> list[str]:
    """The lines of a table, at most as wide as the terminal: the widest columns of words are wrapped."""
    # Imported here, because `explain CODE` must not wait for the compiler.
    from kvplan.compiler.words import columns

    return columns(head, rows, width() - indent)


def _parts(line: str, most: int) -> list[str]:
    """A line, wrapped if it is too long: below its last column, or below a sentence's beginning, or else indented."""
    if len(line) <= most or DRAWN.match(line) or COMMAND.search(line):
        return [line]
    gaps = [hit.end() for hit in GAP.finditer(line) if hit.end() <= most // 2]
    indent = len(line) - len(line.lstrip())
    # A line that begins with a capital is a sentence: it continues at its own indent, any other line further in.
    hang = " " * (gaps[-1] if gaps else indent if line[indent].isupper() else indent + MORE)
    first = line[: gaps[-1]] if gaps else line[:indent]
    return wrap(
        line[len(first) :], most, initial_indent=first, subsequent_indent=hang, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def console(**options: Any) -> Console:
    """A console of rich without markup: rich would take brackets, as in kvplan[store], for markup."""
    from rich.console import Console

    return Console(**{"markup": False, "emoji": False, "highlight": False, **options})


def painted(text: str) -> str:
    """The text with errors, hints and headings in colour. click.echo removes the colours if stdout is no terminal."""
    return "\n".join(_line(line, COLOURS) for line in text.split("\n"))


def painted_diff(text: str) -> str:
    """A unified diff in colour."""
    return "\n".join(_line(line, CHANGES) for line in text.split("\n"))


def _line(line: str, colours: tuple[tuple[re.Pattern[str], Look], ...]) -> str:
    for pattern, look in colours:
        line = pattern.sub(lambda hit, look=look: click.style(hit[0], **look), line, count=1)  # type: ignore[misc]
    return line
