"""JSON Schemas (draft 2020-12) of layout files, for editors: one for each type, and one for all types.

In: the forms of `schema`, a library. Out: plain JSON. A schema accepts all that the reader accepts, except texts with
another meaning in YAML (`title: ~`). The reader reports errors that a schema cannot see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from kvplan.dsl.lang import dtypes
from kvplan.dsl.library import Library
from kvplan.dsl.schema.config import CONFIG
from kvplan.dsl.schema.deployment import DEPLOYMENT
from kvplan.dsl.schema.engine import ENGINE
from kvplan.dsl.schema.fields import IDENTIFIER, KEYWORDS
from kvplan.dsl.schema.fleet import FLEET
from kvplan.dsl.schema.forms import EXTENDS, EitherShape, Form, LaterShape, ListShape, MapShape, MaybeShape
from kvplan.dsl.schema.kind import KIND, NEEDS, PARAM, Kind, Param
from kvplan.dsl.schema.machine import MACHINE
from kvplan.dsl.schema.model import CACHE, FAMILY, MODEL
from kvplan.dsl.schema.names import WORDS
from kvplan.dsl.schema.shapes import (
    EXPRESSION,
    DtypeShape,
    ExpressionShape,
    FractionShape,
    MeasureShape,
    NameShape,
    ScalarShape,
    Shape,
    TextShape,
    TokensShape,
    TruthShape,
    WholeShape,
    WordShape,
)

Json = dict[str, object]
# The types that a YAML reader may guess for a text, a name or an expression.
TEXTS = ["string", "number", "boolean"]
NAMES = ["string", "number"]
EXPRESSIONS = ["string", "integer", "boolean"]
NOTES: Mapping[str, object] = {"^-": {"description": "a note, kept beside what it is about"}}
DRAFT = "https://json-schema.org/draft/2020-12/schema"
# The order matters: a fleet also has keys `model` and `machine`, a model also has `config`. The first type counts.
FILES: Mapping[str, Form[Any]] = {
    "fleet": FLEET,
    "kind": KIND,
    "engine": ENGINE,
    "model": MODEL,
    "deployment": DEPLOYMENT,
    "machine": MACHINE,
    "config": CONFIG,
}
# Files that may be incomplete: one of these keys says that they extend another file, or that variants complete them.
PARTS = {"kind": (EXTENDS,), "engine": (EXTENDS,), "model": (EXTENDS, FAMILY)}
# Forms that occur in many others, with the same schema in whole files and in parts.
COMMON = (NEEDS, PARAM)


@dataclass(frozen=True, slots=True)
class SchemaNames:
    """The names of known files by type, and references to the schemas of forms, by the forms' `what`.

    If `partial`, no key is required, because the file that this one extends may have it.
    """

    known: Mapping[str, Sequence[str]]
    refs: Mapping[str, Json]
    partial: bool = False


def of(shape: Shape[Any], names: SchemaNames) -> Json:
    """The schema of one shape."""
    match shape:
        case ScalarShape() | TextShape() | FractionShape():
            return {"type": TEXTS, "pattern": f"^({shape.pattern})$"} if shape.pattern else {"type": TEXTS}
        case ExpressionShape():
            return {"type": EXPRESSIONS}
        case TokensShape():
            return {"type": [*EXPRESSIONS, "null"]}
        case WholeShape():
            return {
                "type": "integer",
                "minimum": shape.least,
                **({} if shape.most is None else {"maximum": shape.most}),
            }
        case WordShape(values, option):
            return _word(values, option)
        case TruthShape(values) | DtypeShape(values):
            return _word(values)
        case NameShape():
            return _known(shape, names)
        case ListShape():
            return _many(shape, names)
        case MapShape():
            return _named(shape, names)
        case EitherShape(shapes):
            return {"anyOf": [of(each, names) for each in shapes]}
        case LaterShape(inner) | MaybeShape(inner) | MeasureShape(inner):
            return of(inner, names)
        case Form():
            return names.refs.get(shape.what) or form(shape, names)
    raise TypeError(f"no schema for {shape}")


def form(shape: Form[Any], names: SchemaNames, more: Mapping[str, object] | None = None) -> Json:
    """The schema of a mapping with the keys of its form, and with the keys of `more` if it is given."""
    keys = {key.name: {**of(key.shape, names), "description": key.doc} for key in shape.keys}
    rest = of(shape.rest, names) if shape.rest and more is None else False
    required: Json = {"required": list(shape.required)} if shape.required else {}
    required |= {"anyOf": [{"required": [key]} for key in shape.either]} if shape.either else {}
    return {
        "type": "object", "properties": {**keys, **(more or {})}, "patternProperties": {**NOTES},
        "additionalProperties": rest, **({} if names.partial else required),
    }  # fmt: skip


def spelled(word: str) -> str:
    """A word as an expression: bare if it could be a name, else in quotes."""
    return word if IDENTIFIER.fullmatch(word) else f"'{word}'"


def choice(words: Sequence[str]) -> Json:
    """The schema of an expression that may be one of `words`: editors propose these, and refuse other bare words."""
    bare = IDENTIFIER.pattern
    return {"anyOf": [{"enum": _spelt(words)}, {"type": "string", "not": {"pattern": f"^({bare})$"}}]}


def _word(values: Sequence[str], option: bool = False) -> Json:
    words: Json = {"enum": _spelt(values)}
    return {"anyOf": [words, {"type": "string", "pattern": "^\\{[^{}]*\\}$"}]} if option else words


def _spelt(words: Sequence[str]) -> list[object]:
    """The words, and for some the truth value or number that a YAML reader makes of them."""
    typed: list[object] = [word == "true" for word in words if word in ("true", "false")]
    return [*typed, *(int(word) for word in words if word.isdecimal()), *words]


def _known(shape: NameShape, names: SchemaNames) -> Json:
    """The schema of a name: known ones are proposed, and any other is allowed, because its file may not be known."""
    words = [*names.known.get(shape.file_type, ()), *shape.words]
    return {"anyOf": [{"enum": words}, {"type": NAMES}]} if words else {"type": NAMES}


def _many(shape: ListShape[Any], names: SchemaNames) -> Json:
    item = of(shape.of, replace(names, partial=False))  # lists are not merged
    several: Json = {"type": "array", "items": item} | ({"minItems": 1} if shape.filled else {})
    return {"anyOf": [item, several]} if shape.bare else several


def _named(shape: MapShape[Any], names: SchemaNames) -> Json:
    inner = of(shape.of, names)
    required = {"required": list(shape.must)} if shape.must and not names.partial else {}
    if shape.keys:
        whose = (*names.known.get(shape.keys.file_type, ()), *shape.keys.words)
        keys = {"properties": dict.fromkeys(whose, inner), "patternProperties": {**NOTES}}
        return {"type": "object", **keys, "additionalProperties": inner, **required}
    keys = {
        "patternProperties": {**NOTES, f"^({shape.names.pattern})$": inner},
        "propertyNames": {"not": {"enum": sorted(KEYWORDS)}},
    }
    return {"type": "object", **keys, "additionalProperties": False, **required}


def schema(library: Library, file_type: str | None = None) -> Json:
    """The schema of files of one type, or of all files without a type. Raises DslError if a kind's file is bad."""
    names = SchemaNames(
        {known: [*paths] for known, paths in library.paths.items()},
        {CACHE.what: _ref("cache"), **{common.what: _ref(common.what) for common in COMMON}},
    )
    title = f"kvplan: {FILES[file_type].what}" if file_type else "kvplan: a layout file"
    head = {"$schema": DRAFT, "title": title, "type": "object"}
    return {**head, **(_file(file_type) if file_type else _all()), "$defs": _definitions(library, names, file_type)}


