"""Places in source texts: every value of a layout file keeps its span."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """A span of `length` characters from `line`:`column`, both from 1; `text` is the whole line, for messages."""

    path: str
    line: int
    column: int
    length: int
    text: str = field(default="", compare=False, repr=False)

    def at(self, offset: int, length: int) -> SourceSpan:
        """The span of `length` characters that begins `offset` characters into this span, on the same line."""
        return SourceSpan(self.path, self.line, self.column + offset, max(length, 1), self.text)


NOWHERE = SourceSpan("", 1, 1, 1)


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file's text, split into lines once; `path` is its name in messages."""

    path: str
    text: str
    lines: tuple[str, ...]

    def span(self, line: int, column: int, length: int) -> SourceSpan:
        """The span at a line and a column, both from 0."""
        text = self.lines[line] if line < len(self.lines) else ""
        return SourceSpan(self.path, line + 1, column + 1, max(length, 1), text)


def source(path: str, text: str) -> SourceText:
    return SourceText(path, text, tuple(line.rstrip("\r") for line in text.split("\n")))


def inline(text: str, name: str = "<text>") -> SourceSpan:
    """The span of a text that is in no file."""
    return SourceSpan(name, 1, 1, max(len(text), 1), text)


def shown(path: Path) -> str:
    """A path as messages name it: relative to the working directory if it lies below that."""
    return _below(path, os.getcwd())


@lru_cache(1024)
def _below(path: Path, folder: str) -> str:
    # Every load names every file: without the cache, names take a third of its time.
    below = os.path.relpath(os.path.join(folder, path), folder)
    return str(path) if below.startswith("..") else Path(below).as_posix()
