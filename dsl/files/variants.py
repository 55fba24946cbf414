"""Lay files over others: mappings are merged key by key, at all depths; all other values are replaced.

A file `extends` another of its type. A model file with `variants` is a family: it describes a model for each
variant, and none for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kvplan.dsl.files.documents import unknown
from kvplan.dsl.schema.fields import entries as entries_of
from kvplan.dsl.schema.forms import EXTENDS
from kvplan.dsl.schema.model import FAMILY, ONCE, VARIANTS
from kvplan.dsl.text.diagnostics import DslError, Sink, fault
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlEntry, YamlList, YamlScalar, YamlTable

# Facts about one file only. For `shares` the default is the safe value.
NOT_INHERITED = (EXTENDS, "default", "other_names", "probed", "platforms", "shares")


def extended(
    root: YamlTable, chain: tuple[str, ...], file_type: str, known: Collection[str], root_of: Callable[[str], YamlTable]
) -> YamlTable:
    """`root` laid over the file that it extends; `known` are the names of files, `chain` ends with the file's own name.

    Raises DslError: K008 for an unknown name, K011 for a circle.
    """
    base = root.get(EXTENDS)
    if not isinstance(base, YamlScalar):
        return root
    if base in chain:
        circle = " -> ".join((*chain, base))
        raise fault("K011", f"{file_type} '{chain[-1]}' extends itself: {circle}", base.span)
    if base not in known:
        raise DslError(unknown(file_type, base, known, chain))
    under = extended(root_of(base), (*chain, base), file_type, known, root_of)
    return merged(without(under, *NOT_INHERITED), root)


def variant(root: YamlTable, name: str) -> YamlTable:
    """The keys of one variant laid over those of its family; the family's keys if it has no such variant."""
    variants, family = root.get(FAMILY), without(root, FAMILY)
    own = variants.get(name) if isinstance(variants, YamlTable) else None
    return merged(family, without(own, *ONCE)) if isinstance(own, YamlTable) else family


def place(root: YamlTable, name: str) -> SourceSpan:
    """The place of a model's name: the key of a variant, or the file's `model`."""
    variants = root.get(FAMILY)
    keys = [entry.key for entry in variants.entries] if isinstance(variants, YamlTable) else []
    own = root.get("model")
    of_file = own if isinstance(own, YamlScalar) else root
    return next((key.span for key in keys if key == name), of_file.span)


def check_variants(sink: Sink, tree: Tree | None) -> None:
    """Report invalid variants: names (K009), values (K003), and keys that a file has only once (K001)."""
    for name, value in VARIANTS.read(sink, tree, FAMILY).items():
        for key in entries_of(sink, value, f"variant '{name}'"):
            if key in ONCE:
                help = "a file says it once, for all its variants"
                sink.add("K001", f"unknown key '{key}' in variant '{name}'", key.span, help=help)
    if isinstance(tree, YamlTable) and not tree.entries:
        sink.add("K003", f"{FAMILY} must have one model at least", tree.span, help=f"leave {FAMILY} out")


def notes(tree: Tree, path: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """The notes in a tree, each with its subject: `-heads-note` in cache `a` is about `a.heads`."""
    told: list[tuple[str, str]] = []
    items = [(str(i), item) for i, item in enumerate(tree.items)] if isinstance(tree, YamlList) else []
    for key, value in items or ([(e.key, e.value) for e in tree.entries] if isinstance(tree, YamlTable) else []):
        if not key.startswith("-"):
            told += notes(value, path if key == "caches" else (*path, key))
        elif isinstance(value, YamlScalar):
            about = key.strip("-").removesuffix("note").strip("-")
            told.append((".".join([*path, about] if about else path), value))
    return told


def merged(base: YamlTable, own: YamlTable) -> YamlTable:
    """`own` laid over `base`: mappings are merged, at all depths; all other values are replaced."""
    entries = {entry.key: entry for entry in base.entries}
    for entry in own.entries:
        under = entries.get(entry.key)
        value = entry.value
        if under is not None and isinstance(under.value, YamlTable) and isinstance(value, YamlTable):
            value = merged(under.value, value)
        entries[entry.key] = YamlEntry(entry.key, value)
    return YamlTable(tuple(entries.values()), own.span)


def without(table: YamlTable, *keys: str) -> YamlTable:
    """`table` without some keys."""
    return YamlTable(tuple(entry for entry in table.entries if entry.key not in keys), table.span)
