"""Open layout files, identify their type and name, and look up names that files refer to."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from kvplan.dsl.files.lazy import LazyFiles
from kvplan.dsl.schema.fields import LABEL, guarded
from kvplan.dsl.schema.kind import Kind, Param
from kvplan.dsl.schema.model import FAMILY
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, Sink, close, listed, nearest, quoted
from kvplan.dsl.text.source import shown
from kvplan.dsl.text.yaml_reader import FileState, YamlDocument, YamlEntry, YamlScalar, YamlTable, read_cached

# The first of these keys in a file is its type. The order matters: a fleet also has the keys model and machine.
FILE_TYPES = ("fleet", "kind", "engine", "model", "deployment", "machine", "config")
# Keys that occur in one type of file only.
OWN_KEYS = {"plans": "deployment", "caches": "model", "candidates": "fleet"}
VERSION = "1"
T = TypeVar("T")
# The path in the span of a word on the command line.
ARGUMENT = "<argument>"
ELSEWHERE = "`kvplan list` has all; files of your own are found with --layouts DIR"


def open_document(path: Path) -> YamlDocument:
    """The tree of a file. It is read again only if the file has changed."""
    return read_cached(FileState.of(path))


def identify(sink: Sink, document: YamlDocument) -> tuple[str | None, str]:
    """The type and name of a file. Reports K004 (version), K005 (type) and K006 (name differs from the file's)."""
    root = document.root
    entries = [entry for entry in root.entries if not entry.key.startswith("-")]
    if not entries:
        sink.add("K004", "the first key must be 'kvplan: 1'", root.span)
        return None, ""
    first = entries[0]
    if first.key != "kvplan":
        sink.add("K004", f"the first key must be 'kvplan: 1', not '{first.key}'", first.key.span)
    elif not isinstance(first.value, YamlScalar) or first.value != VERSION:
        version = first.value if isinstance(first.value, YamlScalar) else "…"
        help = f"this kvplan reads version {VERSION}"
        sink.add("K004", f"format version '{version}' is not known", first.value.span, help=help)
    said = next((entry for word in FILE_TYPES for entry in entries if entry.key == word), None)
    if said is None:
        keys = [entry.key for entry in entries if entry.key != "kvplan"]
        message = f"the file does not say what it is: it has none of {listed(FILE_TYPES)}"
        sink.add("K005", message, first.key.span, help=_type_hint(keys, document.path.stem))
        return None, ""
    return said.key, _name(sink, document, said)


def _type_hint(keys: Sequence[str], stem: str) -> str:
    """Advice on the type: a word like the first key, or the line to add if a key occurs in one type only."""
    found = next((file_type for key, file_type in OWN_KEYS.items() if key in keys), "")
    if found and not close(keys[0], FILE_TYPES):
        return f"add '{found}: {stem}'"
    return nearest(keys[0], FILE_TYPES) if keys else ""


def _name(sink: Sink, document: YamlDocument, said: YamlEntry) -> str:
    """The name that a file gives to what it describes. Reports K003, and K006 if it is not the file's name."""
    file_type, name, stem = said.key, said.value, document.path.stem
    if not isinstance(name, YamlScalar) or not name:
        sink.add("K003", f"{file_type} must be a name", name.span)
        return stem
    if name != stem:
        rename = f"rename the file to {name}.yaml, or " if LABEL.fullmatch(name) else ""
        help = f"{rename}write {file_type}: {stem}"
        message = f"{file_type} '{name}' must be in a file called {name}.yaml, not {document.path.name}"
        sink.add("K006", message, name.span, help=help)
    return name


def misnamed(file_type: str, name: str, paths: Iterable[Path]) -> Diagnostic | None:
    """The error of a file that describes `name`, but is called otherwise (K006); None if there is no such file."""
    documents = (guarded(Sink(), partial(open_document, path)) for path in paths if name.encode() in path.read_bytes())
    for document in (document for document in documents if document):
        sink = Sink()
        if identify(sink, document) == (file_type, name):
            return next((error for error in sink.errors if error.code == "K006"), None)
    return None


def unknown(file_type: str, name: YamlScalar, known: Iterable[str], but: Iterable[str] = ()) -> Diagnostic:
    """The error for a name, in a file or on the command line, that no known file describes (K008)."""
    help = beside(file_type, name) or nearest_name(name, known, but=but) or ELSEWHERE
    return Diagnostic("K008", f"unknown {file_type} '{name}'", name.span, (), help)


def nearest_name(word: str, known: Iterable[str], more: Iterable[str] = (), but: Iterable[str] = ()) -> str:
    """Advice with the nearest of known files' names, except `but`, of their other names, and of `more`."""
    names = {*known, *more} - {*but}
    others = known.other_names() if isinstance(known, LazyFiles) else {}
    near = close(word, {*names, *others})
    if not near or near[0] in names:
        return nearest(word, names)
    meant = others[near[0]]
    return f"did you mean {quoted(meant)}? {near[0]} is {listed([*meant.values()])}"


def is_known(sink: Sink, file_type: str, name: YamlScalar, known: Collection[str]) -> bool:
    """Whether a known file describes a name. Reports K008 if not."""
    if name not in known:
        sink.errors.append(unknown(file_type, name, known))
    return name in known


def described(sink: Sink, file_type: str, name: YamlScalar, files: Mapping[str, T]) -> T | None:
    """The value that the file of that name describes; None, with errors, if it is missing (K008) or bad."""
    return guarded(sink, lambda: files[name]) if is_known(sink, file_type, name, files) else None


def params_of(sink: Sink, kinds: Mapping[str, Kind], name: YamlScalar) -> Mapping[str, Param] | None:
    """The parameters of the kind of that name; None, with errors, if it is missing (K008) or bad."""
    kind = described(sink, "kind", name, kinds)
    return kind.params if kind else None


def path_of(sink: Sink, file: YamlScalar, whose: str) -> str:
    """The path of a file named in another one, relative to that one's folder. Reports Y012 if it is missing."""
    path = Path(file.span.path).parent / file
    if not os.path.isfile(path):
        help = f"relative paths begin at the {whose} file's folder"
        sink.add("Y012", f"no such file '{path.as_posix()}'", file.span, help=help)
    return str(path)


def beside(file_type: str, name: YamlScalar) -> str:
    """Advice if an unread file near the one with this name describes it; empty if there is none."""
    here = Path(os.path.abspath(name.span.path)).parent
    if other := misnamed(file_type, name, sorted(filter(os.path.isfile, here.glob("*.yaml")))):
        return f"{other.span.path} describes it: {other.help}"
    siblings = ((sibling, here.parent) for sibling in _folders(here.parent))
    for folder, root in ((here, here), *siblings, *((below, below) for below in _folders(here))):
        file = folder / f"{name}.yaml"
        # os.path, because Path.is_file raises for some names that no file can have.
        if not os.path.isfile(file) or _type_of(file) != file_type:
            continue
        if file_type == "model" and name not in (models := names_in(file)):
            return f"{shown(file)} is a family: its models are {listed(models, 'and')}"
        path = "its path, or " if file_type == "model" and name.span.path == ARGUMENT else ""
        return f"{shown(file)} is not read: give {path}--layouts {shown(root)}"
    return ""


def _folders(parent: Path) -> list[Path]:
    """The folders in a folder that are not hidden, sorted; none if it cannot be read."""
    try:
        with os.scandir(parent) as entries:
            return sorted(Path(each.path) for each in entries if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return []


def _type_of(file: Path) -> str | None:
    """The type of a file; None if it cannot be read."""
    try:
        return identify(Sink(), open_document(file))[0]
    except DslError:
        return None


def names_in(path: Path) -> tuple[str, ...]:
    """The names of the models in a model file: its variants, or its own. A file that cannot be read is one model."""
    if FAMILY.encode() not in path.read_bytes():
        return (path.stem,)
    try:
        variants = open_document(path).root.get(FAMILY)
    except DslError:
        return (path.stem,)
    entries = variants.entries if isinstance(variants, YamlTable) else ()
    # Plain str, because engines send names to each other, and a YamlScalar cannot be sent.
    names = (str(entry.key) for entry in entries if isinstance(entry.value, YamlTable))
    return tuple(name for name in names if not name.startswith("-")) or (path.stem,)
