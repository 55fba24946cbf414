"""Conditions over a side's options: check them without a side, and resolve aliases in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.evaluate import evaluate, is_true
from kvplan.dsl.lang.nodes import Binary, Call, Choice, Expr, Name, Node, Number, Text, Unary, every, parts, used
from kvplan.dsl.schema.fields import guarded
from kvplan.dsl.schema.kind import Param
from kvplan.dsl.text.diagnostics import Sink, nearest_or_all

# The operators that words may have; all others are for numbers.
WORDED = ("==", "!=", "and", "or")


@dataclass(frozen=True, slots=True)
class OptionWords:
    """The options of that name in all engines, and the words that options without listed values may be."""

    options: Mapping[str, Sequence[Param]] = field(default_factory=dict)
    words: frozenset[str] = frozenset()


def check_condition(sink: Sink, expr: Expr | None, option_words: Callable[[], OptionWords]) -> None:
    """Report words that an option can never be (K010), and errors that do not depend on options (T…, B…)."""
    if expr is None:
        return
    for name, word in _comparisons(expr.tree):
        _check_word(sink, name, word, option_words())
    for node in _constant(expr.tree):
        worth = is_true if node is expr.tree else evaluate
        guarded(sink, partial(worth, Expr(expr.text, node, expr.span), {}))
    for node in _calculations(expr.tree):
        guarded(sink, partial(evaluate, Expr(expr.text, node, expr.span), {}))


def meant(expr: Expr, options: Mapping[str, Param]) -> Expr:
    """`expr` for the sides of one engine: aliases are replaced by the words that they stand for."""
    return replace(expr, tree=_without_aliases(expr.tree, options))


def _check_word(sink: Sink, name: Name, word: Text, option_words: OptionWords) -> None:
    text, params = str(word.value), option_words.options.get(name.id, ())
    known = {value for param in params for value in (*param.values, *param.aliases)}
    free = any(param.type == "name" and not param.values for param in params)
    typed = any(param.type == "dtype" for param in params)
    others = {*(option_words.words if free else ()), *(dtypes.NAMES if typed else ())}
    if not params or text in known | others or (free and not known):
        return
    values = sorted(known or others)
    help = nearest_or_all(text, values) if values else "it is a number"
    sink.add("K010", f"'{name.id}' is never '{text}'", word.span, help=help)


def _comparisons(tree: Node) -> Iterator[tuple[Name, Text]]:
    """All pairs of a name and the word that it is compared with."""
    for node in (node for node in every(tree) if isinstance(node, Binary) and node.op in ("==", "!=")):
        match node.left, node.right:
            case (Name() as name, Text(value=str()) as word) | (Text(value=str()) as word, Name() as name):
                yield name, word


def _constant(node: Node) -> list[Node]:
    """The largest parts without names: their value is the same for every side."""
    return [inner for part in parts(node) for inner in _constant(part)] if used(node) else [node]


def _calculations(tree: Node) -> Iterator[Node]:
    """The parts that calculate with a word or compare its order, each with the number 1 as the other operand."""
    for node in (node for node in every(tree) if isinstance(node, Binary) and node.op not in WORDED and used(node)):
        left, right = (one if isinstance(one, Text) else Number(1, one.span) for one in (node.left, node.right))
        if Text in (type(node.left), type(node.right)):
            yield replace(node, left=left, right=right)


def _without_aliases(node: Node, options: Mapping[str, Param]) -> Node:
    match node:
        case Unary():
            return replace(node, value=_without_aliases(node.value, options))
        case Call():
            return replace(node, args=tuple(_without_aliases(arg, options) for arg in node.args))
        case Choice():
            test, then, other = (_without_aliases(part, options) for part in parts(node))
            return replace(node, test=test, then=then, other=other)
        case Binary(left=Name() as name, right=Text() as word):
            return replace(node, right=_word(word, options.get(name.id)))
        case Binary(left=Text() as word, right=Name() as name):
            return replace(node, left=_word(word, options.get(name.id)))
        case Binary():
            return replace(node, left=_without_aliases(node.left, options), right=_without_aliases(node.right, options))
    return node


def _word(word: Text, option: Param | None) -> Text:
    return replace(word, value=option.aliases.get(str(word.value), word.value)) if option else word
