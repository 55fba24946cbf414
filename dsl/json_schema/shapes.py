"""JSON Schema (draft 2020-12) of the shapes of `forms`, for editors that complete and check.

A schema refuses nothing that the reader takes, but for texts that YAML has another meaning for (`title: ~`); what it
cannot see, the reader says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvplan.dsl.schema.fields import IDENTIFIER, KEYWORDS
from kvplan.dsl.schema.shapes import (
    DtypeShape,
    EitherShape,
    ExpressionShape,
    Form,
    LaterShape,
    ListShape,
    MapShape,
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
# What a YAML reader may make of a text, a name or an expression: it guesses types.
TEXTS = ["string", "number", "boolean"]
NAMES = ["string", "number"]
EXPRESSIONS = ["string", "integer", "boolean"]
NOTES: Mapping[str, object] = {"^-": {"description": "a note, kept beside what it is about"}}


@dataclass(frozen=True, slots=True)
class SchemaNames:
    """The names of known files by type, and where forms by their `what` have a schema of their own.

    `partial`: what must be there may stand elsewhere, in what this is laid over.
    """

    known: Mapping[str, Sequence[str]]
    refs: Mapping[str, Json]
    partial: bool = False


def of(shape: Shape[Any], names: SchemaNames) -> Json:
    """The schema of one shape."""
    match shape:
        case ScalarShape() | TextShape():
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
        case LaterShape(inner):
            return of(inner, names)
        case Form():
            return names.refs.get(shape.what) or form(shape, names)
    raise TypeError(f"no schema for {shape}")


def form(shape: Form[Any], names: SchemaNames, more: Mapping[str, object] | None = None) -> Json:
    """The schema of a mapping with its keys and, where `more` says what they are, all others that it may have."""
    keys = {key.name: {**of(key.shape, names), "description": key.doc} for key in shape.keys}
    rest = of(shape.rest, names) if shape.rest and more is None else False
    required = {"required": list(shape.required)} if shape.required and not names.partial else {}
    return {
        "type": "object", "properties": {**keys, **(more or {})}, "patternProperties": {**NOTES},
        "additionalProperties": rest, **required,
    }  # fmt: skip


def spelled(word: str) -> str:
    """A word as an expression that means it: a bare one where it could be a name."""
    return word if IDENTIFIER.fullmatch(word) else f"'{word}'"


def choice(words: Sequence[str]) -> Json:
    """An expression that may be one of `words`: those are proposed, another bare word is refused."""
    bare = IDENTIFIER.pattern
    return {"anyOf": [{"enum": _spelt(words)}, {"type": "string", "not": {"pattern": f"^({bare})$"}}]}


def _word(values: Sequence[str], option: bool = False) -> Json:
    words: Json = {"enum": _spelt(values)}
    return {"anyOf": [words, {"type": "string", "pattern": "^\\{[^{}]*\\}$"}]} if option else words


def _spelt(words: Sequence[str]) -> list[object]:
    """Words as a YAML reader gives them: some are truth values or numbers to it."""
    typed: list[object] = [word == "true" for word in words if word in ("true", "false")]
    return [*typed, *(int(word) for word in words if word.isdecimal()), *words]


def _known(shape: NameShape, names: SchemaNames) -> Json:
    """Names that are known are proposed; any other may be that of a file that was not."""
    words = [*names.known.get(shape.file_type, ()), *shape.words]
    return {"anyOf": [{"enum": words}, {"type": NAMES}]} if words else {"type": NAMES}


def _many(shape: ListShape[Any], names: SchemaNames) -> Json:
    item = of(shape.of, replace(names, partial=False))  # lists are not merged
    several: Json = {"type": "array", "items": item}
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