def _ref(name: str) -> Json:
    """A reference to the definition `name`."""
    return {"$ref": f"#/$defs/{quote(name.replace('~', '~0').replace('/', '~1'))}"}


def _file(file_type: str) -> Json:
    whole, part = _ref(file_type), _ref(f"part of {file_type}")
    if file_type not in PARTS:
        return whole
    return {"if": {"anyOf": [{"required": [key]} for key in PARTS[file_type]]}, "then": part, "else": whole}


def _all() -> Json:
    """The schema of all files: that of the first type whose key is there. A file must have one of these keys."""
    chosen: Json = {
        "anyOf": [{"required": [file_type]} for file_type in FILES],
        "properties": {"kvplan": {}} | {name: {"description": file.doc} for name, file in FILES.items()},
    }
    for file_type in reversed([*FILES]):
        chosen = {"if": {"required": [file_type]}, "then": _file(file_type), "else": chosen}
    return chosen


def _definitions(library: Library, names: SchemaNames, file_type: str | None) -> dict[str, Json]:
    part = replace(names, refs={**names.refs, CACHE.what: _ref("part")}, partial=True)
    definitions = {common.what: form(common, names) for common in COMMON}
    for each in (file_type,) if file_type else FILES:
        definitions[each] = _document(each, names)
        definitions |= {f"part of {each}": _document(each, part)} if each in PARTS else {}
    if file_type in ("model", None):
        definitions |= _caches(library.kinds, names) | _caches(library.kinds, part)
    return definitions


def _document(file_type: str, names: SchemaNames) -> Json:
    """The schema of a file of one type. Even a partial one must have `kvplan` and the key of its type."""
    of_type = FILES[file_type]
    needed = ["kvplan", file_type, *(() if names.partial else of_type.required)]
    return {"title": of_type.what, "description": of_type.doc, **form(of_type, names), "required": needed}


def _caches(kinds: Mapping[str, Kind], names: SchemaNames) -> dict[str, Json]:
    """The definitions of `cache` and of a cache of each kind; with partial names they are called `part…`."""
    begin = "part" if names.partial else "cache"
    every: dict[str, Json] = {f"{begin} of {name}": _of_kind(kind, names) for name, kind in kinds.items()}
    cases = [{"if": _chosen({"const": name}), "then": _ref(f"{begin} of {name}")} for name in kinds]
    unknown = {"if": {"not": _chosen({"enum": list(kinds)})}, "then": form(CACHE, names)}
    key = of(CACHE.key("kind").shape, names)
    return {begin: {"type": "object", "properties": {"kind": key}, "allOf": [*cases, unknown]}, **every}


def _chosen(kind: Json) -> Json:
    return {"properties": {"kind": kind}, "required": ["kind"]}


def _of_kind(kind: Kind, names: SchemaNames) -> Json:
    """The schema of a cache of one kind. It has the kind's parameters; those without a default are required."""
    cache = form(CACHE, names, {name: _param(param) for name, param in kind.params.items()})
    needed = [*CACHE.required, *(name for name, param in kind.params.items() if param.default is None)]
    return {"title": kind.title, **cache, **({} if names.partial else {"required": needed})}


def _param(param: Param) -> Json:
    default = f"{param.default.text} if not given" if param.default else ""
    doc = "; ".join(word for word in (param.doc, default) if word)
    return {**_value(param), **({"description": doc} if doc else {})}


def _value(param: Param) -> Json:
    if param.type == "dtype":
        return choice((*dtypes.NAMES, *WORDS))
    if param.type == "name" and param.values:
        return choice([*map(spelled, (*param.values, *param.aliases)), *WORDS])
    return {"type": ["string", "integer"]} if param.type == "int" else of(EXPRESSION, SchemaNames({}, {}))
