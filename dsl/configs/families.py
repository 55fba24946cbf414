"""Which rules a configuration is read with: those of its format, and of the model file that matches it best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvplan.dsl.configs.keys import nested
from kvplan.dsl.files.documents import open_document
from kvplan.dsl.files.variants import variant
from kvplan.dsl.model import ConfigRules
from kvplan.dsl.rules.config_rules import over
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


def reading_of(library: Library, config: Mapping[str, object]) -> tuple[ConfigRules, str]:
    """How a configuration is read, and the model whose `match` holds best for it, if one does. Raises DslError."""
    general = library.readings[min(library.readings)]  # the first config file by name
    chain = nested(config, general.inside)
    best, name = 0, ""
    for model, path in library.paths["model"].items():
        score = _score(variant(open_document(path).root, model).get("match"), general.match, chain)
        best, name = max((best, name), (score, model), key=lambda pair: pair[0])
    return (over(general, library.model(name).config) if name else general), name


def _score(match: Tree | None, keys: tuple[str, ...], chain: tuple[Mapping[str, object], ...]) -> int:
    """How many keys of `match` hold; none where the first of `keys` that it has does not."""
    if not isinstance(match, YamlTable):
        return 0
    holds = {entry.key.text: _holds(entry.value, entry.key.text, chain) for entry in match.entries}
    leading = next((holds[key] for key in keys if key in holds), False)
    return sum(holds.values()) if leading else 0


def _holds(wanted: Tree, key: str, chain: tuple[Mapping[str, object], ...]) -> bool:
    words = [
        item.text
        for item in (wanted.items if isinstance(wanted, YamlList) else (wanted,))
        if isinstance(item, YamlScalar)
    ]
    return any(word in words for mapping in chain for word in spoken(mapping.get(key)))


def spoken(value: object) -> tuple[str, ...]:
    """A value as layout files write it; a list's entries, each."""
    if isinstance(value, tuple):
        return tuple(word for item in value for word in spoken(item))
    if isinstance(value, bool):
        return (str(value).lower(),)
    return (str(value),) if isinstance(value, int | str) else ()
