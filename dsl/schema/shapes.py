"""Shapes of the values in layout files. Each is said once: it reads a tree, and JSON Schemas and docs are made of it.

A shape's `read` gives a typed value and reports what is wrong with the tree; `what` names the value in messages. What
one key says of another is the readers' part, in `files` and `rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import Any, Generic, Protocol, TypeVar

from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.functions import ARITY, EVERY
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.fields import IDENTIFIER, KEYWORDS, LETTERS, entries, fields, guarded, shown
from kvplan.dsl.text.diagnostics import Sink, listed, nearest, nearest_or_all
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlList, YamlScalar, YamlTable

T = TypeVar("T")
R = TypeVar("R", covariant=True)
K = TypeVar("K", bound="FormKeys")
INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")
DECIMAL = "numbers are decimal, without quotes or leading zeros"


class Shape(Protocol[R]):
    """What a value may be."""

    def read(self, sink: Sink, tree: Tree | None, what: str) -> R:
        """The value; a harmless one where there is none or a wrong one, which is reported."""


@dataclass(frozen=True, slots=True)
class ScalarShape:
    """A single value. `what` says it in words; `pattern` is a regular expression for all of it."""

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
    """An expression, where `foreign` is true over what a configuration or a dump says."""

    foreign: bool = False

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Expr | None:
        if tree is None:
            return None
        if not isinstance(tree, YamlScalar):
            help = "quote an expression that begins with a bracket"
            sink.add("E023", f"{what} must be an expression, not {shown(tree)}", tree.span, help=help)
            return None
        return guarded(sink, lambda: parse_expr(tree, tree.span, tree.exact, EVERY if self.foreign else ARITY))


@dataclass(frozen=True, slots=True)
class ConditionShape(ExpressionShape):
    """A condition; one that is not given, or cannot be read, is false."""

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Expr:
        return ExpressionShape.read(self, sink, tree, what) or parse_expr("false")


@dataclass(frozen=True, slots=True)
class WholeShape:
    """A whole number from `least`, to `most` if that is not None; K013 for any other."""

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
class WordShape:
    """One of `values`, the first if not given; where `option` is true also `{option}`, the value of an engine's."""

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
    """`true` or `false`, which it is if not given."""

    values: tuple[str, ...] = ("false", "true")

    def read(self, sink: Sink, tree: Tree | None, what: str) -> bool:
        return WordShape(self.values).read(sink, tree, what) == "true"


@dataclass(frozen=True, slots=True)
class DtypeShape:
    """An element type by any of its names, read as the one that counts; T002 for any other word."""

    values: tuple[str, ...] = dtypes.NAMES

    def read(self, sink: Sink, tree: Tree | None, what: str) -> str | None:
        scalar = SCALAR.read(sink, tree, what)
        if scalar is not None and scalar not in self.values:
            help = nearest(scalar, self.values)
            sink.add("T002", f"'{scalar}' is not an element type", scalar.span, help=help)
        return dtypes.canonical(str(scalar)) if scalar is not None else None


@dataclass(frozen=True, slots=True)
class NameShape:
    """The name of something that a file of the type `file_type` describes, or one of `words`."""

    file_type: str
    words: tuple[str, ...] = ()

    def read(self, sink: Sink, tree: Tree | None, what: str) -> YamlScalar | None:
        return SCALAR.read(sink, tree, what)


@dataclass(frozen=True, slots=True)
class TokensShape:
    """An axis' extent: an expression, or `~` for the tokens. A reader takes it apart."""

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Tree | None:
        return tree


@dataclass(frozen=True, slots=True)
class ListShape(Generic[T]):
    """A list, of one at least where `filled` is true; where `bare` is true a single value is a list of one. Items that
    cannot be read are left out.
    """

    of: Shape[T | None]
    bare: bool = False
    filled: bool = False

    def read(self, sink: Sink, tree: Tree | None, what: str) -> tuple[T, ...]:
        bare = self.bare and tree is not None and not isinstance(tree, YamlList)
        if tree is not None and not bare and not isinstance(tree, YamlList):
            sink.add("K003", f"{what} must be a list, not {shown(tree)}", tree.span)
        items = (tree,) if bare else tree.items if isinstance(tree, YamlList) else ()
        if self.filled and isinstance(tree, YamlList) and not items:
            sink.add("K003", f"{what} must have one at least, not an empty list", tree.span)
        # A form says itself what it is.
        inner = self.of.what if isinstance(self.of, Form) else what if bare else f"an item of {what}"
        values = [self.of.read(sink, item, inner) for item in items]
        return tuple(value for value in values if value is not None)


