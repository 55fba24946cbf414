"""Recognise what each layer of a checkpoint stores from its configuration, and which numbers are in doubt.

No architecture is named here: kinds, families and config files know them, by rules over the configuration's keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kvplan.dsl.configs.class_defaults import TYPE, filled
from kvplan.dsl.configs.families import BY_DEFAULT, at_layer, facts_of, layered, nested
from kvplan.dsl.configs.foreign_keys import Names, names_of
from kvplan.dsl.configs.naming import numbered
from kvplan.dsl.configs.numbers import CORRECT, COUNT, HEADS, dtype_of, layers_of, number_of, runs_of
from kvplan.dsl.configs.remarks import LayerRemarks, remarks_of
from kvplan.dsl.configs.unread_keys import asked_keys, like, unread
from kvplan.dsl.files.rule_check import LAYER, RUN
from kvplan.dsl.rules.answers import Answer, ForeignValues, shortened
from kvplan.dsl.rules.rule import RuleMatch, apply, judged, lacking
from kvplan.dsl.schema.config import DRAFTS, ConfigRules
from kvplan.dsl.schema.kind import Kind, Rule
from kvplan.dsl.text.diagnostics import fault, listed
from kvplan.dsl.text.grouped import grouped
from kvplan.dsl.text.source import SourceSpan

NOTHING = "nothing is known to be stored"
UNKNOWN = "no layout that comes with kvplan is for it: kinds and layers are derived from its keys alone"
NEW = "write the model file by hand, docs/add-a-model.md, or give a kind rules for its keys, docs/new-model.md"
FILL = "add them to a copy of the configuration, or ask its class: --transformers"
# Words that config files define, and that this file asks for.
BARE, SHARES, LAYER_IS = "bare", "shared", "layer_is"
# Layers, ascending, and the keys that say which they are.
SaidLayers = tuple[tuple[int, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RecognisedCache:
    """A recognised cache: its layers, ascending, and an answer for every parameter that a rule names.

    `sources` are the keys that say which layers store it.
    """

    name: str
    kind: str
    layers: tuple[int, ...]
    params: Mapping[str, Answer]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecognisedModel:
    """A recognised model: answers for its numbers, its caches, and remarks for people.

    `doubts` are remarks that mean that a number may be wrong, `unsure` remarks with the number or parameter that they
    are about. `drafts` is the number of draft layers. `mlp` are layers that keep nothing, `shared` layers that read
    another layer's cache, each with the keys that say so. Layers in `unjudged` may store something else. `counting` are
    the keys that rules ask for, and that its class is not known to have.
    """

    facts: ForeignValues
    layers: Answer
    dtype: Answer
    query_heads: Answer
    caches: tuple[RecognisedCache, ...]
    remarks: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    unsure: Mapping[str, str] = field(default_factory=dict)
    drafts: Answer = field(default_factory=partial(Answer, None, absent=True))
    mlp: SaidLayers = ((), ())
    shared: SaidLayers = ((), ())
    unjudged: frozenset[int] = frozenset()
    counting: Names = ()

    @property
    def settled(self) -> bool:
        """Whether only assumptions are open: each key was read, each layer judged, and no two spellings differ."""
        answers = (self.layers, self.dtype, *(answer for cache in self.caches for answer in cache.params.values()))
        return not self.doubts and not any(answer.disputed for answer in answers)

    @property
    def stored(self) -> tuple[object, ...]:
        """The caches and numbers that two recognised models are compared by, without their sources."""
        caches = ((c.kind, c.layers, tuple((n, a.value) for n, a in sorted(c.params.items()))) for c in self.caches)
        return self.layers.value, self.shared[0], *caches


def recognise(
    config: Mapping[str, object], reading: ConfigRules, kinds: Mapping[str, Kind], place: SourceSpan, family: str = ""
) -> RecognisedModel:
    """The model that a configuration describes; `family` is the model whose rules are used, empty for none.

    Raises DslError at `place`: F002 number of layers, F003 no cache found, F004 a number missing, F005 element type,
    F007 impossible numbers.
    """
    layered_words, chain = layered(reading.words), nested(config, reading.inside)
    whole = filled(chain, reading.inside, reading.classes)
    facts = facts_of(whole, tuple(word for word in reading.words if word not in layered_words), reading.outermost)
    layers = layers_of(facts, place, _other_models(chain[-1], reading))
    assert isinstance(layers.value, int)
    layer_facts = tuple(at_layer(facts, layer, layered_words) for layer in range(layers.value))
    runs = tuple(
        (layer, here if run == 0 else at_layer(facts, layer, layered_words, run))
        for layer, here in enumerate(layer_facts)
        for run in range(runs_of(here, place))
    )
    caches, rules, open_layers = _caches(runs, reading.caches, kinds)
    doubts = open_layers.sentences()
    if faults := remarks_of(reading.faults, facts, layer_facts, layered_words):
        raise fault("F007", "its numbers make no layout", place, *faults, help=CORRECT)
    if not caches:
        # The word for a layer, or a rule that could not be judged, explains more than the list of missing keys.
        told = any(LAYER_IS in facts for facts in layer_facts) or not any(NOTHING in doubt for doubt in doubts)
        notes = doubts if told else (_looked_for(reading, kinds), *doubts)
        raise fault("F003", "no layer of it stores a cache that is known", place, *notes, help=NEW)
    _check(caches, kinds, place)
    ignored = unread(chain, reading, rules, whole.apart)
    said = [(rule, text) for rule in reading.remarks for text in remarks_of([rule], facts, layer_facts, layered_words)]
    unsure, general = ([text for rule, text in said if rule.numbers is numbers] for numbers in (True, False))
    doubts = (*doubts, *unsure, *(_unread(*one) for one in ignored.items()))
    remarks = (*(() if family else (UNKNOWN,)), *_by_default(layers, caches, reading.classes.release), *general)
    return RecognisedModel(
        facts=facts,
        layers=layers,
        dtype=dtype_of(facts, place),
        query_heads=number_of(facts, HEADS),
        caches=caches,
        remarks=tuple(dict.fromkeys(remarks)),
        doubts=tuple(dict.fromkeys(doubts)),
        unsure={text: rule.of for rule, text in said if rule.of},
        drafts=number_of(facts, DRAFTS, 0),
        mlp=_bare(layer_facts, caches, BARE),
        shared=_bare(layer_facts, caches, SHARES),
        unjudged=open_layers.every,
        counting=names_of(chain, asked_keys(reading, rules) - {TYPE, *reading.match[:1]}, _read(whole.own, reading)),
    )


def _unread(key: str, near: str) -> str:
    """The doubt about a key that no rule read; `near` is a missing key with a similar name."""
    meant = f", or correct it: `{near}` is missing" if near else ""
    return f"`{key}` was not read: see in the model's code what it does{meant}"


def _read(own: Sequence[frozenset[str]], reading: ConfigRules) -> tuple[frozenset[str], ...]:
    """The keys that each mapping is known to have. The last, the model that writes text, also has those of `match`."""
    *outer, last = own
    return (*outer, last.union(reading.match))


def _other_models(config: Mapping[str, object], reading: ConfigRules) -> tuple[str, ...]:
    """The mappings in a configuration that have a number of layers, but that no rule reads."""
    counts = next((expr.names for word, expr in reading.words if word == COUNT), frozenset())
    mappings = ((key, value) for key, value in config.items() if isinstance(value, Mapping))
    return tuple(k for k, v in mappings if counts & v.keys() and not like(k.lower(), reading.no_effect))


def _by_default(layers: Answer, caches: Sequence[RecognisedCache], release: str) -> tuple[str, ...]:
    """The remark about keys that numbers are from, and that the configuration leaves to its class; none without any."""
    answers = (layers, *(answer for cache in caches for answer in cache.params.values() if answer.value is not None))
    sources = (*(answer.sources for answer in answers), *(cache.sources for cache in caches))
    told = {source for each in sources for source in each if source.endswith(BY_DEFAULT)}
    keys = [source.removesuffix(BY_DEFAULT).strip() for source in sorted(told)]
    return (f"{listed(keys, 'and')}: left out, and read as the class of {release} has it",) if keys else ()


def _bare(layer_facts: Sequence[ForeignValues], caches: Iterable[RecognisedCache], word: str) -> SaidLayers:
    """The layers that store nothing and whose `word` is true, and the keys that say so."""
    stored = {layer for cache in caches for layer in cache.layers}
    bare = {n: facts for n, facts in enumerate(layer_facts) if facts.values.get(word) is True and n not in stored}
    return tuple(bare), tuple(dict.fromkeys(key for facts in bare.values() for key in facts.origins.get(word, ())))


def _looked_for(reading: ConfigRules, kinds: Mapping[str, Kind]) -> str:
    """A note with the keys that rules ask for, without words."""
    asked = {name for kind in kinds.values() for rule in kind.match if rule.when for name in rule.when.names}
    return f"looked for {listed(sorted(asked - {LAYER, RUN, *(name for name, _ in reading.words)}), 'and')}"


def _caches(
    runs: Sequence[tuple[int, ForeignValues]], own: tuple[Rule, ...], kinds: Mapping[str, Kind]
) -> tuple[tuple[RecognisedCache, ...], tuple[Rule, ...], LayerRemarks]:
    """The caches of all runs of layers, their rules, and remarks on layers with an unjudged rule or without a cache."""
    found: list[tuple[int, RuleMatch]] = []
    remarks = LayerRemarks()
    for layer, facts in runs:
        matches = list(_matches(facts, own, kinds, layer, remarks))
        found += [(layer, match) for match in matches]
        if not matches and not _says_why(facts) and not remarks.about(layer):
            remarks.add(layer, NOTHING + _layer_word(facts))
    rules = {match.rule.span: _covering(match.rule, kinds[match.rule.kind]) for _, match in found}
    return caches_of(found), tuple(rules.values()), remarks


def _covering(rule: Rule, kind: Kind) -> Rule:
    """A rule; a model's own with the keys that its kind's rules cover, too."""
    if rule in kind.match:
        return rule
    return replace(rule, covers=(*rule.covers, *(key for each in kind.match for key in each.covers)))


def _says_why(facts: ForeignValues) -> bool:
    """Whether the configuration says why this layer has no cache of its own."""
    return any(facts.values.get(word) is True for word in (BARE, SHARES))


def _layer_word(facts: ForeignValues) -> str:
    """The configuration's word for a layer, with its keys: ` by 'new' of layer_types`; empty if it has none."""
    layer_is, keys = facts.values.get(LAYER_IS), facts.origins.get(LAYER_IS, ())
    said = f" of {listed(keys, 'and')}" if keys else ""
    return f" by '{shortened(layer_is)}'{said}" if isinstance(layer_is, str) else ""


