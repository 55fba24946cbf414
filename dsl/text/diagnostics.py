"""Collect, sort and render errors and warnings in layout files: message, place, values, advice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from kvplan.dsl.text.source import SourceSpan

SHORT_LIST = 8
# Names that share a word are all proposed if they are no more than these.
FEW = 2
# The most characters of a source line that are shown.
LONGEST_LINE = 200
# The ratio (difflib) from which a name counts as a misspelling of another.
ALIKE = 0.75


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error, or one warning (W…).

    `notes` are facts, `help` is advice; `values` are the names and values in play, shown below the caret.
    """

    code: str
    message: str
    span: SourceSpan
    notes: tuple[str, ...] = ()
    help: str = ""
    values: tuple[tuple[str, object], ...] = ()


class DslError(Exception):
    """One or more errors in layout files or expressions."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(diagnostics)
        self.diagnostics = tuple(ordered(diagnostics))

    def __str__(self) -> str:
        return render(self.diagnostics)

    def replaced(self, *diagnostics: Diagnostic) -> DslError:
        """The same error with other diagnostics."""
        return DslError(*diagnostics)


def fault(code: str, message: str, span: SourceSpan, *notes: str, help: str = "") -> DslError:
    """The DslError with one diagnostic."""
    return DslError(Diagnostic(code, message, span, notes, help))


@dataclass(slots=True)
class Sink:
    """A collector of the errors in one file, so that one run reports them all."""

    errors: list[Diagnostic] = field(default_factory=list)

    def add(self, code: str, message: str, span: SourceSpan, *notes: str, help: str = "") -> None:
        self.errors.append(Diagnostic(code, message, span, tuple(note for note in notes if note), help))

    def take(self, error: DslError) -> None:
        self.errors.extend(error.diagnostics)

    @contextmanager
    def about(self, what: str, path: str) -> Iterator[None]:
        """Prefix errors added meanwhile with their subject, `cache 'window': …`, unless their message has it.

        An error in another file than `path` is unchanged, so that it equals that file's own error and is reported once.
        """
        before = len(self.errors)
        yield
        for number, one in enumerate(self.errors[before:], before):
            if what not in one.message and one.span.path == path:
                self.errors[number] = replace(one, message=f"{what}: {one.message}")


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The diagnostics sorted by path, line, column and code, each once."""
    every = list(diagnostics)
    if len(every) < 2:
        return every  # `new` meets thousands of single errors: hashing each takes long
    # A YAML error hides all other errors at its place: it is the one mistake there.
    unique = dict.fromkeys(every)
    spoilt = {_place(d) for d in unique if d.code.startswith("Y")}
    told = [d for d in unique if d.code.startswith("Y") or _place(d) not in spoilt]
    return sorted(told, key=lambda d: (*_place(d), d.code))


def _place(diagnostic: Diagnostic) -> tuple[str, int, int]:
    return diagnostic.span.path, diagnostic.span.line, diagnostic.span.column


def close(word: str, known: Iterable[str]) -> list[str]:
    """The nearest known names, if any: one of the same words, a similar one, a few that have the word as one of theirs,
    or a word of it, `dim` of `head_dim`.

    Large letters are like small ones, and `-` is like `_`.
    """
    by_text = {_folded(name): name for name in sorted(set(known), reverse=True)}
    names, asked = sorted(by_text), _folded(word)
    turned = [name for name in names if sorted(name.split("_")) == sorted(asked.split("_"))]
    within = [name for name in names if name in asked.split("_")]
    alike = get_close_matches(asked, names, 1, ALIKE)
    longer = [name for name in names if asked in name.split("_")]
    part = longer if len(longer) <= FEW else []
    near = turned[:1] or alike or part or get_close_matches(asked, within, 1, 0.0) or get_close_matches(asked, names, 1)
    return [by_text[name] for name in near]


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_")


def nearest(word: str, known: Iterable[str]) -> str:
    """Advice with the nearest known name, else with all names if they are few, else empty."""
    choices = sorted(set(known))
    if near := close(word, choices):
        return f"did you mean {quoted(near)}?"
    return f"expected {listed(choices)}" if 0 < len(choices) <= SHORT_LIST else ""