@dataclass(frozen=True, slots=True)
class MapShape(Generic[T]):
    """A mapping from names to values of one shape: names that `names` describes, or what `keys` says.

    `must`: the names that are always there (K002). Values that cannot be read are left out.
    """

    of: Shape[T | None]
    names: re.Pattern[str] = IDENTIFIER
    keys: NameShape | None = None
    must: tuple[str, ...] = ()

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Named[T]:
        """The values by their names, each with its place. Reports names that cannot be (K009)."""
        given = entries(sink, tree, what)
        good = {key: value for key, value in given.items() if self._is_name(sink, key, what)}
        noun = f"{self.of.what.split()[-1]} " if isinstance(self.of, Form) else ""
        values = {key: self.of.read(sink, value, f"{noun}'{key}'") for key, value in good.items()}
        self._check_must(sink, tree, {*given}, what)
        return {key: value for key, value in values.items() if value is not None}

    def _is_name(self, sink: Sink, key: YamlScalar, what: str) -> bool:
        if self.keys is not None or (self.names.fullmatch(key) and key not in KEYWORDS):
            return True
        sink.add("K009", f"'{key}' cannot be a name in {what}", key.span, help=LETTERS[self.names])
        return False

    def _check_must(self, sink: Sink, tree: Tree | None, given: set[str], what: str) -> None:
        missing = [name for name in self.must if name not in given]
        if tree is not None and missing:
            help = f"add {', '.join(f'{name}: …' for name in missing)}"
            sink.add("K002", f"{what} lacks {listed(missing, 'and')}", tree.span, help=help)


@dataclass(frozen=True, slots=True)
class EitherShape:
    """One of several shapes, which a reader tells apart."""

    shapes: tuple[Shape[Any], ...]

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Tree | None:
        return tree


@dataclass(frozen=True, slots=True)
class LaterShape:
    """A value of a known shape that is read once its reader knows more: which further keys it may have, say."""

    of: Shape[Any]

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Tree | None:
        return tree


@dataclass(frozen=True, slots=True)
class FormKeys:
    """A mapping that was read: a field for each key of its form, and the keys that were given as they are written.

    It is what a file says: `dsl.model` has what more has to be worked out for.
    """

    given: Mapping[str, Tree] = field(default_factory=dict, kw_only=True, compare=False)
    tree: Tree | None = field(default=None, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class FormKey:
    """A key of a form: `doc` is a sentence, or what may stand for one, in Markdown; `attribute` has its value."""

    name: str
    shape: Shape[Any]
    doc: str
    required: bool = False
    attribute: str = ""


def key(shape: Shape[T], doc: str, required: bool = False, name: str = "") -> T:
    """A field of a FormKeys that is read as `shape`; `name` is the key where that is not the field's own."""
    metadata = {"key": FormKey(name, shape, doc, required)}
    return field(default_factory=lambda: shape.read(Sink(), None, name), metadata=metadata)


@dataclass(frozen=True, slots=True)
class Form(Generic[K]):
    """A mapping with keys of its own, which `of` has as fields. `rest`: what further keys are, where something else
    says which there may be. `doc` says what a whole file is about; `head` are keys that only say what a file is. At
    least one of the keys `either` is required.
    """

    what: str
    of: type[K]
    rest: Shape[Any] | None = None
    doc: str = ""
    head: tuple[FormKey, ...] = ()
    either: tuple[str, ...] = ()
    keys: tuple[FormKey, ...] = field(init=False)

    def __post_init__(self) -> None:
        named = [(each.name, each.metadata["key"]) for each in fields_of(self.of) if "key" in each.metadata]
        own = (FormKey(k.name or name, k.shape, k.doc, k.required, name) for name, k in named)
        object.__setattr__(self, "keys", (*self.head, *own))

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys if key.required)

    def key(self, name: str) -> FormKey:
        return next(key for key in self.keys if key.name == name)

    def read(
        self, sink: Sink, tree: Tree | None, what: str = "", more: Iterable[str] = (), required: Iterable[str] = ()
    ) -> K:
        """The mapping, every field as it is where its key is not given. `more` keys are let by, `required` or not."""
        what, needed = what or self.what, (*self.required, *required)
        given = fields(sink, tree, what, (*self.known, *more), needed) if tree is not None else {}
        if isinstance(tree, YamlTable) and self.either and given.keys().isdisjoint(self.either):
            help = f"add {listed([f'{name}: …' for name in self.either])}"
            sink.add("K002", f"{what} has neither {' nor '.join(self.either)}", tree.span, help=help)
        own = [key for key in self.keys if key.attribute]
        values = {key.attribute: key.shape.read(sink, given.get(key.name), key.name) for key in own}
        return self.of(given=given, tree=tree, **values)


SCALAR = ScalarShape("value")
TEXT = TextShape()
SENTENCE = ScalarShape("text")
EXPRESSION = ExpressionShape()
FOREIGN = ExpressionShape(foreign=True)
CONDITION = ConditionShape()
STORAGE = ScalarShape("storage expression")
TRUTH = TruthShape()
EXTENDS = "extends"
EXTENDS_DOC = "the file of the same type whose keys hold where this one does not say otherwise"
DTYPE = DtypeShape()


@dataclass(frozen=True, slots=True)
class DocumentKeys(FormKeys):
    """What every file may say of itself."""

    title: str = key(TEXT, "what it is called, for people", required=True)
    doc: str = key(TEXT, "more, for people")
    doc_ref: str = key(TEXT, "where the numbers or the rules come from", name="doc-ref")


def document(file_type: str, what: str, doc: str, of: type[K]) -> Form[K]:
    """The form of a file: its version and name, then its own keys."""
    version = FormKey("kvplan", WordShape(("1",)), "the version of the format, 1; the first key")
    name = FormKey(file_type, ScalarShape("name"), "the name, which is the file's without `.yaml`")
    return Form(what, of, doc=doc, head=(version, name))
