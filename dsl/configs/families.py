"""The facts of a configuration, wherever they stand in it, and the rules that it is read with.

The rules are those of its format, and of the model file that matches it best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.dsl.configs.class_defaults import FilledConfig
from kvplan.dsl.configs.unread_keys import LAYER, RUN, families
from kvplan.dsl.files.documents import open_document
from kvplan.dsl.files.variants import variant
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.rules.answers import ForeignValues, with_words
from kvplan.dsl.rules.rule import over
from kvplan.dsl.schema.config import ConfigRules
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlList, YamlScalar, YamlTable

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


# What is said of a key that a configuration leaves to its class.
BY_DEFAULT = "by default"


def nested(config: Mapping[str, object], inside: tuple[str, ...]) -> tuple[Mapping[str, object], ...]:
    """The configuration and the mappings in it, each in the one before, in which the numbers may stand."""
    chain = [config]
    while inner := next((m for key in inside if isinstance(m := chain[-1].get(key), Mapping)), None):
        chain.append(inner)
    return tuple(chain)


def facts_of(
    config: FilledConfig, words: tuple[tuple[str, Expr], ...], outermost: tuple[str, ...] = ()
) -> ForeignValues:
    """Every key of a configuration, inner ones first unless they are null, and the words that are not about one layer.

    `outermost` are names of one fact: those of the outermost mapping that has one count, and those inside do not.

    Three facts more are `class_known`, `class_open`, which are the keys that its class works out from others, and
    `served_as`, the `architectures` of the outermost configuration that has some.
    """
    served_as = next((names for mapping in config.chain if (names := spoken(mapping.get("architectures")))), None)
    values: dict[str, object] = {"class_known": config.known, "class_open": config.open, "served_as": served_as}
    given = [{key: value for key, value in mapping.items() if value is not None} for mapping in config.chain]
    for mapping in given:
        values |= mapping
    first = next((mapping for mapping in given if mapping.keys() & {*outermost}), {})
    values = {key: value for key, value in values.items() if key not in outermost or key in first}
    values |= {key: first[key] for key in outermost if key in first}
    origins = {key: (f"{key} {BY_DEFAULT}",) for key in config.defaulted}
    return with_words(ForeignValues(values, origins, usual=config.defaulted), words)


def layered(words: tuple[tuple[str, Expr], ...]) -> tuple[tuple[str, Expr], ...]:
    """The words that are about one layer, by themselves or by others."""
    about, layered_words = {LAYER, RUN}, []
    for name, expr in words:
        if expr.names & about:
            about.add(name)
            layered_words.append((name, expr))
        else:
            about.discard(name)
    return tuple(layered_words)


def at_layer(facts: ForeignValues, layer: int, about: tuple[tuple[str, Expr], ...], run: int = 0) -> ForeignValues:
    """The facts of one run of a layer: their numbers, and the words that are about it."""
    numbers = {LAYER: layer, RUN: run}
    here = replace(facts, values={**facts.values, **numbers}, origins={**facts.origins, LAYER: (), RUN: ()})
    return with_words(here, about)


def reading_of(library: Library, config: Mapping[str, object]) -> tuple[ConfigRules, str]:
    """How a configuration is read, and the model whose `match` holds best for it, if one does. Raises DslError."""
    general = _general(library)
    scores = ((score, model) for model, score, _ in _matches(library, config))
    _, name = max([(0, ""), *scores], key=lambda pair: pair[0])
    return (over(general, library.model(name).config) if name else general), name


def fitting(library: Library, config: Mapping[str, object]) -> list[str]:
    """The models of which all that `match` asks for holds for a configuration. Raises DslError."""
    return [model for model, _, whole in _matches(library, config) if whole]


def _matches(library: Library, config: Mapping[str, object]) -> Iterator[tuple[str, int, bool]]:
    """Each model, how many keys of its `match` hold for a configuration, and whether these are all."""
    general = _general(library)
    chain = nested(config, general.inside)
    for model, path in library.paths["model"].items():
        match = variant(open_document(path).root, model).get("match")
        score = _score(match, general.match, chain)
        yield model, score, isinstance(match, YamlTable) and 0 < score == len(match.entries)


def _general(library: Library) -> ConfigRules:
    """How configurations are read that no model says more of: the first config file by name."""
    reading = library.readings[min(library.readings)]
    return replace(
        reading, families=families(reading, (rule for kind in library.kinds.values() for rule in kind.match))
    )


def _score(match: Tree | None, keys: tuple[str, ...], chain: tuple[Mapping[str, object], ...]) -> int:
    """How many keys of `match` hold; none where the first of `keys` that it has does not."""
    if not isinstance(match, YamlTable):
        return 0
    holds: Named[bool] = {entry.key: _holds(entry.value, entry.key, chain) for entry in match.entries}
    leading = next((holds[key] for key in keys if key in holds), False)
    return sum(holds.values()) if leading else 0


def _holds(wanted: Tree, key: str, chain: tuple[Mapping[str, object], ...]) -> bool:
    words = [
        item for item in (wanted.items if isinstance(wanted, YamlList) else (wanted,)) if isinstance(item, YamlScalar)
    ]
    return any(word in words for mapping in chain for word in spoken(mapping.get(key)))


def spoken(value: object) -> tuple[str, ...]:
    """A value as layout files write it; a list's entries, each."""
    if isinstance(value, tuple):
        return tuple(word for item in value for word in spoken(item))
    if isinstance(value, bool):
        return (str(value).lower(),)
    return (str(value),) if isinstance(value, int | str) else ()
