"""What a terminal adds to text: its colours and its width. Anywhere else text is as wide as a page, and plain."""

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
# How much further in a sentence goes on.
MORE = 4
# A bar of a drawing, or a line of a file with its number.
DRAWN = re.compile(r"^ *\d* *\|")
# A command, or a part of one on a line of its own: a pasted command must have no line breaks.
COMMAND = re.compile(r"^ {4,}(?:--|[A-Z_]+=|\S+ .*--\w)|(?<![`/\w])kvplan [\w-]+ .*--\w")
# Between two columns of a table.
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
    """What click does with colours: as asked for, else none under NO_COLOR (no-color.org), else as it finds out."""
    return color if color is not None else False if os.environ.get("NO_COLOR") else None


def is_known() -> bool:
    """Whether somebody reads stdout at a terminal, or COLUMNS says how wide it is."""
    return "COLUMNS" in os.environ or sys.stdout.isatty()


def width() -> int:
    """The columns of the terminal that reads stdout or that COLUMNS names, PAGE at most; PAGE if there is neither."""
    return max(NARROW, min(PAGE, shutil.get_terminal_size((PAGE, 24)).columns)) if is_known() else PAGE


def say(text: str, err: bool = False) -> None:
    """Print a text for people: in colour, and wrapped at the terminal's width. The one way to print prose or tables.

    Without a terminal lines stay whole, for logs and for tools.
    """
    if text:
        click.echo(painted(fitted(text, width()) if is_known() else text), err=err)


def fitted(text: str, most: int) -> str:
    """`text` in lines of `most` columns at most. Words, drawings, excerpts of files and commands stay whole."""
    return "\n".join(part for line in text.split("\n") for part in _parts(line, most))


def drawing() -> int:
    """The columns of a drawing that stands a little further in."""
    return min(DRAWING, width() - MORE)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], indent: int = 0) -> list[str]:
    """A table, as wide as the terminal at most: the widest columns of words are wrapped."""
    # The compiler is loaded for tables only: a code is explained at once.
    from kvplan.compiler.words import columns

    return columns(head, rows, width() - indent)


def _parts(line: str, most: int) -> list[str]:
    """A line that is too long goes on below its last column, or a sentence below its beginning, or else further in."""
    if len(line) <= most or DRAWN.match(line) or COMMAND.search(line):
        return [line]
    gaps = [hit.end() for hit in GAP.finditer(line) if hit.end() <= most // 2]
    indent = len(line) - len(line.lstrip())
    # A sentence goes on where it began, what it is a part of only further in.
    hang = " " * (gaps[-1] if gaps else indent if line[indent].isupper() else indent + MORE)
    first = line[: gaps[-1]] if gaps else line[:indent]
    return wrap(
        line[len(first) :], most, initial_indent=first, subsequent_indent=hang, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def console(**options: Any) -> Console:
    """A console of rich's that prints text as it is: names of extras are in brackets, and brackets are its markup."""
    from rich.console import Console

    return Console(**{"markup": False, "emoji": False, "highlight": False, **options})


def painted(text: str) -> str:
    """A text with its errors, hints and headings in colour; who writes it takes them out where nobody sees them."""
    return "\n".join(_line(line, COLOURS) for line in text.split("\n"))


def painted_diff(text: str) -> str:
    """A unified diff in colour."""
    return "\n".join(_line(line, CHANGES) for line in text.split("\n"))


def _line(line: str, colours: tuple[tuple[re.Pattern[str], Look], ...]) -> str:
    for pattern, look in colours:
        line = pattern.sub(lambda hit, look=look: click.style(hit[0], **look), line, count=1)  # type: ignore[misc]
    return line
