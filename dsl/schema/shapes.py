"""Shapes of the values in layout files. A shape reads a tree, and JSON Schemas and docs are derived from it.

A shape's `read` returns a typed value and reports errors in the tree; `what` names the value in messages. The readers
in `files` and `rules` check keys against each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.functions import ARITY, EVERY
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.fields import guarded, shown
from kvplan.dsl.text.diagnostics import Sink, close, listed, nearest_or_all
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar

T = TypeVar("T")
R = TypeVar("R", covariant=True)
INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")
FRACTION = re.compile(r"-?[0-9]+\.[0-9]*|-?\.[0-9]+")
DECIMAL = "numbers are decimal, without quotes or leading zeros"


class Shape(Protocol[R]):
    """The shape of a value: how it is read."""

    def read(self, sink: Sink, tree: Tree | None, what: str) -> R:
        """The value; a harmless one if it is missing, or wrong, which is reported."""


@dataclass(frozen=True, slots=True)
class ScalarShape:
    """A single value. `what` describes it in words; `pattern` is a regular expression for the whole text."""

    what: str
    pattern: str = ""

    def read(self, sink: Sink, tree: Tree | None, what: str) -> YamlScalar | None:
        if tree is None or (isinstance(tree, YamlScalar) and not tree.empty):
            return tree
        sink.add("K003", f"{what} must be a single value, not {shown(tree)}", tree.span)
        return None


@dataclass(frozen=True, slots=True)
class TextShape:
    """A single value as text, empty if not given."""

    what: str = "text"
    pattern: str = ""

    def read(self, sink: Sink, tree: Tree | None, what: str) -> YamlScalar:
        return SCALAR.read(sink, tree, what) or YamlScalar("")


@dataclass(frozen=True, slots=True)
class ExpressionShape:
    """An expression; if `foreign`, over the values of a configuration or a dump."""

    foreign: bool = False

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Expr | None:
        if tree is None:
            return None
        if not isinstance(tree, YamlScalar):
            sink.add("E023", f"{what} must be an expression, not {shown(tree)}", tree.span, help=_single(tree))
            return None
        if FRACTION.fullmatch(tree):
            sink.add("E001", f"{what} must be a whole number, not {tree}", tree.span, help="there are no fractions")
            return None
        return guarded(sink, lambda: parse_expr(tree, tree.span, tree.exact, EVERY if self.foreign else ARITY))


def _single(tree: Tree) -> str:
    """Advice for a list or a mapping in place of a single value."""
    only = tree.items[0] if isinstance(tree, YamlList) and len(tree.items) == 1 else None
    return f"write one value: {only}" if isinstance(only, YamlScalar) else "write one value, without brackets"


@dataclass(frozen=True, slots=True)
class WholeShape:
    """A whole number from `least` to `most`, or without an end if `most` is None. Reports K013 for any other."""

    least: int = 0
    most: int | None = None

    def read(self, sink: Sink, tree: Tree | None, what: str) -> int | None:
        scalar = SCALAR.read(sink, tree, what)
        if scalar is None:
            return None
        number = None if scalar.quoted or not INTEGER.fullmatch(scalar) else int(scalar)
        if number is not None and number >= self.least and (self.most is None or number <= self.most):
            return number
        whole = f"a whole number from {self.least}" + ("" if self.most is None else f" to {self.most}")
        help = DECIMAL if number is None else ""
        sink.add("K013", f"{what} must be {whole}, not '{scalar}'", scalar.span, help=help)
        return None


@dataclass(frozen=True, slots=True)
class MeasureShape:
    """A whole number in the unit of files, converted to the unit of the class: times `times`, divided by `per`."""

    of: WholeShape
    times: int = 1
    per: int = 1

    def read(self, sink: Sink, tree: Tree | None, what: str) -> float | None:
        number = self.of.read(sink, tree, what)
        return None if number is None else number * self.times / self.per


@dataclass(frozen=True, slots=True)
class FractionShape:
    """A fraction of at least 1, as numerator and denominator; 1 if not given. Reports K013 for any other text."""

    what: str = "fraction"
    pattern: str = "[0-9]+(/[0-9]*)?"

    def read(self, sink: Sink, tree: Tree | None, what: str) -> tuple[int, int]:
        scalar = SCALAR.read(sink, tree, what) or YamlScalar("1")
        over, _, under = scalar.partition("/")
        if over.isdecimal() and (under or "1").isdecimal() and int(under or 1) and int(over) >= int(under or 1):
            return int(over), int(under or 1)
        sink.add("K013", f"{what} must be a fraction from 1, not '{scalar}'", scalar.span, help="write it as 3/2")
        return 1, 1


@dataclass(frozen=True, slots=True)
class WordShape:
    """One of `values`, the first if not given; if `option`, also `{option}`, which stands for an option's value."""

    values: tuple[str, ...]
    option: bool = False

    def read(self, sink: Sink, tree: Tree | None, what: str) -> str:
        scalar = SCALAR.read(sink, tree, what)
        if scalar is None or scalar in self.values or (self.option and "{" in scalar):
            return str(scalar) if scalar else self.values[0]
        help = nearest_or_all(scalar, self.values)
        sink.add("K010", f"{what} cannot be '{scalar}'", scalar.span, help=help)
        return self.values[0]


@dataclass(frozen=True, slots=True)
class TruthShape:
    """A truth value, `true` or `false`; false if not given."""

    values: tuple[str, ...] = ("false", "true")

    def read(self, sink: Sink, tree: Tree | None, what: str) -> bool:
        return WordShape(self.values).read(sink, tree, what) == "true"


@dataclass(frozen=True, slots=True)
class DtypeShape:
    """An element type of models, by any of its names, read as the canonical one. Reports T002 for others."""

    values: tuple[str, ...] = dtypes.OF_MODELS_NAMED

    def read(self, sink: Sink, tree: Tree | None, what: str) -> str | None:
        scalar = SCALAR.read(sink, tree, what)
        if scalar is not None and scalar not in self.values:
            near = close(scalar, self.values) if scalar not in dtypes.NAMES else ()
            help = f"did you mean '{near[0]}'?" if near else f"expected {listed(dtypes.OF_MODELS)}"
            sink.add("T002", f"'{scalar}' is not an element type of models", scalar.span, help=help)
        return dtypes.canonical(str(scalar)) if scalar is not None else None


@dataclass(frozen=True, slots=True)
class NameShape:
    """A name that a file of the type `file_type` describes, or one of `words`."""

    file_type: str
    words: tuple[str, ...] = ()

    def read(self, sink: Sink, tree: Tree | None, what: str) -> YamlScalar | None:
        return SCALAR.read(sink, tree, what)


@dataclass(frozen=True, slots=True)
class TokensShape:
    """The extent of an axis: an expression, or `~` for tokens. A reader parses it."""

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Tree | None:
        return tree


def blank(shape: Shape[Any]) -> Any:
    """The harmless value of a shape, for a value that is missing or wrong."""
    match shape:
        case WholeShape():
            return shape.least
        case MeasureShape():
            return float(shape.of.least * shape.times / shape.per)
        case ExpressionShape():
            return parse_expr("false")
        case ScalarShape() | NameShape() | DtypeShape():
            return YamlScalar("")
    return None


SCALAR = ScalarShape("value")
TEXT = TextShape()
SENTENCE = ScalarShape("text")
EXPRESSION = ExpressionShape()
FOREIGN = ExpressionShape(foreign=True)
STORAGE = ScalarShape("storage expression")
TRUTH = TruthShape()
DTYPE = DtypeShape()
