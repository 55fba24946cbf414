"""Old turns of phrase in docs, docstrings, comments and messages, by patterns that are data."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from tests.paths import CODE, ROOT, TESTS

FOLDER = Path(__file__).parent
# Folders of tests/ with generated code, and with the scripts that write it.
GENERATED = (TESTS / "golden", TESTS / "fixtures")
# Parts that are no prose: fenced and indented code, code in a line, the targets of links, marks of generated parts.
NO_PROSE = re.compile(
    r"^( *)```.*?^\1```$|^    +(?![-*\d])[^\n]*$|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.MULTILINE | re.DOTALL
)
# Lines up to a blank one, the next item of a list, or a row of a table, which is a text of its own.
PARAGRAPH = re.compile(r"^\|.*$|^.*\S.*$(?:\n(?! *\n| *(?:[-*]|\d+\.) |\|).*\S.*$)*", re.MULTILINE)
MARK = re.compile(r"^(?:[-*]|\d+\.|\|) +(?:\*\*)?")
QUOTED = re.compile(r"`[^`]*`")
TEXTS = ("docs", "messages", "docstrings", "comments")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A turn of phrase, what to write instead, and the kinds of text that must not have it."""

    found: re.Pattern[str]
    instead: str
    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a file: its kind, the line that it begins in, and its words."""

    kind: str
    line: int
    words: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A phrase in a file, by line."""

    path: str
    line: int
    phrase: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: '{self.phrase}': write {self.instead}"


@cache
def patterns() -> tuple[Pattern, ...]:
    listed = yaml.safe_load((FOLDER / "patterns.yaml").read_text())
    return tuple(Pattern(_compiled(one), one["instead"], frozenset(one.get("in", TEXTS))) for one in listed)


def _compiled(one: Mapping[str, str]) -> re.Pattern[str]:
    """Words in any case, or the beginning of a sentence."""
    if "begins" in one:
        return re.compile(rf"(?:(?<=[.!?] )|^)(?:{one['begins']})")
    return re.compile(one["words"], re.IGNORECASE)


def exceptions() -> list[dict[str, str]]:
    listed: list[dict[str, str]] = yaml.safe_load((FOLDER / "exceptions.yaml").read_text())
    return listed


def files() -> Iterator[Path]:
    """Pages that people read, the code of every room, the tests and the benchmarks."""
    yield from (path for path in ROOT.glob("*.md"))
    yield from (ROOT / "docs").glob("*.md")
    yield ROOT / "cli" / "codes.md"
    for room in (*CODE, "bench"):
        yield from (ROOT / room).rglob("*.py")
    yield from (path for path in TESTS.rglob("*.py") if not any(map(path.is_relative_to, GENERATED)))
    yield ROOT / "setup.py"


def findings(paths: Iterable[Path]) -> Iterator[Finding]:
    """Every phrase that a pattern finds, without those that are listed as exceptions."""
    allowed = [(one["path"], one["text"]) for one in exceptions()]
    for path in sorted(set(paths)):
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
        for text in texts(path):
            words = text.words
            for file, part in allowed:
                words = words.replace(part, "") if file == name else words
            yield from _of(name, text, words)


def _of(name: str, text: Text, words: str) -> Iterator[Finding]:
    for pattern in patterns():
        if text.kind in pattern.texts:
            for found in pattern.found.finditer(words):
                yield Finding(name, text.line, found[0].strip(), pattern.instead)


def texts(path: Path) -> Iterator[Text]:
    """The texts of a page, a paragraph or row each, or those of a module; messages in tests are no texts of kvplan."""
    source = path.read_text()
    found = prose(source) if path.suffix == ".md" else code(source)
    yield from (text for text in found if text.kind != "messages" or not path.is_relative_to(TESTS))


def prose(page: str) -> Iterator[Text]:
    """Paragraphs, items of lists and rows of tables."""
    shown = NO_PROSE.sub(lambda found: "\n" * found[0].count("\n"), page)
    for found in PARAGRAPH.finditer(shown):
        words = MARK.sub("", " ".join(found[0].split()))
        yield Text("docs", shown.count("\n", 0, found.start()) + 1, words)


def code(source: str) -> Iterator[Text]:
    """Docstrings, other texts of several words, and comments: adjoining lines of these are one."""
    nodes = list(ast.walk(ast.parse(source)))
    documented = {line for node in nodes if isinstance(node, DOCUMENTED) for line in _docstring(node)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            kind = "docstrings" if (node.lineno, node.col_offset) in documented else "messages"
            yield Text(kind, node.lineno, QUOTED.sub("", " ".join(node.value.split())))
    # Most tests have none, and tokenizing takes half of the time.
    if "#" not in source:
        return
    last = 0
    said: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1 and said:
                yield Text("comments", last, QUOTED.sub("", " ".join(said)))
                said = []
            last = token.start[0]
            said.append(token.string.lstrip("# ").strip())
    if said:
        yield Text("comments", last, QUOTED.sub("", " ".join(said)))


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[int, int]]:
    """The line and the column of a node's docstring, if it has one."""
    return [(node.body[0].lineno, node.body[0].col_offset)] if ast.get_docstring(node) is not None else []
