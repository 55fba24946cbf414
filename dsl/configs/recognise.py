"""A checkpoint's configuration to a model: what each layer stores, and all that is not sure about it.

Nothing here knows an architecture: kinds, families and config files do, by rules over the configuration's keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvplan.dsl.configs.keys import LAYER, at_layer, facts_of, layered, nested
from kvplan.dsl.configs.naming import numbered
from kvplan.dsl.configs.numbers import dtype_of, fault, heads_of, layers_of
from kvplan.dsl.configs.remarks import LayerRemarks, remarks_of
from kvplan.dsl.configs.unread_keys import unread
from kvplan.dsl.lang.expr import names
from kvplan.dsl.model import ConfigRules, Kind, Rule
from kvplan.dsl.rules.answers import Answer, ForeignValues, shortened
from kvplan.dsl.rules.rule import RuleMatch, apply, judged
from kvplan.dsl.text.diagnostics import listed
from kvplan.dsl.text.source import SourceSpan

NOTHING = "nothing is known to be stored"
UNKNOWN = "no model is known that matches it: kinds and layers are read off its keys, compare them with an engine"
NEW = "write the model file by hand, docs/add-a-model.md, or give a kind rules for its keys, docs/new-model.md"
# Words that a config file gives a meaning to, and that are asked for here.
BARE, SORT = "bare", "layer_is"


@dataclass(frozen=True, slots=True)
class RecognisedCache:
    """A cache that was recognised: its layers, ascending, and an answer for every parameter that a rule names."""

    name: str
    kind: str
    layers: tuple[int, ...]
    params: Mapping[str, Answer]


@dataclass(frozen=True, slots=True)
class RecognisedModel:
    """What a configuration says. `layers`, `dtype` and `query_heads` are answers; remarks are for people."""

    facts: ForeignValues
    layers: Answer
    dtype: Answer
    query_heads: Answer
    caches: tuple[RecognisedCache, ...]
    remarks: tuple[str, ...]


def recognise(
    config: Mapping[str, object],
    reading: ConfigRules,
    kinds: Mapping[str, Kind],
    place: SourceSpan,
    family: str = "",
) -> RecognisedModel:
    """What a configuration says; `family` is the model whose reading it is, if one matches.

    Raises DslError at `place`: F002 layers, F003 nothing found, F004 a number missing, F005 an element
    type, F007 numbers that cannot be.
    """
    about, chain = layered(reading.words), nested(config, reading.inside)
    facts = facts_of(chain, tuple(item for item in reading.words if item not in about))
    layers = layers_of(facts, place)
    assert isinstance(layers.value, int)
    here = tuple(at_layer(facts, layer, about) for layer in range(layers.value))
    found, rules, said = _caches(here, reading.caches, kinds)
    if not found:
        raise fault(
            place, "F003", "no layer of it stores a cache that is known", (_looked_for(reading, kinds), *said), NEW
        )
    if faults := remarks_of(reading.faults, facts, here, about):
        raise fault(place, "F007", "its numbers make no layout", faults, "no model has such numbers")
    _check(found, kinds, place)
    ignored = tuple(f"`{key}` was not read: compare with an engine" for key in unread(chain, reading, rules))
    remarks = (*(() if family else (UNKNOWN,)), *said, *ignored, *remarks_of(reading.remarks, facts, here, about))
    return RecognisedModel(facts, layers, dtype_of(facts, place), heads_of(facts), found, tuple(dict.fromkeys(remarks)))


def _looked_for(reading: ConfigRules, kinds: Mapping[str, Kind]) -> str:
    """The keys that rules ask for, as rules name them; words are none."""
    asked = {name for kind in kinds.values() for rule in kind.match if rule.when for name in names(rule.when)}
    return f"looked for {listed(sorted(asked - {LAYER, *(name for name, _ in reading.words)}), 'and')}"


def _caches(
    here: tuple[ForeignValues, ...], own: tuple[Rule, ...], kinds: Mapping[str, Kind]
) -> tuple[tuple[RecognisedCache, ...], tuple[Rule, ...], tuple[str, ...]]:
    """The caches of all layers, their rules, and what is to be said of layers: rules nobody can judge, no cache."""
    merged: dict[tuple[object, ...], list[tuple[int, RuleMatch]]] = {}
    said = LayerRemarks()
    for layer, facts in enumerate(here):
        hits = list(_hits(facts, own, kinds, layer, said))
        for hit in hits:
            key = (hit.rule.kind, hit.rule.name, *((name, answer.value) for name, answer in sorted(hit.params.items())))
            merged.setdefault(key, []).append((layer, hit))
        if not hits and not _says(facts, BARE) and not said.about(layer):
            sort = facts.values.get(SORT)
            said.add(layer, NOTHING + (f" by '{shortened(sort)}'" if isinstance(sort, str) else ""))
    rules = {hit.rule.span: hit.rule for hits in merged.values() for _, hit in hits}
    return tuple(_named(merged)), tuple(rules.values()), said.sentences()


def _says(facts: ForeignValues, name: str) -> bool:
    return facts.values.get(name) is True


def _hits(
    here: ForeignValues, own: tuple[Rule, ...], kinds: Mapping[str, Kind], layer: int, said: LayerRemarks
) -> Iterator[RuleMatch]:
    """What a layer stores: one cache of every name that a model gives rules for, one of every other kind."""
    named = dict.fromkeys(rule.name for rule in own)
    given = {rule.kind for rule in own}
    choices = [tuple(rule for rule in own if rule.name == name) for name in named]
    for rules in (*choices, *(kind.match for name, kind in kinds.items() if name not in given)):
        rule, doubts = judged(rules, here)
        for name, doubt in doubts:
            said.add(layer, doubt, name)
        if rule:
            yield apply(rule, here, kinds[rule.kind].params)


def _named(merged: Mapping[tuple[object, ...], list[tuple[int, RuleMatch]]]) -> Iterator[RecognisedCache]:
    """Caches in order of their first layers; where a name comes again it gets a number."""
    names_ = numbered(hits[0][1].rule.name for hits in merged.values())
    for name, hits in zip(names_, merged.values(), strict=True):
        yield RecognisedCache(name, hits[0][1].rule.kind, tuple(layer for layer, _ in hits), hits[0][1].params)


def _check(found: tuple[RecognisedCache, ...], kinds: Mapping[str, Kind], place: SourceSpan) -> None:
    """Raise F004 with every parameter that must have a value and has none."""
    lacking = [
        f"{name} of {stored.name}, a cache of kind {stored.kind}: {_lacks(stored, name)}"
        for stored in found
        for name, param in kinds[stored.kind].params.items()
        if param.default is None and (name not in stored.params or stored.params[name].value is None)
    ]
    if lacking:
        raise fault(place, "F004", "it does not say all numbers of a cache", tuple(lacking))


def _lacks(stored: RecognisedCache, name: str) -> str:
    return stored.params[name].doubt if name in stored.params else "no rule says where it stands"
