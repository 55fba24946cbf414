"""Parse storage expressions: text to loop nests, with fragments expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kvplan.dsl.lang import syntax
from kvplan.dsl.lang.expr import build, place
from kvplan.dsl.lang.nodes import Align, Axis, Expr, Item, Leaf, Name, Number, Pad, Repeat, Storage
from kvplan.dsl.text.diagnostics import DslError, fault, nearest
from kvplan.dsl.text.source import SourceSpan

if TYPE_CHECKING:
    from lark import Token, Tree

FILLERS = ("pad", "align")
# The most items that a fragment may expand to: fragments that use each other twice double them at each step.
MOST_ITEMS = 1000
# Loops that every storage expression has.
PLACES = ("layer", "block")


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a storage expression. `loop` is the name of its parameter, which a use replaces by loops, or empty."""

    loop: str
    text: str
    span: SourceSpan
    exact: bool = True


NONE: Mapping[str, Fragment] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StorageText:
    """A text that is being parsed: its place, the fragments it may use, and the fragments around it (`busy`).

    Inside a fragment with a parameter `loop`, `loops` are the loops that replace it.
    """

    text: str
    span: SourceSpan
    exact: bool
    fragments: Mapping[str, Fragment]
    loop: str = ""
    loops: tuple[Axis, ...] = ()
    busy: tuple[str, ...] = ()

    def place(self, tree: Any) -> SourceSpan:
        """The place of a token or a node of lark's tree."""
        if hasattr(tree, "meta"):
            return place(tree.meta, self.span, self.exact)
        return self.span.at(tree.start_pos or 0, len(tree)) if self.exact else self.span


def parse_items(
    text: str, span: SourceSpan, exact: bool = True, fragments: Mapping[str, Fragment] = NONE
) -> tuple[Item, ...]:
    """The loop nests of a text. Raises DslError (E001..E007, E019); errors in a fragment have its place."""
    return _whole(StorageText(text, span, exact, fragments))


def leaves(items: Sequence[Item]) -> Iterator[Leaf]:
    """All tensors named in `items`, in order."""
    for item in items:
        if isinstance(item, Leaf):
            yield item
        elif isinstance(item, Repeat):
            yield from leaves(item.body)


def layers_inside(storage: Storage) -> bool:
    """Whether a block of any allocation holds several layers."""
    return any(_has_loop("block", items, "layer") for _, items in storage.parts)


def _has_loop(name: str, items: Sequence[Item], inner: str = "") -> bool:
    """Whether there is a loop called `name`, and in it one called `inner` if that is given."""
    loops = [item for item in items if isinstance(item, Repeat)]
    here = [loop for loop in loops if loop.axis.name == name]
    return any(not inner or _has_loop(inner, loop.body) for loop in here) or any(
        _has_loop(name, loop.body, inner) for loop in loops
    )


def written(items: Sequence[Item]) -> str:
    """Loop nests as the text of a storage expression, with fragments expanded."""
    return " ".join(_written(item) for item in items)


def _written(item: Item) -> str:
    if isinstance(item, Leaf):
        return item.tensor
    if isinstance(item, Pad | Align):
        return f"{type(item).__name__.lower()}({_flat(item.size)})"
    axis = item.axis
    tiles = "".join(f"{op}{_argument(size)}" for op, size in axis.tiles)
    loop = f"{axis.name}{tiles}{f'+{_argument(axis.extra)}' if axis.extra else ''}"
    body = written(item.body)
    # `a { b { t } }` is `t[a b]`.
    if len(item.body) == 1 and axis.name not in PLACES and re.fullmatch(r"\w+(\[.*\])?", body):
        tensor, _, inner = body.removesuffix("]").partition("[")
        return f"{tensor}[{' '.join(filter(None, (loop, inner)))}]"
    return f"{loop} {{ {body} }}"


def _argument(expr: Expr) -> str:
    return _flat(expr) if isinstance(expr.tree, Name | Number) else f"({_flat(expr)})"


def _flat(expr: Expr) -> str:
    return " ".join(expr.text.split())


def _whole(of: StorageText) -> tuple[Item, ...]:
    return _items(syntax.tree(of.text, "storage", of.span, of.exact).children, of)


def _items(trees: Sequence[Any], of: StorageText) -> tuple[Item, ...]:
    return tuple(item for tree in trees for item in _item(tree, of))