def _matches(
    facts: ForeignValues, own: tuple[Rule, ...], kinds: Mapping[str, Kind], layer: int, remarks: LayerRemarks
) -> Iterator[RuleMatch]:
    """The rules that hold for a layer: at most one for each name in the model's own rules, then for each other kind."""
    named, given = dict.fromkeys(rule.name for rule in own), set[str]()
    choices = [tuple(rule for rule in own if rule.name == name) for name in named]
    for kind, rules in (*(("", rules) for rules in choices), *((name, kind.match) for name, kind in kinds.items())):
        if kind in given:
            continue
        rule, doubts = judged(rules, facts)
        for name, doubt in doubts:
            remarks.add(layer, doubt, name)
        if rule:
            yield apply(rule, facts, kinds[rule.kind].params)
        given |= {each.kind for each in rules if rule or doubts}


def caches_of(found: Iterable[tuple[int, RuleMatch]]) -> tuple[RecognisedCache, ...]:
    """The caches of all layers, in the order of their first layers; a repeated name gets a number.

    Layers with the same rule and numbers share a cache; the second such cache of one layer is another cache.
    """
    times = Counter[object]()
    merged = grouped((_alike(layer, match, times), (layer, match)) for layer, match in found)
    labels = numbered(matches[0][1].rule.name for matches in merged.values())
    return tuple(_cache(label, matches) for label, matches in zip(labels, merged.values(), strict=True))


