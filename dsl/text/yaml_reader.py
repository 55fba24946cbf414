"""Read YAML to a tree in which every key and value keeps its span. Only a plain subset of YAML is allowed.

The tree is built from libyaml's events, because composed nodes lose anchors and the places of duplicate keys.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import yaml

from kvplan.dsl.text.diagnostics import Diagnostic, DslError, Sink, fault
from kvplan.dsl.text.source import NOWHERE, SourceSpan, SourceText, shown, source

T = TypeVar("T")
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The most levels of mappings and lists: the reader is recursive.
DEEPEST = 32
FORBIDDEN_HELP = "write the value out where it is used"
UNSEEN = "take it out: it may make a text look like another one"
# Control and format characters, including those that change text direction, without tabs and line ends.
HIDDEN = re.compile(
    "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ufeff\\ufff9-\\ufffb\\U000e0000-\\U000e007f]"
)
# Numbers and ranges of them, with commas.
NUMBERS = re.compile(r"\d+( *- *\d+)?( *, *\d+( *- *\d+)?)*")
STAR_HELP = f"{FORBIDDEN_HELP}, or quote a text that begins with '*'"


class YamlScalar(str):
    """A scalar: a text with its span. `exact`: the source at `span` has the same letters, so that places inside the
    text are known."""

    __slots__ = ("exact", "quoted", "span")
    span: SourceSpan
    exact: bool
    quoted: bool

    def __new__(cls, text: str, span: SourceSpan = NOWHERE, exact: bool = True, quoted: bool = False) -> Self:
        made = super().__new__(cls, text)
        made.span, made.exact, made.quoted = span, exact, quoted
        return made

    @property
    def empty(self) -> bool:
        return not self.quoted and self == ""


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """A key of a mapping and its value."""

    key: YamlScalar
    value: Tree


@dataclass(frozen=True, slots=True)
class YamlTable:
    """A mapping, in the written order."""

    entries: tuple[YamlEntry, ...]
    span: SourceSpan

    def get(self, key: str) -> Tree | None:
        return next((entry.value for entry in self.entries if entry.key == key), None)


@dataclass(frozen=True, slots=True)
class YamlList:
    """A list, in the written order. `flow`: it is in brackets, where a comma ends an unquoted item."""

    items: tuple[Tree, ...]
    span: SourceSpan
    flow: bool = False


Tree = YamlScalar | YamlTable | YamlList
# Values by names. The names are YamlScalars, or plain str if their places do not matter.
Named = Mapping[Any, T]


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A file's tree, and the errors in its YAML."""

    path: Path
    root: YamlTable
    errors: tuple[Diagnostic, ...]


STARTS = "it begins with 'kvplan: 1'"


