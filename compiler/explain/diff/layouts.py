"""What changed in the text of layout files, key by key: the cause of most changes of plans, in its own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable, read_text

# Keys that are for people, or about how a configuration is read.
SAID = {"title", "doc", "doc-ref", "match", "config", "legend", "probed"}
FAMILY = "variants"


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """One key of one file. `models` are those that the file describes, none for a kind or an engine."""

    path: str
    key: str
    before: str | None
    after: str | None
    models: frozenset[str] = frozenset()


def layout_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[LayoutChange]:
    """The keys that differ between texts of layout files by path; files that are no layouts have none."""
    found: list[LayoutChange] = []
    for path in sorted({*before, *after}):
        old, new = (_tree(texts.get(path, ""), path) for texts in (before, after))
        models = _models(new or old)
        found += [LayoutChange(path, *change, models) for change in _differences("", old, new)]
    return found


def _tree(text: str, path: str) -> Tree | None:
    if not text.strip():
        return None
    try:
        return read_text(text, Path(path)).root
    except DslError:
        return None


def _models(tree: Tree | None) -> frozenset[str]:
    if not isinstance(tree, YamlTable):
        return frozenset()
    family, own = tree.get(FAMILY), tree.get("model")
    if isinstance(family, YamlTable):
        return frozenset(entry.key.text for entry in family.entries)
    return frozenset({own.text} if isinstance(own, YamlScalar) else ())


def _differences(key: str, old: Tree | None, new: Tree | None) -> Iterator[tuple[str, str | None, str | None]]:
    if isinstance(old, YamlTable) or isinstance(new, YamlTable):
        before, after = (_entries(tree) for tree in (old, new))
        for name in dict.fromkeys([*before, *after]):
            yield from _differences(_joined(key, name), before.get(name), after.get(name))
        return
    left, right = (None if tree is None else _shown(tree) for tree in (old, new))
    if left != right:
        yield key, left, right


def _entries(tree: Tree | None) -> dict[str, Tree]:
    if not isinstance(tree, YamlTable):
        return {}
    every = {entry.key.text: entry.value for entry in tree.entries}
    return {name: value for name, value in every.items() if name not in SAID and not name.startswith("-")}


def _joined(key: str, name: str) -> str:
    """`states.size`: the words `caches` and `params`, under which everything of its sort stands, say nothing."""
    return key if name in ("caches", "params") else f"{key}.{name}" if key else name


def _shown(tree: Tree) -> str:
    if isinstance(tree, YamlList):
        return f"[{', '.join(map(_shown, tree.items))}]"
    if isinstance(tree, YamlTable):
        return f"{{{', '.join(f'{entry.key.text}: {_shown(entry.value)}' for entry in tree.entries)}}}"
    return " ".join(tree.text.split())
