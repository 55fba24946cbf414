"""Forms: mappings with known keys, read as frozen dataclasses. A field is a key with shape, meaning and default.

All of kvplan works with these classes. Readers check their values, and fill in those that depend on other files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any, Generic, Literal, Self, TypeVar, overload

from kvplan.dsl.schema.fields import IDENTIFIER, KEYWORDS, LETTERS, entries, fields, shown
from kvplan.dsl.schema.shapes import TEXT, NameShape, ScalarShape, Shape, WordShape, blank
from kvplan.dsl.text.diagnostics import Sink, listed, nearest
from kvplan.dsl.text.source import NOWHERE, SourceSpan
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlList, YamlScalar, YamlTable

T = TypeVar("T")
K = TypeVar("K", bound="FormKeys")
EXTENDS = "extends"
EXTENDS_DOC = "the file of the same type whose keys hold where this one does not say otherwise"


@dataclass(frozen=True, slots=True)
class ListShape(Generic[T]):
    """A list, if `filled` of at least one item. If `bare`, a single value is a list of one; if `blank`, no value is an
    empty list. Items that cannot be read are left out.
    """

    of: Shape[T | None]
    bare: bool = False
    filled: bool = False
    blank: bool = False

    def read(self, sink: Sink, tree: Tree | None, what: str) -> tuple[T, ...]:
        if self.blank and isinstance(tree, YamlScalar) and tree.empty:
            return ()
        bare = self.bare and tree is not None and not isinstance(tree, YamlList)
        if tree is not None and not bare and not isinstance(tree, YamlList):
            sink.add("K003", f"{what} must be a list, not {shown(tree)}", tree.span)
        items = (tree,) if bare else tree.items if isinstance(tree, YamlList) else ()
        if self.filled and isinstance(tree, YamlList) and not items:
            sink.add("K003", f"{what} must have one at least, not an empty list", tree.span)
        # A form names itself in messages.
        inner = self.of.what if isinstance(self.of, Form) else what if bare else f"an item of {what}"
        values = [self.of.read(sink, item, inner) for item in items]
        return tuple(value for value in values if value is not None)


@dataclass(frozen=True, slots=True)
class MapShape(Generic[T]):
    """A mapping from names to values of one shape. Names match `names`, or are any text if `keys` says what they name.

    `must` are required names (K002). Values that cannot be read are left out.
    """

    of: Shape[T | None]
    names: re.Pattern[str] = IDENTIFIER
    keys: NameShape | None = None
    must: tuple[str, ...] = ()

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Named[T]:
        """The values by their names, which have their places. Reports invalid names (K009)."""
        given = entries(sink, tree, what, "write a name before each: NAME: …")
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
    """One of several shapes, which a reader distinguishes. With `short` the last is a form, and the value of its key
    `short` may be written in place of the form.
    """

    shapes: tuple[Shape[Any], ...]
    short: str = ""

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Any:
        form = self.shapes[-1]
        if tree is None or not self.short or not isinstance(form, Form):
            return tree
        if isinstance(tree, YamlTable):
            return form.read(sink, tree, what)
        key = form.key(self.short)
        value = {key.attribute: key.shape.read(sink, tree, what)}
        return form.of(given={self.short: tree}, tree=tree, **value)


@dataclass(frozen=True, slots=True)
class LaterShape:
    """A value of a known shape that is read later, when its reader knows more, for example its further keys. Until then
    the field has its default.
    """

    of: Shape[Any]

    def read(self, sink: Sink, tree: Tree | None, what: str) -> Any:
        return tree


@dataclass(frozen=True, slots=True)
class MaybeShape(Generic[T]):
    """A value of another shape; None if not given."""

    of: Shape[T]

    def read(self, sink: Sink, tree: Tree | None, what: str) -> T | None:
        return None if tree is None else self.of.read(sink, tree, what)


@dataclass(frozen=True, slots=True)
class FormKeys:
    """A mapping that was read: a field for each key of its form; `given` has the trees of the given keys."""

    given: Mapping[str, Tree] = field(default_factory=dict, kw_only=True, compare=False, repr=False)
    tree: Tree | None = field(default=None, kw_only=True, compare=False, repr=False)

    @property
    def span(self) -> SourceSpan:
        """The place where the mapping is written."""
        return self.tree.span if self.tree is not None else NOWHERE

    @property
    def given_values(self) -> dict[str, Any]:
        """The values of the given keys, by attribute."""
        own = {each.name: each.metadata["key"].name or each.name for each in fields_of(self) if each.metadata}
        return {attribute: getattr(self, attribute) for attribute, name in own.items() if name in self.given}

    def written(self, *names: str) -> Tree | None:
        """The tree of a key, or of a key within it; None if it is not given."""
        tree = self.given.get(names[0])
        for name in names[1:]:
            tree = tree.get(name) if isinstance(tree, YamlTable) else None
        return tree

    def word(self, name: str) -> YamlScalar | None:
        """The scalar of a key as it is written; None if there is none."""
        tree = self.given.get(name)
        return tree if isinstance(tree, YamlScalar) and not tree.empty else None

    def over(self, base: Self) -> Self:
        """`base`, with the values of the keys that are given here."""
        return replace(base, **self.given_values)


@dataclass(frozen=True, slots=True)
class FormKey:
    """A key of a form: `doc` explains it in Markdown; the field `attribute` has its value, `default` if the key is not
    given."""

    name: str
    shape: Shape[Any]
    doc: str
    required: bool = False
    attribute: str = ""
    default: Any = None

    def read(self, sink: Sink, tree: Tree | None) -> Any:
        """The value of the key; a harmless one if it is wrong, or missing though required, which is reported."""
        value = None if isinstance(self.shape, LaterShape) else self.shape.read(sink, tree, self.name)
        if value is not None:
            return value
        return blank(self.shape) if self.required and self.default is None else self.default


@overload
def key(shape: Shape[T | None], doc: str, required: Literal[True], name: str = "") -> T: ...
@overload
def key(shape: Shape[T | None], doc: str, required: bool = False, name: str = "", *, default: T) -> T: ...
@overload
def key(shape: Shape[T], doc: str, required: bool = False, name: str = "") -> T: ...
def key(shape: Shape[Any], doc: str, required: bool = False, name: str = "", default: Any = None) -> Any:
    """A field of a FormKeys, read as `shape`; `name` is the key if it differs from the field's name. A number's default
    is added to `doc`."""
    doc += f"; {default:,} if not given" if isinstance(default, int) and not required else ""
    read = FormKey(name, shape, doc, required, default=default)
    return field(default_factory=lambda: read.read(Sink(), None), metadata={"key": read})


@dataclass(frozen=True, slots=True)
class Form(Generic[K]):
    """A mapping with known keys, the fields of `of`. `rest` is the shape of further keys, which something else decides.
    `doc` describes a whole file; `head` are keys that only identify a file. At least one of the keys `either` is
    required.
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
        own = (replace(k, name=k.name or name, attribute=name) for name, k in named)
        object.__setattr__(self, "keys", (*self.head, *own))

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys if key.required)

    def key(self, name: str) -> FormKey:
        return next(key for key in self.keys if key.name == name)

    def advice(self, key: str, known: Sequence[str], hint: str = "") -> str:
        """Advice for an unknown key: the mapping within this one that has it, the `hint`, or the nearest known key."""
        shapes = ((each.name, each.shape) for each in self.keys)
        inner = ((name, shape.of if isinstance(shape, LaterShape | MaybeShape) else shape) for name, shape in shapes)
        homes = (name for name, shape in inner if isinstance(shape, Form) and key in shape.known)
        return next((f"write {home}: {{{key}: …}}" for home in homes), "") or hint or nearest(key, known)

    def read(
        self,
        sink: Sink,
        tree: Tree | None,
        what: str = "",
        more: Iterable[str] = (),
        required: Iterable[str] = (),
        hint: Callable[[str], str] = lambda key: "",
    ) -> K:
        """The mapping as its class, with defaults for missing keys. `more` keys are allowed, too, some `required`. A
        `hint` at an unknown key, if there is one, takes the place of the nearest known key."""
        what, needed = what or self.what, (*self.required, *required)
        advice = lambda key, known: self.advice(key, known, hint(key))  # noqa: E731
        given = fields(sink, tree, what, (*self.known, *more), needed, advice) if tree is not None else {}
        if isinstance(tree, YamlTable) and self.either and given.keys().isdisjoint(self.either):
            help = f"add {listed([f'{name}: …' for name in self.either])}"
            sink.add("K002", f"{what} has neither {' nor '.join(self.either)}", tree.span, help=help)
        own = [key for key in self.keys if key.attribute]
        values = {key.attribute: key.read(sink, given.get(key.name)) for key in own}
        return self.of(given=given, tree=tree, **values)


