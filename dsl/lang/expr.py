"""Parse expressions: text to tree. `evaluate` computes their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvplan.dsl.lang import syntax
from kvplan.dsl.lang.functions import ABOUT_NAMES, ARITY, EVERY, INSTEAD, Arity
from kvplan.dsl.lang.nodes import Binary, Call, Choice, Expr, Name, Node, Number, Text, Unary
from kvplan.dsl.text.diagnostics import fault, nearest
from kvplan.dsl.text.source import SourceSpan, inline

if TYPE_CHECKING:
    from lark import Token, Tree


def parse_expr(text: str, span: SourceSpan | None = None, exact: bool = True, functions: Arity = ARITY) -> Expr:
    """The expression `text`; `exact` says that `span` begins where the text does.

    `functions` is EVERY if names have foreign values. Raises DslError (E001..E006, E025).
    """
    where = span or inline(text)
    return Expr(text, build(syntax.tree(text, "expr", where, exact), where, exact, functions), where)


def place(meta: Any, span: SourceSpan, exact: bool) -> SourceSpan:
    """The span of a lark node inside the span of its text."""
    return span.at(meta.start_pos, meta.end_pos - meta.start_pos) if exact and not meta.empty else span


def build(tree: Tree[Token], span: SourceSpan, exact: bool, functions: Arity = ARITY) -> Node:
    """A lark tree as nodes, each with its place; only `functions` are known."""
    at, kind, parts = place(tree.meta, span, exact), tree.data, tree.children
    if kind in ("number", "word", "truth", "name"):
        return _atom(str(kind), str(parts[0]), at)
    if kind == "call":
        args = tuple(build(part, span, exact, functions) for part in parts[1:] if part and not isinstance(part, str))
        function = str(parts[0])
        return _call(function, args, at, at.at(0, len(function)) if exact else at, functions)
    inner = [build(part, span, exact, functions) for part in parts if not isinstance(part, str)]
    if kind == "choice":
        return Choice(inner[1], inner[0], inner[2], at)
    # A str: comparing a lark Token runs Python.
    op = str(next(part for part in parts if isinstance(part, str)))
    return Unary(op, inner[0], at) if kind == "unary" else Binary(op, inner[0], inner[1], at)


def _atom(kind: str, text: str, at: SourceSpan) -> Node:
    if kind == "number":
        if len(text) > 18:
            raise fault("B002", f"the number {text[:12]}… is too large", at)
        return Number(int(text), at)
    if kind == "name":
        return Name(text, at)
    return Text(text == "true", at) if kind == "truth" else Text(text[1:-1], at)


def _call(function: str, args: tuple[Node, ...], at: SourceSpan, name: SourceSpan, functions: Arity) -> Node:
    if function not in functions:
        if function in EVERY:
            raise fault("E025", f"{function} is for foreign values, and there are none here", name)
        raise fault(
            "E003", f"unknown function '{function}'", name, help=INSTEAD.get(function) or nearest(function, functions)
        )
    low, high = functions[function]
    if not low <= len(args) <= high:
        count = str(low) if low == high else f"{low} or more"
        raise fault("E004", f"{function} takes {count} argument{'s' * (count != '1')}, not {len(args)}", at)
    if function in ABOUT_NAMES and not isinstance(args[0], Name):
        raise fault("E004", f"{function} takes the name of {ABOUT_NAMES[function]}", at, help=f"write {function}(NAME)")
    return Call(function, args, at)
