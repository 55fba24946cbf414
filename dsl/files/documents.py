"""Which files there are, and what each says it is."""

from __future__ import annotations

from pathlib import Path

from kvplan.dsl.text.diagnostics import Sink, listed, nearest
from kvplan.dsl.text.yaml_reader import YamlDocument, YamlScalar, read_cached

SORTS = ("kind", "engine", "model", "deployment", "config")
VERSION = "1"


def open_document(path: Path) -> YamlDocument:
    """A file's tree, read again only when the file changed."""
    try:
        state = path.stat()
    except OSError:
        return read_cached(path, 0, 0)
    return read_cached(path, state.st_mtime_ns, state.st_size)


def identify(sink: Sink, document: YamlDocument) -> tuple[str | None, str]:
    """The sort and name of a file; reports K004 (version), K005 (sort) and K006 (name is not the file's)."""
    root = document.root
    entries = [entry for entry in root.entries if not entry.key.text.startswith("-")]
    if not entries:
        sink.add("K004", "the first key must be 'kvplan: 1'", root.span)
        return None, ""
    first = entries[0]
    if first.key.text != "kvplan":
        sink.add("K004", f"the first key must be 'kvplan: 1', not '{first.key.text}'", first.key.span)
    elif not isinstance(first.value, YamlScalar) or first.value.text != VERSION:
        found = first.value.text if isinstance(first.value, YamlScalar) else "…"
        sink.add(
            "K004",
            f"format version '{found}' is not known",
            first.value.span,
            help=f"this kvplan reads version {VERSION}",
        )
    # A model has a key `config`, too: the sort that comes first in SORTS is meant.
    sort = next((entry for word in SORTS for entry in entries if entry.key.text == word), None)
    if sort is None:
        keys = [entry.key.text for entry in entries if entry.key.text != "kvplan"]
        hint = nearest(keys[0], SORTS) if keys else ""
        sink.add("K005", f"the file does not say what it is: it has none of {listed(SORTS)}", first.key.span, help=hint)
        return None, ""
    if not isinstance(sort.value, YamlScalar) or not sort.value.text:
        sink.add("K003", f"{sort.key.text} must be a name", sort.value.span)
        return sort.key.text, document.path.stem
    if sort.value.text != document.path.stem:
        help = f"name the file {sort.value.text}.yaml, or the {sort.key.text} '{document.path.stem}'"
        sink.add(
            "K006",
            f"{sort.key.text} '{sort.value.text}' is in a file called '{document.path.name}'",
            sort.value.span,
            help=help,
        )
    return sort.key.text, sort.value.text
