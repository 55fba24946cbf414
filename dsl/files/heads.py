"""Heads of layout files: unchecked keys, with those of the files that they extend. Lists need no more, and are fast."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dsl.files.variants import notes
from kvplan.dsl.text.yaml_reader import YamlScalar, YamlTable


@dataclass(frozen=True, slots=True)
class FileHead:
    """The name of what a file describes, and its keys as they are written."""

    name: str
    tree: YamlTable

    def word(self, key: str) -> str:
        """The text of a key, empty if there is none."""
        value = self.tree.get(key)
        return value if isinstance(value, YamlScalar) else ""

    @property
    def title(self) -> str:
        return self.word("title")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of a model's caches."""
        caches = self.tree.get("caches")
        trees = (entry.value for entry in caches.entries) if isinstance(caches, YamlTable) else ()
        kinds = (tree.get("kind") for tree in trees if isinstance(tree, YamlTable))
        return tuple(kind for kind in kinds if isinstance(kind, YamlScalar))

    @property
    def notes(self) -> list[tuple[str, str]]:
        return notes(self.tree)
