"""Which files a configuration is read with: the kinds' rules, and those of the model file that matches it best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan.dsl.configs.keys import nested
from kvplan.dsl.configs.recognise import KindRules
from kvplan.dsl.files.documents import open_document
from kvplan.dsl.files.variants import variant
from kvplan.dsl.rules.config_rules import ConfigRules, over, parse_own
from kvplan.dsl.rules.rule import parse_rules
from kvplan.dsl.text.diagnostics import DslError, Sink
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


@dataclass(frozen=True, slots=True)
class Family:
    """A model of the library, or a family: its name, and how its configurations are read."""

    name: str
    own: ConfigRules


def rules_of(library: Library) -> dict[str, KindRules]:
    """The rules of every kind, if any. Raises DslError."""
    found = {}
    for name, kind in library.kinds.items():
        tree, sink = open_document(library.paths["kind"][name]).root.get("match"), Sink()
        rules = parse_rules(sink, tree, "match", lambda _, kind=kind: kind.params, name)  # type: ignore[misc]
        _refuse(sink)
        found[name] = KindRules(kind.params, rules)
    return found


def reading_of(library: Library, config: Mapping[str, object]) -> tuple[ConfigRules, str]:
    """How a configuration is read, and the model whose `match` holds best for it, if one does. Raises DslError."""
    general = library.readings[min(library.readings)]  # the first config file by name
    chain = nested(config, general.inside)
    best, name = 0, ""
    for model, path in library.paths["model"].items():
        score = _score(variant(open_document(path).root, model).get("match"), general.match, chain)
        best, name = max((best, name), (score, model), key=lambda pair: pair[0])
    return (over(general, _own(library, name)) if name else general), name


def _own(library: Library, name: str) -> ConfigRules:
    sink, root = Sink(), open_document(library.paths["model"][name]).root
    kinds = library.kinds
    made = parse_own(
        sink, variant(root, name).get("config"), name, lambda kind: kinds[kind].params if kind in kinds else None
    )
    _refuse(sink)
    return made


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


def _refuse(sink: Sink) -> None:
    if sink.found:
        raise DslError(*sink.found)