def _alike(layer: int, match: RuleMatch, times: Counter[object]) -> tuple[object, ...]:
    """The key that the layers of one cache share: the rule, its numbers, and how often a layer has had them."""
    same = match.rule.kind, match.rule.name, *((name, answer.value) for name, answer in sorted(match.params.items()))
    times[layer, same] += 1
    return times[layer, same], *same


def _cache(label: str, matches: Sequence[tuple[int, RuleMatch]]) -> RecognisedCache:
    _, first = matches[0]
    sources = tuple(dict.fromkeys(source for _, match in matches for source in match.sources))
    return RecognisedCache(label, first.rule.kind, tuple(sorted(layer for layer, _ in matches)), first.params, sources)


def _check(caches: Sequence[RecognisedCache], kinds: Mapping[str, Kind], place: SourceSpan) -> None:
    """Raise F007 with every parameter whose value cannot be used, F004 with every one that lacks a value."""
    _check_given(caches, place)
    missing = [
        f"{name} of {cache.name}, a cache of kind {cache.kind}: {why}"
        for cache in caches
        for name, why in lacking(kinds[cache.kind].params, cache.params)
    ]
    if missing:
        raise fault("F004", "it does not say all numbers of a cache", place, *missing, help=FILL)


def _check_given(caches: Sequence[RecognisedCache], place: SourceSpan) -> None:
    """Raise F007 for values that cannot be used: a default must not replace what a configuration says."""
    unusable = grouped(
        (answer.doubt, f"{name} of cache {cache.name}")
        for cache in caches
        for name, answer in cache.params.items()
        if answer.value is None and not answer.absent
    )
    if unusable:
        sentences = (f"{listed(about, 'and')}: {doubt}" for doubt, about in unusable.items())
        raise fault("F007", "its numbers make no layout", place, *sentences, help=CORRECT)
