"""Read the defaults of classes of configurations from a JSON file beside a config file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kvplan.dsl.files.documents import path_of
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.schema.config import ConfigClass, ConfigClasses
from kvplan.dsl.schema.fields import guarded
from kvplan.dsl.schema.shapes import SCALAR
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import Tree


def read_classes(sink: Sink, tree: Tree | None) -> ConfigClasses:
    """The classes in the file that a config file names, empty if it names none. Reports Y012, F001."""
    file = SCALAR.read(sink, tree, "classes")
    if file is None:
        return ConfigClasses()
    path = path_of(sink, file, "config")
    found = guarded(sink, lambda: parse_foreign(Path(path).read_bytes(), path)) if Path(path).is_file() else None
    if found is None:
        return ConfigClasses()
    classes = _mapping(found.get("classes"))
    return ConfigClasses(str(found.get("release", "")), {name: _class(_mapping(one)) for name, one in classes.items()})


def _class(entry: Mapping[str, object]) -> ConfigClass:
    return ConfigClass(
        keys=_mapping(entry.get("keys")),
        same={name: str(key) for name, key in _mapping(entry.get("same")).items()},
        inside={name: _mapping(inner) for name, inner in _mapping(entry.get("inside")).items()},
        other=_words(entry.get("other")),
        apart=_words(entry.get("apart")),
    )


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(key) for key in value) if isinstance(value, tuple) else ()


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
