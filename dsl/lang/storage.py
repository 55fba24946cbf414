"""Storage expressions: text to loop nests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kvplan.dsl.lang import syntax
from kvplan.dsl.lang.expr import build, place
from kvplan.dsl.lang.nodes import Align, Axis, Expr, Item, Leaf, Pad, Repeat, Storage
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, nearest
from kvplan.dsl.text.source import SourceSpan, inline

if TYPE_CHECKING:
    from lark import Token, Tree


def parse_storage(text: str, span: SourceSpan | None = None, name: str = "storage", exact: bool = True) -> Storage:
    """One allocation. Raises DslError (E001..E006, E019)."""
    where = span or inline(text)
    return Storage(name, ((None, parse_items(text, where, exact)),), where)


def parse_parts(
    parts: Sequence[tuple[str, str, SourceSpan]], span: SourceSpan, name: str, exact: bool = True
) -> Storage:
    """Several allocations: (part's name, its text, the text's place)."""
    return Storage(name, tuple((part, parse_items(text, at, exact)) for part, text, at in parts), span)


def parse_items(text: str, span: SourceSpan, exact: bool = True) -> tuple[Item, ...]:
    tree = syntax.tree(text, "storage", span, exact)
    return tuple(_item(child, text, span, exact) for child in tree.children)


def leaves(items: Sequence[Item]) -> Iterator[Leaf]:
    """Every tensor named under `items`, in order."""
    for item in items:
        if isinstance(item, Leaf):
            yield item
        elif isinstance(item, Repeat):
            yield from leaves(item.body)


def _item(tree: Tree[Token] | Any, text: str, span: SourceSpan, exact: bool) -> Item:
    at, parts = place(tree.meta, span, exact), tree.children
    if tree.data == "repeat":
        return Repeat(_axis(parts[0], text, span, exact), tuple(_item(p, text, span, exact) for p in parts[1:]), at)
    if tree.data == "filler":
        return _filler(str(parts[0]), _expr(parts[1], text, span, exact), at)
    return _leaf(parts, text, span, exact)


def _leaf(parts: Any, text: str, span: SourceSpan, exact: bool) -> Item:
    """`t[a b]` is `a { b { t } }`."""
    token = parts[0]
    at = span.at(token.start_pos or 0, len(token)) if exact else span
    inner: Item = Leaf(str(token), at)
    for part in reversed(parts[1:]):
        axis = _axis(part, text, span, exact)
        inner = Repeat(axis, (inner,), axis.span)
    return inner


def _filler(word: str, size: Expr, at: SourceSpan) -> Item:
    if word not in ("pad", "align"):
        raise DslError(Diagnostic("E019", f"'{word}' takes no argument", at, (), nearest(word, ("pad", "align"))))
    return Pad(size, at) if word == "pad" else Align(size, at)


def _axis(tree: Any, text: str, span: SourceSpan, exact: bool) -> Axis:
    name, *rest = tree.children
    at = span.at(name.start_pos or 0, len(name)) if exact else span
    tiles = tuple((str(t.children[0]), _expr(t.children[1], text, span, exact)) for t in rest if t.data == "tile")
    extra = [_expr(t.children[1], text, span, exact) for t in rest if t.data == "extra"]
    return Axis(str(name), tiles, extra[0] if extra else None, at)


def _expr(tree: Tree[Token] | Any, text: str, span: SourceSpan, exact: bool) -> Expr:
    return Expr(text[tree.meta.start_pos : tree.meta.end_pos], build(tree, span, exact), place(tree.meta, span, exact))
