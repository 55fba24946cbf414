"""Changed keys of layout files: they cause most changes of plans, and a review shows them as they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kvplan.dsl.files.documents import FILE_TYPES
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable, read_text

# Keys without effect on plans: they are for people, or say how a configuration is read.
SAID = {"title", "doc", "doc-ref", "unit", "match", "config", "legend", "other_names", "probed", "doubts"}
FAMILY, ENGINE, KIND, BASE, CONFIGURATIONS = "variants", "engine", "kind", "extends", "config"
# The name of the engine if a side names none.
DEFAULT = ""


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A changed key of one file.

    `models` are the models that the file describes and those that extend them, `engines` likewise; a kind has neither.
    `spared` are the models that are known to have no cache of a changed kind.
    """

    path: str
    key: str
    before: str | None
    after: str | None
    models: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()


def layout_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[LayoutChange]:
    """The keys that differ between texts of layout files by path, without the files that only read configurations."""
    trees = [{path: _tree(text, path) for path, text in texts.items()} for texts in (before, after)]
    every = [tree for some in trees for tree in some.values()]
    models, engines = (frozenset(pair for tree in every for pair in bases(tree)) for bases in (_bases, _engine_bases))
    found: list[LayoutChange] = []
    for path, old, new in _files(*trees):
        changed = [] if _word(new or old, CONFIGURATIONS) else _of_file(old, new)
        if not changed:
            continue
        of_engines = _heirs(_engines(old) | _engines(new), engines)
        spared = _spared(every, frozenset({_word(old, KIND), _word(new, KIND)} - {""}), models)
        described = _models(old) | _models(new)
        found += [
            LayoutChange(path, *change, _heirs(_models_of(change[0], described), models), of_engines, spared)
            for change in changed
        ]
    return found


def _files(
    before: Mapping[str, Tree | None], after: Mapping[str, Tree | None]
) -> Iterator[tuple[str, Tree | None, Tree | None]]:
    """Every file with its path, as it was and as it is. A file that moved is one: it describes the same as before."""
    left, added = _names_alone(before, after), _names_alone(after, before)
    moved = {path: left[name] for name, path in added.items() if name in left}
    for path in sorted({*before, *after} - {*moved.values()}):
        yield path, before.get(moved.get(path, path)), after.get(path)


def _names_alone(trees: Mapping[str, Tree | None], others: Mapping[str, Tree | None]) -> dict[tuple[str, str], str]:
    """The names of files whose path `others` lacks, each with its first path. Some files have none."""
    named = {_name(trees[path]): path for path in sorted({*trees} - {*others}, reverse=True)}
    return {(word, name): path for (word, name), path in named.items() if name}


def _name(tree: Tree | None) -> tuple[str, str]:
    """The type of a file, and the name of what it describes; both are empty if it names nothing."""
    return next(((word, name) for word in FILE_TYPES if (name := _word(tree, word))), ("", ""))


def _of_file(old: Tree | None, new: Tree | None) -> list[tuple[str, str | None, str | None]]:
    """The keys of a file that differ; of one that is new or removed only its name."""
    (word, before), (other, after) = _name(old), _name(new)
    if (old is None or new is None) and (word or other):
        return [(word or other, before or None, after or None)]
    return [*_differences("", old, new)]


def _spared(trees: Iterable[Tree | None], kinds: frozenset[str], bases: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The models without a cache of these kinds. None is known if an engine names one: it may store others as that."""
    if not kinds:
        return frozenset()
    words = [(tree, _scalars(tree)) for tree in trees]
    # A kind may extend another.
    every = _heirs(
        kinds, frozenset((kind, word) for tree, said in words if (kind := _word(tree, KIND)) for word in said)
    )
    read = [(tree, bool(every & said)) for tree, said in words]
    if any(named and _engines(tree) for tree, named in read):
        return frozenset()
    own = frozenset(name for tree, named in read if named for name in _models(tree))
    return frozenset(name for tree, _ in read for name in _models(tree)) - _heirs(own, bases)


def _scalars(tree: Tree | None) -> frozenset[str]:
    """All values in a file that are words."""
    if isinstance(tree, YamlScalar):
        return frozenset({tree})
    inner = [entry.value for entry in tree.entries] if isinstance(tree, YamlTable) else tree.items if tree else []
    return frozenset().union(*map(_scalars, inner))


def _heirs(names: frozenset[str], bases: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The names with all that extend them; `bases` are pairs (name, the name that it extends)."""
    while more := {name for name, base in bases if base in names} - names:
        names |= more
    return names


def _bases(tree: Tree | None) -> Iterator[tuple[str, str]]:
    """The models of a file, each with the model that it extends."""
    if base := _word(tree, BASE):
        yield from ((name, base) for name in _models(tree))


def _engine_bases(tree: Tree | None) -> Iterator[tuple[str, str]]:
    """The engine of a file with the one that it extends. A default engine also is the base of DEFAULT."""
    if name := _word(tree, ENGINE):
        yield name, _word(tree, BASE)
        if _word(tree, "default") == "true":
            yield DEFAULT, name


def _engines(tree: Tree | None) -> frozenset[str]:
    """The engine that a file is for."""
    return frozenset({_word(tree, ENGINE)} - {""})


def _models_of(key: str, models: frozenset[str]) -> frozenset[str]:
    """The models of a file that a key is about: one if the key belongs to a variant."""
    own = [name for name in models if f"{key}.".startswith(f"{FAMILY}.{name}.")]
    # Names have dots: a key of `v3.2` also begins with `v3.`, so the longest name wins.
    return frozenset({max(own, key=len)}) if own else models


def _word(tree: Tree | None, key: str) -> str:
    """The text of a key, empty if it has none."""
    value = tree.get(key) if isinstance(tree, YamlTable) else None
    return value if isinstance(value, YamlScalar) else ""


@lru_cache(512)
def _tree(text: str, path: str) -> Tree | None:
    # Most files have the same text in both revisions, and are read once for both.
    if not text.strip():
        return None
    try:
        return read_text(text, Path(path)).root
    except DslError:
        return None


def _models(tree: Tree | None) -> frozenset[str]:
    """The models of a file. A kind has variants, too: its records."""
    own = _word(tree, "model")
    if not own or not isinstance(tree, YamlTable):
        return frozenset()
    family = tree.get(FAMILY)
    return frozenset(entry.key for entry in family.entries) if isinstance(family, YamlTable) else frozenset({own})


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
    every = {entry.key: entry.value for entry in tree.entries}
    return {name: value for name, value in every.items() if name not in SAID and not name.startswith("-")}


def _joined(key: str, name: str) -> str:
    """`states.size`, without `caches` and `params`: every key of its kind is under these words."""
    return key if name in ("caches", "params") else f"{key}.{name}" if key else name


def _shown(tree: Tree) -> str:
    if isinstance(tree, YamlList):
        return f"[{', '.join(map(_shown, tree.items))}]"
    if isinstance(tree, YamlTable):
        return f"{{{', '.join(f'{entry.key}: {_shown(entry.value)}' for entry in tree.entries)}}}"
    return " ".join(tree.split())
