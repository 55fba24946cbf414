"""JSON Schema of a model's caches, whose keys depend on their kinds."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from kvplan.dsl.json_schema.shapes import Json, SchemaNames, choice, form, of, spelled
from kvplan.dsl.lang import dtypes
from kvplan.dsl.model import Kind, Param
from kvplan.dsl.schema.model import CACHE
from kvplan.dsl.schema.shapes import EXPRESSION

# Names that the value of a parameter may have in it.
WORDS = ("dtype", "query_heads")


def ref(name: str) -> Json:
    """A reference to the definition `name`."""
    return {"$ref": f"#/$defs/{quote(name.replace('~', '~0').replace('/', '~1'))}"}


def caches(kinds: Mapping[str, Kind], names: SchemaNames) -> dict[str, Json]:
    """Definitions: `cache`, and a cache of each kind. With partial names all of them are `part…`."""
    begin = "part" if names.partial else "cache"
    every: dict[str, Json] = {f"{begin} of {name}": _of_kind(kind, names) for name, kind in kinds.items()}
    cases = [{"if": _chosen({"const": name}), "then": ref(f"{begin} of {name}")} for name in kinds]
    unknown = {"if": {"not": _chosen({"enum": list(kinds)})}, "then": form(CACHE, names)}
    key = of(CACHE.key("kind").shape, names)
    return {begin: {"type": "object", "properties": {"kind": key}, "allOf": [*cases, unknown]}, **every}


def _chosen(kind: Json) -> Json:
    return {"properties": {"kind": kind}, "required": ["kind"]}


def _of_kind(kind: Kind, names: SchemaNames) -> Json:
    """The schema of a cache of one kind: it has the kind's parameters, those without a default for certain."""
    made = form(CACHE, names, {name: _param(param) for name, param in kind.params.items()})
    needed = [*CACHE.required, *(name for name, param in kind.params.items() if param.default is None)]
    return {"title": kind.title, **made, **({} if names.partial else {"required": needed})}


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
