"""What the mappings of layout files look like: which keys they have, which of them must be there, what each may be.

Readers take their keys and words from these definitions; JSON Schemas and the tables of docs/dsl.md are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvplan.dsl.lang import dtypes


@dataclass(frozen=True, slots=True)
class ScalarShape:
    """A single value. `what` says it in words; `pattern` is a regular expression for all of it."""

    what: str
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class ExpressionShape:
    """An expression, where `token` is true also `~`, which stands for the tokens."""

    token: bool = False


@dataclass(frozen=True, slots=True)
class WholeShape:
    """A whole number from `least`, to `most` if that is not None."""

    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class WordShape:
    """One of `values`; where `option` is true also `{option}`, the value of an engine's option."""

    values: tuple[str, ...]
    option: bool = False


@dataclass(frozen=True, slots=True)
class NameShape:
    """The name of something that a file of the sort `sort` describes, or one of `words`."""

    sort: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListShape:
    """A list; where `bare` is true a single value is a list of one."""

    of: Shape
    bare: bool = False


@dataclass(frozen=True, slots=True)
class MapShape:
    """A mapping from names to values of one shape: names of expressions, or labels, or what `keys` says.

    `must`: the names that are always there.
    """

    of: Shape
    label: bool = False
    keys: NameShape | None = None
    must: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EitherShape:
    """One of several shapes."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class FormKey:
    """A key of a form: `doc` is a sentence, or what may stand for one, in Markdown."""

    name: str
    shape: Shape
    doc: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """A mapping with keys of its own. `rest`: what further keys are, where something else says which there may be.

    `doc` says what a whole file is about.
    """

    what: str
    keys: tuple[FormKey, ...]
    rest: Shape | None = None
    doc: str = ""
    known: tuple[str, ...] = field(init=False)
    required: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", tuple(key.name for key in self.keys))
        object.__setattr__(self, "required", tuple(key.name for key in self.keys if key.required))

    def key(self, name: str) -> FormKey:
        return next(key for key in self.keys if key.name == name)


Shape = ScalarShape | ExpressionShape | WholeShape | WordShape | NameShape | ListShape | MapShape | EitherShape | Form

TEXT = ScalarShape("text")
EXPRESSION = ExpressionShape()
STORAGE = ScalarShape("storage expression")
TRUTH = WordShape(("true", "false"))
DTYPE = WordShape(dtypes.NAMES)


def document(sort: str, what: str, doc: str, *keys: FormKey) -> Form:
    """The form of a file: what all files have, then its own keys."""
    head = (
        FormKey("kvplan", WordShape(("1",)), "the version of the format, 1; the first key"),
        FormKey(sort, ScalarShape("name"), "the name, which is the file's without `.yaml`"),
        FormKey("title", TEXT, "what it is called, for people", required=sort != "deployment"),
        FormKey("doc", TEXT, "more, for people"),
        FormKey("doc-ref", TEXT, "where the numbers or the rules come from"),
    )
    return Form(what, (*head, *keys), doc=doc)
