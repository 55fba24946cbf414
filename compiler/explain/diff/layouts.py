"""What changed in the text of layout files, key by key: the cause of most changes of plans, in its own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable, read_text

# Keys that are for people, or about how a configuration is read.
SAID = {"title", "doc", "doc-ref", "match", "config", "legend", "probed"}
FAMILY, ENGINE, BASE, CONFIGURATIONS = "variants", "engine", "extends", "config"
# How the engine is called that a side has which names none.
DEFAULT = ""


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """One key of one file.

    `models` are those that it describes, `engines` the one that it describes and those that extend it; a kind has none.
    """

    path: str
    key: str
    before: str | None
    after: str | None
    models: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()


def layout_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[LayoutChange]:
    """The keys that differ between texts of layout files by path; files that no plan is made of have none."""
    trees = [{path: _tree(text, path) for path, text in texts.items()} for texts in (before, after)]
    bases, found = dict(pair for some in trees for pair in _bases(some.values())), list[LayoutChange]()
    for path in sorted({*before, *after}):
        old, new = (some.get(path) for some in trees)
        about = new or old
        if not _word(about, CONFIGURATIONS):
            sort = _models(about), _engines(about, bases)
            found += [LayoutChange(path, *change, *sort) for change in _differences("", old, new)]
    return found


def _bases(trees: Iterable[Tree | None]) -> Iterator[tuple[str, str]]:
    """Engines, and which other one each is made of; the default one under its other name, too."""
    for tree in trees:
        if name := _word(tree, ENGINE):
            yield name, _word(tree, BASE)
            if _word(tree, "default") == "true":
                yield DEFAULT, name


def _engines(tree: Tree | None, bases: Mapping[str, str]) -> frozenset[str]:
    """The engines that a file is for."""
    found = {name} if (name := _word(tree, ENGINE)) else set[str]()
    while found and (more := {one for one, base in bases.items() if base in found} - found):
        found |= more
    return frozenset(found)


def _word(tree: Tree | None, key: str) -> str:
    """The text of a key, empty where it has none."""
    value = tree.get(key) if isinstance(tree, YamlTable) else None
    return value.text if isinstance(value, YamlScalar) else ""


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
    family, own = tree.get(FAMILY), _word(tree, "model")
    if isinstance(family, YamlTable):
        return frozenset(entry.key.text for entry in family.entries)
    return frozenset({own} if own else ())


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