@dataclass(frozen=True, slots=True)
class DocumentKeys(FormKeys):
    """The keys that all files have; `name` is the name of what the file describes."""

    name: str = field(default="", kw_only=True)
    title: str = key(TEXT, "what it is called, for people", required=True)
    doc: str = key(TEXT, "more, for people")
    doc_ref: str = key(TEXT, "where the numbers or the rules come from", name="doc-ref")


def forms_in(*shapes: Shape[Any]) -> list[Form[Any]]:
    """All forms within the shapes and within the keys of these forms, each once."""
    found: dict[int, Form[Any]] = {}
    open_shapes: list[Shape[Any]] = [*reversed(shapes)]
    while open_shapes:
        shape = open_shapes.pop()
        if isinstance(shape, Form) and id(shape) not in found:
            found[id(shape)] = shape
            open_shapes += [key.shape for key in reversed(shape.keys)]
        elif isinstance(shape, EitherShape):
            open_shapes += reversed(shape.shapes)
        elif isinstance(shape, ListShape | MapShape | LaterShape | MaybeShape):
            open_shapes.append(shape.of)
    return [*found.values()]


def document(file_type: str, what: str, doc: str, of: type[K]) -> Form[K]:
    """The form of a file: version and name, then the keys of `of`."""
    version = FormKey("kvplan", WordShape(("1",)), "the version of the format, 1; the first key")
    name = FormKey(file_type, ScalarShape("name"), "the name, which is the file's without `.yaml`")
    return Form(what, of, doc=doc, head=(version, name))
