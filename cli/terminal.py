"""What a terminal adds to text: its colours and its width. Anywhere else text is as wide as a page, and plain."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

PAGE, NARROW = 120, 60  # columns
Look = Mapping[str, Any]  # the arguments of click.style
# What is told apart by colour in a line of text, and how.
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


def width() -> int:
    """The columns of the terminal that reads stdout, or those of a page."""
    return max(NARROW, min(PAGE, shutil.get_terminal_size((PAGE, 24)).columns)) if sys.stdout.isatty() else PAGE


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
