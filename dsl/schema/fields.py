"""Checks of keys, names and sentences in a file's tree. Every function reports errors and goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kvplan.dsl.lang.nodes import Expr, Name, Text, used
from kvplan.dsl.text.diagnostics import DslError, Sink, close, listed, nearest
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlScalar, YamlTable

T = TypeVar("T")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
FRAGMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\([A-Za-z_][A-Za-z0-9_]*\))?")
LETTERS = {
    IDENTIFIER: "letters, digits and _",
    LABEL: "letters, digits, -, _ and .",
    FRAGMENT: "a name, or a name with one for loops: F(loops)",
}
KEYWORDS = {"if", "else", "and", "or", "not", "true", "false"}


def shown(tree: Tree) -> str:
    """A value as messages show it: the text of a scalar, else its type."""
    if isinstance(tree, YamlScalar):
        return "nothing" if tree.empty else f"'{tree}'"
    return "a mapping" if isinstance(tree, YamlTable) else "a list"


def entries(sink: Sink, tree: Tree | None, what: str, help: str = "") -> Named[Tree]:
    """The entries of a mapping, without notes (keys that begin with '-'). Reports K003 with `help` for other values."""
    if tree is None:
        return {}
    if not isinstance(tree, YamlTable):
        sink.add("K003", f"{what} must be a mapping, not {shown(tree)}", tree.span, help=help)
        return {}
    return {entry.key: entry.value for entry in tree.entries if not entry.key.startswith("-")}


def fields(
    sink: Sink,
    tree: Tree,
    what: str,
    known: Iterable[str],
    required: Iterable[str] = (),
    advice: Callable[[str, Sequence[str]], str] = nearest,
) -> dict[str, Tree]:
    """The entries of a mapping whose keys are `known`. Reports unknown keys (K001), with `advice`, and missing ones
    (K002).
    """
    given: dict[str, Tree] = {}
    allowed = list(known)
    meant: set[str] = set()
    written = entries(sink, tree, what, f"its keys are {listed(allowed, 'and')}")
    # A misspelled key cannot mean one that is given, too.
    free = [name for name in allowed if name not in written]
    for key, value in written.items():
        if key in allowed:
            given[key] = value
        else:
            meant.update(close(key, free))
            sink.add("K001", f"unknown key '{key}' in {what}", key.span, help=advice(key, free))
    missing = [name for name in required if name not in given and name not in meant]
    if missing and isinstance(tree, YamlTable):
        quoted = listed([f"'{name}'" for name in missing], "and")
        sink.add("K002", f"{what} lacks {quoted}", tree.span, help=f"add {', '.join(f'{m}: …' for m in missing)}")
    return given


def guarded(sink: Sink, parse: Callable[[], T]) -> T | None:
    """The result of `parse`; None if it raised DslError, whose errors go to the sink."""
    try:
        return parse()
    except DslError as error:
        sink.take(error)
        return None


def check_names(
    sink: Sink,
    expr: Expr | None,
    known: Iterable[str],
    wanted: str = "",
    hint: Callable[[str], str] = lambda name: "",
) -> None:
    """Report every name in `expr` that is not `known` (E005), with a `hint` at it; `wanted` is the message for a bare
    word."""
    names = set(known)
    for name in used(expr.tree) if expr else ():
        if name.id not in names:
            near = nearest(name.id, names) if close(name.id, names) else ""
            said = f"unknown name '{name.id}'" + (f"; {wanted}" if wanted and not near else "")
            sink.add(
                "E005",
                said,
                name.span,
                help=near or hint(name.id) or ("" if wanted else f"a word is written \"'{name.id}'\""),
            )


def placeholders(text: str) -> tuple[str, ...]:
    """The names in braces in a sentence or a storage rule: `{tp}`."""
    return tuple(re.findall(r"\{([^{}]*)\}", text))


def check_sentence(sink: Sink, tree: YamlScalar | None, known: Iterable[str]) -> None:
    """Report every {name} in a sentence that is not `known` (E005)."""
    names = set(known)
    for name in placeholders(tree) if tree else ():
        if tree and name not in names:
            place = tree.span.at(tree.index("{" + name + "}"), len(name) + 2) if tree.exact else tree.span
            sink.add("E005", f"unknown name '{name}' in braces", place, help=nearest(name, names))


def worded(expr: Expr | None, meanings: Mapping[str, str]) -> Expr | None:
    """`expr`; if it is a bare name or a word in `meanings`, the quoted word that it means: `'f32'` for `f32`."""
    if expr is not None and isinstance(expr.tree, Name) and expr.tree.id in meanings:
        return Expr(expr.text, Text(meanings[expr.tree.id], expr.tree.span), expr.span)
    if expr is not None and isinstance(expr.tree, Text) and isinstance(expr.tree.value, str):
        word = expr.tree.value
        return Expr(expr.text, Text(meanings.get(word, word), expr.tree.span), expr.span)
    return expr
