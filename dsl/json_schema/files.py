"""JSON Schema of whole layout files: one for each sort, and one for all, which goes by the key that says the sort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvplan.dsl.json_schema.models import caches, ref
from kvplan.dsl.json_schema.shapes import Json, SchemaNames, form
from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import ENGINE
from kvplan.dsl.schema.kind import KIND, NEEDS, PARAM
from kvplan.dsl.schema.model import CACHE, CONFIG, DEPLOYMENT, FAMILY, MODEL
from kvplan.dsl.schema.shapes import Form

DRAFT = "https://json-schema.org/draft/2020-12/schema"
# A model has a key `config`, so that the files of that sort come last.
FILES: Mapping[str, Form[Any]] = {
    "kind": KIND,
    "engine": ENGINE,
    "model": MODEL,
    "deployment": DEPLOYMENT,
    "config": CONFIG,
}
# Files that may be parts: with this key they are laid over another, or others over them.
PARTS = {"engine": "extends", "model": FAMILY}
# Forms that many others have, and that are the same in parts.
COMMON = (NEEDS, PARAM)


def schema(library: Library, sort: str | None = None) -> Json:
    """The schema of files of one sort, of all files without one. Raises DslError where a kind's file is bad."""
    names = SchemaNames(
        {one: [*library.paths[one]] for one in library.paths},
        {CACHE.what: ref("cache"), **{one.what: ref(one.what) for one in COMMON}},
    )
    title = f"kvplan: {FILES[sort].what}" if sort else "kvplan: a layout file"
    made = {"$schema": DRAFT, "title": title, "type": "object"}
    return {**made, **(_file(sort) if sort else _all()), "$defs": _definitions(library, names, sort)}


def _file(sort: str) -> Json:
    whole, part = ref(sort), ref(f"part of {sort}")
    return {"if": {"required": [PARTS[sort]]}, "then": part, "else": whole} if sort in PARTS else whole


def _all() -> Json:
    """The schema of the first sort whose key is there; a file has one of these keys."""
    chosen: Json = {
        "anyOf": [{"required": [sort]} for sort in FILES],
        "properties": {"kvplan": {}} | {sort: {"description": made.doc} for sort, made in FILES.items()},
    }
    for sort in reversed([*FILES]):
        chosen = {"if": {"required": [sort]}, "then": _file(sort), "else": chosen}
    return chosen


def _definitions(library: Library, names: SchemaNames, sort: str | None) -> dict[str, Json]:
    part = replace(names, refs={**names.refs, CACHE.what: ref("part")}, partial=True)
    found = {one.what: form(one, names) for one in COMMON}
    for one in (sort,) if sort else FILES:
        found[one] = _document(one, names)
        found |= {f"part of {one}": _document(one, part)} if one in PARTS else {}
    if sort in ("model", None):
        found |= caches(library.kinds, names) | caches(library.kinds, part)
    return found


def _document(sort: str, names: SchemaNames) -> Json:
    """A file of one sort. The two keys that say what it is are there even where it is a part."""
    made = form(FILES[sort], names)
    needed = () if names.partial else FILES[sort].required
    return {"title": FILES[sort].what, "description": FILES[sort].doc, **made, "required": ["kvplan", sort, *needed]}
