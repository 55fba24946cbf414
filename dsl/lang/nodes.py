"""The nodes of the two small languages: expressions, and the loop nests of storage expressions.

They are frozen; `span` is the place where each was written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kvplan.dsl.lang.functions import ABOUT_NAMES
from kvplan.dsl.text.source import SourceSpan

# The value of an expression: a number, a truth value, or a word (a dtype, an order, a name).
Value = int | bool | str


@dataclass(frozen=True, slots=True)
class SizeSet:
    """A set of positive numbers: those listed in `only`, or every multiple of `step`."""

    step: int = 0
    only: tuple[int, ...] = ()

    def __and__(self, other: SizeSet) -> SizeSet | None:
        """The sizes that both sets have; None if there are none."""
        if not self.only and not other.only:
            return SizeSet(step=math.lcm(self.step, other.step))
        every = self.only or other.only
        common = tuple(size for size in every if size in self and size in other)
        return SizeSet(only=common) if common else None

    def __contains__(self, size: int) -> bool:
        return size in self.only if self.only else size % self.step == 0

    def __str__(self) -> str:
        return "+".join(map(str, self.only)) if self.only else f"multiples({self.step})"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number."""

    value: int
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted word, 'fp8', or true / false as a bool."""

    value: str | bool
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Name:
    """A name: of a parameter, an option, a derived value."""

    id: str
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `not x`."""

    op: str
    value: Node
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Binary:
    """`+ - * // %`, comparison (== != < <= > >=), `and`, `or`."""

    op: str
    left: Node
    right: Node
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Choice:
    """`then if test else other`."""

    test: Node
    then: Node
    other: Node
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the language: ceildiv min max gcd lcm bytes multiples least largest rank."""

    function: str
    args: tuple[Node, ...]
    span: SourceSpan


Node = Number | Text | Name | Unary | Binary | Choice | Call


@dataclass(frozen=True)
class Expr:
    """An expression: its text as written, its tree, its place."""

    text: str
    tree: Node
    span: SourceSpan

    @cached_property
    def names(self) -> frozenset[str]:
        """The names whose values the expression uses; `rank(tp)` and `given(block)` are names, too."""
        return frozenset(name.id for name in used(self.tree))

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that the expression calls."""
        return frozenset(node.function for node in every(self.tree) if isinstance(node, Call))


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis in a storage expression: `dim`, tiled `dim/8` or `dim%8`, `tap+draft` for padding iterations.

    `tiles` are applied left to right: ("/", n) gives the number of the tile of n, ("%", n) the place in it.
    """

    name: str
    tiles: tuple[tuple[str, Expr], ...]
    extra: Expr | None
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop over an axis, with the items that it repeats."""

    axis: Axis
    body: tuple[Item, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Leaf:
    """One element of a tensor."""

    tensor: str
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Pad:
    """`size` bytes that nothing uses."""

    size: Expr
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Align:
    """Padding up to a multiple of `size` bytes."""

    size: Expr
    span: SourceSpan


Item = Repeat | Leaf | Pad | Align


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage expression; `parts` are separate allocations (name, items). A single one has the name None."""

    name: str
    parts: tuple[tuple[str | None, tuple[Item, ...]], ...]
    span: SourceSpan


def parts(node: Node) -> tuple[Node, ...]:
    """The direct parts of a node, the condition of a choice first."""
    match node:
        case Unary():
            return (node.value,)
        case Binary():
            return node.left, node.right
        case Choice():
            return node.test, node.then, node.other
        case Call():
            return node.args
    return ()


def every(node: Node) -> Iterator[Node]:
    """All nodes of a tree, each before its parts."""
    yield node
    for part in parts(node):
        yield from every(part)


def used(node: Node) -> list[Name]:
    """All names in a tree, in the order of appearance."""
    match node:
        case Name():
            return [node]
        case Call(function=function) if function in ABOUT_NAMES:
            return [Name(f"{function}({arg.id})", arg.span) for arg in node.args if isinstance(arg, Name)]
    return [name for part in parts(node) for name in used(part)]