def read(path: Path, starts: str = STARTS) -> YamlDocument:
    """The tree of a file. Raises DslError (Y…) if there is no tree at all; other errors are in the document.

    `starts` is the help for a file that is empty or no mapping.
    """
    name = shown(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise fault("Y012", f"the file cannot be read: {reason}", SourceSpan(name, 1, 1, 1)) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        place = SourceSpan(name, line, 1, 1)
        raise fault("Y007", f"byte {error.start} is not UTF-8", place, help="save it as UTF-8") from None
    return read_text(text, path, starts)


def read_text(text: str, path: Path, starts: str = STARTS) -> YamlDocument:
    """The tree of the text of the file `path`. Raises DslError (Y…)."""
    where, sink = source(shown(path), text), Sink()
    _refuse_hidden(where)
    _refuse_tabs(where)
    try:
        root = _Reader(where, sink).document()
    except yaml.MarkedYAMLError as error:
        found = _syntax(where, error)
        # A forbidden mark on the same line may be the only cause of this error.
        if found.span.line not in [d.span.line for d in sink.errors]:
            sink.errors.append(found)
        raise DslError(*sink.errors) from None
    except yaml.reader.ReaderError as error:
        raise fault("Y001", f"not YAML: {error.reason}", where.span(0, 0, 1)) from None
    if any(d.code == "Y006" for d in sink.errors):
        raise DslError(*sink.errors)
    if root is None or (isinstance(root, YamlScalar) and root.empty):
        top = SourceSpan(where.path, 1, 1, 1)
        raise DslError(*sink.errors, Diagnostic("Y008", "the file is empty", top, (), starts))
    if not isinstance(root, YamlTable):
        raise DslError(*sink.errors, Diagnostic("Y013", "the file is not a mapping", root.span, (), starts))
    return YamlDocument(path, root, tuple(sink.errors))


class FileState(NamedTuple):
    """The state of a file, and its name in messages: a cache key for everything that is derived from the file.

    A restored file may have its old size and time of modification; `file` then has another inode or time of change.
    """

    path: Path
    shown: str
    changed: int
    size: int
    file: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> FileState:
        try:
            state = path.stat()
        except OSError:
            return cls(path, shown(path), 0, 0, ())
        file = state.st_dev, state.st_ino, state.st_ctime_ns
        return cls(path, shown(path), state.st_mtime_ns, state.st_size, file)


@cache
def read_cached(state: FileState) -> YamlDocument:
    """The result of `read`, cached by the state of the file."""
    return read(state.path)


def _refuse_hidden(where: SourceText) -> None:
    """Raise Y014 for an invisible character, even in a comment, so that reviewers see the text that is read."""
    for number, line in enumerate(where.lines):
        if hidden := HIDDEN.search(line):
            seen = replace(where.span(number, hidden.start(), 1), text=HIDDEN.sub("\N{REPLACEMENT CHARACTER}", line))
            raise fault("Y014", f"a character that cannot be seen, {_named(hidden[0])}", seen, help=UNSEEN)


def _named(character: str) -> str:
    """`U+202E RIGHT-TO-LEFT OVERRIDE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'CONTROL CHARACTER')}"


def _refuse_tabs(where: SourceText) -> None:
    for number, line in enumerate(where.lines):
        blank = line[: len(line) - len(line.lstrip())]
        if "\t" in blank and line.strip() and not line.lstrip().startswith("#"):
            span = where.span(number, blank.index("\t"), 1)
            raise fault("Y009", "a tab indents this line", span, help="indent with spaces")


def _syntax(where: SourceText, error: yaml.MarkedYAMLError) -> Diagnostic:
    mark = error.problem_mark or error.context_mark
    if mark and error.context_mark and not "".join(where.lines[mark.line :]).strip():
        mark = error.context_mark  # the end of the file has no line to show
    span = where.span(mark.line, mark.column, 1) if mark else where.span(0, 0, 1)
    note = f"{error.context}" if error.context else ""
    if note and error.context_mark:
        note += f" at line {error.context_mark.line + 1}"
    help = ""
    rest = span.text[span.column - 1 :]
    if rest[:1] in ("*", "&", "!", "%", "@", "`"):
        help = "quote a value that begins with a special character"
    if rest[:1] in ("[", "{") and span.text[: span.column - 1].endswith(" in "):
        help = "write a list alone, [0, 1, 2], or quote an expression, 'among(layer, 0, 1, 2)'"
    return Diagnostic("Y001", f"not YAML: {error.problem}", span, (note,) if note else (), help)


class _Reader:
    """A recursive reader of the events of one file."""

    def __init__(self, where: SourceText, sink: Sink) -> None:
        self.where, self.sink, self.depth = where, sink, 0
        self.events: Iterator[Any] = yaml.parse(where.text, Loader=Loader)

    def document(self) -> Tree | None:
        root, count = None, 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                count += 1
                if count > 1:
                    self._add("Y006", "a second document begins here", event, "one document per file")
                    break
                root = self._node(next(self.events))
        return root

    def _node(self, event: Any, flow: bool = False) -> Tree:
        if isinstance(event, yaml.AliasEvent):
            self._add("Y004", f"alias '*{event.anchor}'", event, STAR_HELP)
            return YamlScalar(f"*{event.anchor}", self._span(event), quoted=True)
        if event.anchor is not None:
            self._add("Y003", f"anchor '&{event.anchor}'", event, FORBIDDEN_HELP)
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._add("Y005", f"tag '{tag}'", event, "leave the tag out; types follow from the keys")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        self.depth += 1
        if self.depth > DEEPEST:
            help = f"no file needs more than {DEEPEST} levels"
            raise fault("Y015", "this is nested too deeply", self._span(event), help=help)
        found = self._table(event) if isinstance(event, yaml.MappingStartEvent) else self._list(event)
        self.depth -= 1
        return found

    def _scalar(self, event: Any) -> YamlScalar:
        start, end = event.start_mark, event.end_mark
        if hidden := HIDDEN.search(event.value):
            message = f"an escape stands for a character that cannot be seen, {_named(hidden[0])}"
            self.sink.add("Y014", message, self._span(event), help=UNSEEN)
        quoted = event.style not in (None, "")  # libyaml says "" where the Python parser says None
        if start.line == end.line and event.anchor is None and event.tag is None:
            inner = start.column + (event.style in ("'", '"'))
            span = self.where.span(start.line, inner, len(event.value))
            if span.text[inner : inner + len(event.value)] == event.value and event.style not in ("|", ">"):
                return YamlScalar(event.value, span, True, quoted)
        return YamlScalar(event.value, self._span(event), False, quoted)

    def _list(self, event: Any) -> YamlList:
        span, items = self._span(event), []
        while not isinstance(inner := next(self.events), yaml.SequenceEndEvent):
            items.append(self._node(inner, bool(event.flow_style)))
        return YamlList(tuple(items), span, bool(event.flow_style))

    def _table(self, event: Any) -> YamlTable:
        flow, entries, seen = bool(event.flow_style), list[YamlEntry](), dict[str, YamlScalar]()
        while not isinstance(inner := next(self.events), yaml.MappingEndEvent):
            key = self._node(inner)
            value = self._node(next(self.events), flow)
            if not isinstance(key, YamlScalar):
                self.sink.add("Y011", "a key must be a word", key.span)
            elif key in seen:
                first = seen[key].span.line
                self.sink.add("Y002", f"key '{key}' is given twice", key.span, f"first given at line {first}")
            elif flow and isinstance(value, YamlScalar) and value.empty:
                self._comma(key, entries)
            else:
                seen[key] = key
                entries.append(YamlEntry(key, value))
        return YamlTable(tuple(entries), self._span(event))

    def _comma(self, key: YamlScalar, entries: list[YamlEntry]) -> None:
        last = entries[-1].value if entries else None
        if isinstance(last, YamlScalar) and not last.quoted:
            note = f"inside {{ }} a comma ends the value '{last}'"
            numbers = NUMBERS.fullmatch(last) and NUMBERS.fullmatch(key)
            help = (
                "a list has brackets, [0, 1, 2], and a number no commas"
                if numbers
                else "quote an expression with a comma"
            )
            self.sink.add("Y010", f"key '{key}' has no value", key.span, note, help=help)
            entries[-1] = YamlEntry(entries[-1].key, _joined(last, key))
            return
        self.sink.add("Y010", f"key '{key}' has no value", key.span, help="write key: value")

    def _span(self, event: Any) -> SourceSpan:
        start, end = event.start_mark, event.end_mark
        line = self.where.lines[start.line] if start.line < len(self.where.lines) else ""
        length = end.column - start.column if end.line == start.line else len(line) - start.column
        return self.where.span(start.line, start.column, length)

    def _add(self, code: str, message: str, event: Any, help: str) -> None:
        kind = "is not allowed in a layout file" if code != "Y006" else ""
        self.sink.add(code, f"{message} {kind}".strip(), self._span(event), help=help)


def _joined(value: YamlScalar, key: YamlScalar) -> YamlScalar:
    """The value that was meant before a comma cut it, so that one mistake is one error."""
    start = value.span.column - 1
    if value.span.line != key.span.line:
        return YamlScalar(f"{value}, {key}", value.span, False)
    text = value.span.text[start : key.span.column - 1 + key.span.length]
    return YamlScalar(text, value.span.at(0, len(text)), value.exact)
