"""A cache's storage expression written out as it is for the tensors that the cache has."""

from __future__ import annotations

from kvplan.compiler.bound import BoundCache
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Align, Axis, Expr, Item, Leaf, Name, Number, Pad
from kvplan.dsl.lang.storage import leaves

OUTSIDE = ("block", "layer")


def nests(cache: BoundCache) -> list[str]:
    """The storage expression of a cache with the tensors that it has; one text per allocation."""
    parts = [(name, " ".join(_items(items, cache))) for name, items in cache.storage.parts]
    return [f"{name}: {text}" if name else text for name, text in parts if text]


def _items(items: tuple[Item, ...], cache: BoundCache) -> list[str]:
    return [text for item in items if (text := _item(item, cache))]


def _item(item: Item, cache: BoundCache) -> str:
    if isinstance(item, Leaf):
        return item.tensor if item.tensor in {tensor.name for tensor in cache.tensors} else ""
    if isinstance(item, Pad | Align):
        least, word = (0, "pad") if isinstance(item, Pad) else (1, "align")
        return f"{word}({_text(item.size)})" if evaluate(item.size, cache.env) != least else ""
    if not {leaf.tensor for leaf in leaves(item.body)} & {tensor.name for tensor in cache.tensors}:
        return ""
    axis, body = _axis(item.axis), _items(item.body, cache)
    alone = item.axis.name not in OUTSIDE and len(body) == 1 and "{" not in body[0]
    return _shorter(axis, body[0]) if alone else f"{axis} {{ {' '.join(body)} }}"


def _shorter(axis: str, body: str) -> str:
    """`a { t[b] }` as `t[a b]`."""
    tensor, _, inner = body.rstrip("]").partition("[")
    return f"{tensor}[{' '.join(filter(None, (axis, inner)))}]"


def _axis(axis: Axis) -> str:
    tiles = "".join(f"{op}{_argument(expr)}" for op, expr in axis.tiles)
    return f"{axis.name}{tiles}" + (f"+{_argument(axis.extra)}" if axis.extra else "")


def _argument(expr: Expr) -> str:
    return _text(expr) if isinstance(expr.tree, Name | Number) else f"({_text(expr)})"


def _text(expr: Expr) -> str:
    return " ".join(expr.text.split())
