"""The facts of a configuration from all its mappings, and the rules to read it by.

The rules are those of its format, and of the model file that matches it best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.dsl.configs.class_defaults import FilledConfig
from kvplan.dsl.configs.unread_keys import families
from kvplan.dsl.files.rule_check import LAYER, RUN, check_own
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.rules.answers import ForeignValues, with_words
from kvplan.dsl.rules.rule import over
from kvplan.dsl.schema.config import ConfigRules
from kvplan.dsl.text.diagnostics import DslError, Sink
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlList, YamlScalar, YamlTable

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


# The suffix of a source that the configuration leaves to its class.
BY_DEFAULT = "by default"
# The suffix of a list's name if the file of its class has only the part that repeats.
CYCLE = "_cycle"


def nested(config: Mapping[str, object], inside: tuple[str, ...]) -> tuple[Mapping[str, object], ...]:
    """The configuration, then the mapping under one of the keys `inside`, and so on, each inside the one before."""
    chain = [config]
    while inner := next((m for key in inside if isinstance(m := chain[-1].get(key), Mapping)), None):
        chain.append(inner)
    return tuple(chain)


def facts_of(
    config: FilledConfig, words: tuple[tuple[str, Expr], ...], outermost: tuple[str, ...] = ()
) -> ForeignValues:
    """The keys of all mappings, an inner value before an outer one unless it is null, and the words about no layer.

    `outermost` are names of one fact: only those in the outermost mapping with one of them count.

    Three more facts are `class_known`, `class_open`, the keys that its class computes from others, and `served_as`, the
    `architectures` of the outermost mapping that has some.
    """
    served_as = next((names for mapping in config.chain if (names := spoken(mapping.get("architectures")))), None)
    values: dict[str, object] = {"class_known": config.known, "class_open": config.open, "served_as": served_as}
    given = [{key: value for key, value in mapping.items() if value is not None} for mapping in config.chain]
    for mapping in given:
        values |= mapping
    first = next((mapping for mapping in given if mapping.keys() & {*outermost}), {})
    values = {key: value for key, value in values.items() if key not in outermost or key in first}
    values |= {key: first[key] for key in outermost if key in first}
    origins = {key: (f"{key.removesuffix(CYCLE)} {BY_DEFAULT}",) for key in config.defaulted}
    return with_words(ForeignValues(values, origins, usual=config.defaulted), words)


def layered(words: tuple[tuple[str, Expr], ...]) -> tuple[tuple[str, Expr], ...]:
    """The words that depend on the layer, directly or through other words."""
    about, layered_words = {LAYER, RUN}, []
    for name, expr in words:
        if expr.names & about:
            about.add(name)
            layered_words.append((name, expr))
        else:
            about.discard(name)
    return tuple(layered_words)


def at_layer(facts: ForeignValues, layer: int, about: tuple[tuple[str, Expr], ...], run: int = 0) -> ForeignValues:
    """The facts of one run of a layer: the facts, both numbers, and the words `about` it."""
    numbers = {LAYER: layer, RUN: run}
    here = replace(facts, values={**facts.values, **numbers}, origins={**facts.origins, LAYER: (), RUN: ()})
    return with_words(here, about)


def reading_of(library: Library, config: Mapping[str, object], layout: str = "") -> tuple[ConfigRules, str]:
    """The rules to read a configuration by, and the model whose `match` fits best, empty if none. Raises DslError.

    A `layout` that has rules of its own, and whose `match` holds, fits best. If several models fit
    equally well, one with the checkpoint's own draft does.
    """
    general = _general(library)
    scores = {model: score for model, score, _ in _matches(library, general, config)}
    own = layout if scores.get(layout) and library.model(layout).config != ConfigRules() else ""
    name = own or _best(library, scores)
    if name and not library.shipped("model", name):
        _check_rules(library, name)
    return (over(general, library.model(name).config) if name else general), name


def _best(library: Library, scores: Mapping[str, int]) -> str:
    """The model with the highest score, empty if all are 0."""
    highest = max(scores.values(), default=0)
    best = [model for model, score in scores.items() if score == highest > 0]
    return next((model for model in best if not library.model(model).config.other_draft), next(iter(best), ""))


def _check_rules(library: Library, name: str) -> None:
    """Raise DslError for names in a model's rules that nothing defines."""
    sink = Sink()
    check_own(sink, library.general, library.kinds, library.model(name))
    if sink.errors:
        raise DslError(*sink.errors)


def fitting(library: Library, config: Mapping[str, object]) -> list[str]:
    """The models whose whole `match` holds for a configuration. Raises DslError."""
    return [model for model, _, whole in _matches(library, library.general, config) if whole]


def _matches(library: Library, general: ConfigRules, config: Mapping[str, object]) -> Iterator[tuple[str, int, bool]]:
    """Each model, the number of keys of its `match` that hold for a configuration, and whether all of them do."""
    chain = nested(config, general.inside)
    for model in library.paths["model"]:
        match = library.head("model", model).tree.get("match")
        score = _score(match, general.match, chain)
        yield model, score, isinstance(match, YamlTable) and 0 < score == len(match.entries)


def _general(library: Library) -> ConfigRules:
    """The rules for all configurations, with the families of their kinds."""
    reading = library.general
    return replace(
        reading, families=families(reading, (rule for kind in library.kinds.values() for rule in kind.match))
    )


def _score(match: Tree | None, keys: tuple[str, ...], chain: tuple[Mapping[str, object], ...]) -> int:
    """The number of keys of `match` that hold; 0 if the leading one, the first of `keys` in it, does not hold."""
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
    """A value as layout files write it; several for a list."""
    if isinstance(value, tuple):
        return tuple(word for item in value for word in spoken(item))
    if isinstance(value, bool):
        return (str(value).lower(),)
    return (str(value),) if isinstance(value, int | str) else ()