def _item(tree: Tree[Token] | Any, of: StorageText) -> tuple[Item, ...]:
    head, *rest = tree.children
    if tree.data == "repeat":
        return _nest(_loops(head, of), _items(rest, of), of.place(tree))
    if tree.data == "filler":
        size = _expr(rest[0], of)
        return (Pad(size, of.place(tree)) if str(head) == "pad" else Align(size, of.place(tree)),)
    if tree.data == "fragment" or str(head) in of.fragments:
        return _fragment(tree, of)
    # `t[a b]` is `a { b { t } }`.
    return _nest(_every_loop(rest, of), (Leaf(str(head), of.place(head)),))


def _nest(axes: Sequence[Axis], body: tuple[Item, ...], span: SourceSpan | None = None) -> tuple[Item, ...]:
    """`body` inside loops, outermost first; `body` itself without loops."""
    for axis in reversed(axes):
        body = (Repeat(axis, body, span or axis.span),)
    return body


def _fragment(tree: Tree[Token] | Any, of: StorageText) -> tuple[Item, ...]:
    """The expansion of a fragment: `F(a b)` is its text with these loops for its parameter, `F[a b]` its text inside
    these loops."""
    head, *rest = tree.children
    name = str(head)
    fragment = of.fragments.get(name)
    wanted = tree.data == "fragment"
    if fragment is None:
        help = nearest(name, [*of.fragments, *FILLERS])
        raise fault("E019", f"'{name}' takes no argument", of.place(tree), help=help)
    if wanted != bool(fragment.loop) or (wanted and not rest):
        help = f"write {name}(…) with loops for its '{fragment.loop}'" if fragment.loop else f"write {name} alone"
        message = f"fragment '{name}' takes {'loops' if fragment.loop else 'no argument'}"
        raise fault("E019", message, of.place(tree), help=help)
    if name in of.busy:
        raise _circle(of, name)
    loops = _every_loop(rest, of)
    inner = replace(
        of,
        text=fragment.text,
        span=fragment.span,
        exact=fragment.exact,
        loop=fragment.loop,
        loops=loops if wanted else (),
        busy=(*of.busy, name),
    )
    items = _whole(inner)
    if _count(items) > MOST_ITEMS:
        message = f"fragment '{name}' stands for more than {MOST_ITEMS:,} loops and tensors"
        raise fault("E006", message, of.place(tree))
    return items if wanted else _nest(loops, items)


def _count(items: tuple[Item, ...]) -> int:
    """The number of loops, tensors and fillers, at all depths."""
    return sum(1 + (_count(item.body) if isinstance(item, Repeat) else 0) for item in items)


def _circle(of: StorageText, name: str) -> DslError:
    """The error for a circle of fragments; it is the same from each fragment of the circle."""
    around = of.busy[of.busy.index(name) :]
    at = around.index(min(around))
    circle = (*around[at:], *around[:at], around[at])
    message = f"fragment '{circle[0]}' needs itself: {' -> '.join(circle)}"
    return fault("E007", message, of.fragments[circle[0]].span)


def _every_loop(trees: Sequence[Any], of: StorageText) -> tuple[Axis, ...]:
    return tuple(axis for tree in trees for axis in _loops(tree, of))


def _loops(tree: Any, of: StorageText) -> tuple[Axis, ...]:
    """The loop over an axis; for the parameter of a fragment the loops that replace it."""
    if getattr(tree, "data", None) != "axis":
        raise fault("E019", "a fragment takes loops, which are axes", of.place(tree))
    name, *rest = tree.children
    if of.loop and str(name) == of.loop:
        if rest:
            raise fault("E019", f"'{name}' stands for loops and has no tiles", of.place(tree))
        return of.loops
    tiles = tuple((str(t.children[0]), _expr(t.children[1], of)) for t in rest if t.data == "tile")
    extra = [_expr(t.children[1], of) for t in rest if t.data == "extra"]
    return (Axis(str(name), tiles, extra[0] if extra else None, of.place(name)),)


def _expr(tree: Tree[Token] | Any, of: StorageText) -> Expr:
    text = of.text[tree.meta.start_pos : tree.meta.end_pos]
    return Expr(text, build(tree, of.span, of.exact), of.place(tree))
