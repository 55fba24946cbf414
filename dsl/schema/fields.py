"""Reading typed values out of a file's tree. Every function reports what is wrong and gives a harmless value back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import Expr, Name, Text, used
from kvplan.dsl.text.diagnostics import DslError, Sink, close, listed, nearest
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

T = TypeVar("T")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")
DECIMAL = "numbers are decimal, without quotes or leading zeros"
KEYWORDS = {"if", "else", "and", "or", "not", "true", "false"}


def shape(tree: Tree) -> str:
    if isinstance(tree, YamlScalar):
        return "nothing" if tree.empty else f"'{tree.text}'"
    return "a mapping" if isinstance(tree, YamlTable) else "a list"


def entries(sink: Sink, tree: Tree | None, what: str) -> dict[YamlScalar, Tree]:
    """The entries of a mapping, without notes (keys that begin with '-')."""
    if tree is None:
        return {}
    if not isinstance(tree, YamlTable):
        sink.add("K003", f"{what} must be a mapping, not {shape(tree)}", tree.span)
        return {}
    return {entry.key: entry.value for entry in tree.entries if not entry.key.text.startswith("-")}


def fields(sink: Sink, tree: Tree, what: str, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Tree]:
    """The entries of a mapping whose keys are `known`; reports unknown (K001) and missing (K002) ones."""
    found: dict[str, Tree] = {}
    allowed = list(known)
    for key, value in entries(sink, tree, what).items():
        if key.text in allowed:
            found[key.text] = value
        else:
            sink.add("K001", f"unknown key '{key.text}' in {what}", key.span, help=nearest(key.text, allowed))
    meant = {hit for key in entries(Sink(), tree, what) if key.text not in found for hit in close(key.text, allowed)}
    missing = [name for name in required if name not in found and name not in meant]
    if missing and isinstance(tree, YamlTable):
        quoted = listed([f"'{name}'" for name in missing], "and")
        sink.add("K002", f"{what} lacks {quoted}", tree.span, help=f"add {', '.join(f'{m}: …' for m in missing)}")
    return found


def scalar(sink: Sink, tree: Tree | None, what: str) -> YamlScalar | None:
    if tree is None:
        return None
    if isinstance(tree, YamlScalar) and not tree.empty:
        return tree
    sink.add("K003", f"{what} must be a single value, not {shape(tree)}", tree.span)
    return None


def text(sink: Sink, tree: Tree | None, what: str, default: str = "") -> str:
    found = scalar(sink, tree, what)
    return found.text if found else default


def word(sink: Sink, tree: Tree | None, what: str, allowed: Sequence[str], default: str) -> str:
    """One of `allowed`, else K010."""
    found = scalar(sink, tree, what)
    if found is None or found.text in allowed:
        return found.text if found else default
    sink.add("K010", f"{what} cannot be '{found.text}'", found.span, help=nearest(found.text, allowed))
    return default


def truth(sink: Sink, tree: Tree | None, what: str, default: bool = False) -> bool:
    return word(sink, tree, what, ("true", "false"), str(default).lower()) == "true"


def integer(sink: Sink, tree: Tree | None, what: str, least: int = 0, most: int | None = None) -> int | None:
    """A decimal integer from `least` to `most`, else K013."""
    found = scalar(sink, tree, what)
    if found is None:
        return None
    number = None if found.quoted or not INTEGER.fullmatch(found.text) else int(found.text)
    if number is not None and number >= least and (most is None or number <= most):
        return number
    whole = f"a whole number from {least}" + ("" if most is None else f" to {most}")
    sink.add("K013", f"{what} must be {whole}, not '{found.text}'", found.span, help=DECIMAL if number is None else "")
    return None


def words(sink: Sink, tree: Tree | None, what: str) -> tuple[str, ...]:
    """A list of words; a single word is a list of one."""
    if isinstance(tree, YamlScalar) and not tree.empty:
        return (tree.text,)
    return tuple(item.text for item in items(sink, tree, what) if isinstance(item, YamlScalar))


def items(sink: Sink, tree: Tree | None, what: str) -> tuple[Tree, ...]:
    if tree is None:
        return ()
    if isinstance(tree, YamlList):
        return tree.items
    sink.add("K003", f"{what} must be a list, not {shape(tree)}", tree.span)
    return ()


def named(
    sink: Sink, tree: Tree | None, what: str, pattern: re.Pattern[str] = IDENTIFIER
) -> dict[str, tuple[Tree, SourceSpan]]:
    """Entries whose keys are names that expressions can use (or labels); else K009."""
    found = {}
    for key, value in entries(sink, tree, what).items():
        if not pattern.fullmatch(key.text) or key.text in KEYWORDS:
            sink.add("K009", f"'{key.text}' cannot be a name in {what}", key.span, help="letters, digits and _")
        else:
            found[key.text] = value, key.span
    return found


def guarded(sink: Sink, parse: Callable[[], T]) -> T | None:
    """What `parse` gives, or None where it raised, with its errors in the sink."""
    try:
        return parse()
    except DslError as error:
        sink.take(error)
        return None


def expression(sink: Sink, tree: Tree | None, what: str) -> Expr | None:
    if tree is None:
        return None
    if not isinstance(tree, YamlScalar):
        help = "quote an expression that begins with a bracket"
        sink.add("E023", f"{what} must be an expression, not {shape(tree)}", tree.span, help=help)
        return None
    return guarded(sink, lambda: parse_expr(tree.text, tree.span, tree.exact))


def expressions(sink: Sink, tree: Tree | None, what: str) -> dict[str, Expr]:
    found = {name: expression(sink, value, f"'{name}'") for name, (value, _) in named(sink, tree, what).items()}
    return {name: expr for name, expr in found.items() if expr is not None}


def check_names(sink: Sink, expr: Expr | None, known: Iterable[str], wanted: str = "") -> None:
    """Report every name in `expr` that is not `known` (E005); `wanted` says what a bare word should have been."""
    names = set(known)
    for name in used(expr.tree) if expr else ():
        if name.id not in names:
            help = wanted or f"a word is written \"'{name.id}'\""
            help = nearest(name.id, names) if close(name.id, names) else help
            sink.add("E005", f"unknown name '{name.id}'", name.span, help=help)


def placeholders(text: str) -> tuple[str, ...]:
    """The names in braces in a sentence or a storage rule: `{tp}`."""
    return tuple(re.findall(r"\{([^{}]*)\}", text))


def check_sentence(sink: Sink, tree: YamlScalar, known: Iterable[str]) -> None:
    """Report every {name} in a sentence that is not `known` (E005)."""
    names = set(known)
    for name in placeholders(tree.text):
        if name not in names:
            place = tree.span.at(tree.text.index("{" + name + "}"), len(name) + 2) if tree.exact else tree.span
            sink.add("E005", f"unknown name '{name}' in braces", place, help=nearest(name, names))


def worded(expr: Expr | None, meanings: Mapping[str, str]) -> Expr | None:
    """`expr`, where a bare name is one of `meanings`, as the word it means: `f32` for `'f32'`."""
    if expr is not None and isinstance(expr.tree, Name) and expr.tree.id in meanings:
        return Expr(expr.text, Text(meanings[expr.tree.id], expr.tree.span), expr.span)
    if expr is not None and isinstance(expr.tree, Text) and isinstance(expr.tree.value, str):
        word = expr.tree.value
        return Expr(expr.text, Text(meanings.get(word, word), expr.tree.span), expr.span)
    return expr