def quoted(names: Iterable[str]) -> str:
    """Names as a question lists them: 'a' or 'b'."""
    return listed([f"'{name}'" for name in names])


def nearest_or_all(word: str, values: Sequence[str]) -> str:
    """Advice with the nearest value, else with all values."""
    return nearest(word, values) or f"expected {listed(values)}"


def listed(words: Sequence[str], last: str = "or") -> str:
    """Words as a sentence lists them: a, b or c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else "nothing"


def ranges(numbers: Iterable[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def layer_ranges(layers: Sequence[int]) -> str:
    """`layer 3`, or `layers 0-3, 7`."""
    return f"layer{'s'[: len(layers) > 1]} {ranges(layers)}"


def render(diagnostics: Iterable[Diagnostic], form: str = "text") -> str:
    """The diagnostics as `text` with underlined source, as `json`, or as `github` annotations; empty text for none."""
    errors = ordered(diagnostics)
    if form == "json":
        return json.dumps([_record(d) for d in errors], indent=2)
    if form == "github":
        return "\n".join(_annotation(d) for d in errors)
    return "\n".join([*(as_text(d) for d in errors), counted(errors)]) if errors else ""


def counted(diagnostics: Sequence[Diagnostic]) -> str:
    """`1 error, 2 warnings`."""
    doubts = sum(is_doubt(d) for d in diagnostics)
    counts = ((len(diagnostics) - doubts, "error"), (doubts, "warning"))
    return ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts if n)


def is_doubt(diagnostic: Diagnostic) -> bool:
    """Whether a diagnostic is a warning, not an error."""
    return diagnostic.code.startswith("W")


def as_text(d: Diagnostic) -> str:
    """One diagnostic with its underlined source line."""
    width = max(2, len(str(d.span.line)))
    rail = f"{'':{width}} |"
    severity = "warning" if is_doubt(d) else "error"
    lines = [f"{d.span.path}:{d.span.line}:{d.span.column}: {severity}[{d.code}]: {d.message}"]
    if d.span.text.strip():
        span = _clipped(d.span)
        lines += [rail, f"{d.span.line:>{width}} | {span.text}", f"{rail} {_caret(span)}"]
    if d.values:
        lines.append(f"{rail} {', '.join(f'{name} = {as_written(value)}' for name, value in d.values)}")
    return "\n".join([*lines, *(f"{'':{width}} = {note}" for note in (*d.notes, d.help) if note)])


def as_written(value: object) -> str:
    """A value as layout files and sides write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _clipped(span: SourceSpan) -> SourceSpan:
    """A span whose line is cut to LONGEST_LINE characters around it."""
    if len(span.text) <= LONGEST_LINE:
        return span
    first = max(span.column - 1 - LONGEST_LINE // 2, 0)
    last = first + LONGEST_LINE
    before, after = "…" if first else "", "…" if last < len(span.text) else ""
    text = f"{before}{span.text[first:last]}{after}"
    return replace(span, column=span.column - first + len(before), text=text)


def _caret(span: SourceSpan) -> str:
    before = span.text[: span.column - 1]
    room = max(len(span.text) - len(before), 1)
    return "".join("\t" if c == "\t" else " " for c in before) + "^" * min(span.length, room)


def _record(d: Diagnostic) -> dict[str, object]:
    place = {"path": d.span.path, "line": d.span.line, "column": d.span.column, "length": d.span.length}
    values = {name: as_written(value) for name, value in d.values}
    return {"code": d.code, "message": d.message, **place, "notes": list(d.notes), "help": d.help, "values": values}


def _annotation(d: Diagnostic) -> str:
    end = d.span.column + d.span.length
    body = "\n".join([d.message, *d.notes, *([d.help] if d.help else [])])
    text = body.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    path = d.span.path.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    place = f"file={path},line={d.span.line},col={d.span.column},endColumn={end},title={d.code}"
    return f"::{'warning' if is_doubt(d) else 'error'} {place}::{text}"
