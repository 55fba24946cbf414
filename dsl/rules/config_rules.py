"""Config files: how configurations of one format are read, whatever the model; and what a model file adds to that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kvplan.dsl.lang.expr import names
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.model import ConfigRules, RemarkRule, Rule
from kvplan.dsl.rules.rule import Params, parse_rules
from kvplan.dsl.schema.model import CONFIG, OWN, RemarkKeys
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import Tree, YamlScalar, YamlTable


def parse_reading(sink: Sink, root: YamlTable, name: str) -> ConfigRules:
    """A config file, with every error in the sink."""
    keys = CONFIG.read(sink, root)
    return ConfigRules(
        name=name,
        inside=keys.inside,
        match=keys.match,
        words=_words(keys.words),
        remarks=_remarks(keys.remarks),
        faults=_remarks(keys.faults),
        about=keys.about,
        aside=keys.aside,
    )


def parse_own(sink: Sink, tree: Tree | None, name: str, params_of: Params) -> ConfigRules:
    """What the model file `name` says under `config`."""
    keys = OWN.read(sink, tree)
    rules: tuple[Rule, ...] = ()
    for cache, given in keys.caches.items():
        own = parse_rules(sink, given, f"cache '{cache.text}' of config", params_of)
        rules += tuple(replace(rule, name=cache.text, span=cache.span) for rule in own)
    return ConfigRules(name, words=_words(keys.words), remarks=_remarks(keys.remarks), caches=rules)


def over(general: ConfigRules, own: ConfigRules) -> ConfigRules:
    """Both readings. A model's rules come first; its words as early as can be: after those of their name or use."""
    words = general.words
    for name, expr in own.words:
        used = names(expr) | {name}
        at = max((place for place, (other, _) in enumerate(words, 1) if other in used), default=0)
        words = (*words[:at], (name, expr), *words[at:])
    remarks, caches = (*general.remarks, *own.remarks), (*own.caches, *general.caches)
    return replace(general, words=words, remarks=remarks, caches=caches)


def _words(given: Mapping[YamlScalar, Expr]) -> tuple[tuple[str, Expr], ...]:
    return tuple((name.text, expr) for name, expr in given.items())


def _remarks(given: Iterable[RemarkKeys]) -> tuple[RemarkRule, ...]:
    return tuple(RemarkRule(keys.when, keys.say.text) for keys in given if keys.when and keys.say)
