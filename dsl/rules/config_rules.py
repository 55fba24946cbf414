"""Config files: how configurations of one format are read, whatever the model; and what a model file adds to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvplan.dsl.lang.expr import names
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.model import Rule
from kvplan.dsl.rules.rule import Params, foreign, parse_rules
from kvplan.dsl.schema.fields import LABEL, fields, items, named, text, words
from kvplan.dsl.schema.model import CONFIG, OWN, REMARK
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlTable


@dataclass(frozen=True, slots=True)
class RemarkRule:
    """A sentence to say where `when` holds; {name} is replaced."""

    when: Expr
    say: str


@dataclass(frozen=True, slots=True)
class ConfigRules:
    """`inside`: mappings in which the numbers may stand. `match`: keys that tell one model from another.

    `words` are worth what their expressions are, in this order, each of which may use those before it and, where it is
    about one layer, `layer`. `caches` are rules of a model's own, for each name the first that holds; kinds that they
    are about have no others. `faults` are remarks on what cannot be. `about` and `aside` are patterns of keys: those
    that look as if they were about caches, and those of them that are not. `always` are words asked for in any case.
    """

    name: str
    inside: tuple[str, ...] = ()
    match: tuple[str, ...] = ()
    words: tuple[tuple[str, Expr], ...] = ()
    remarks: tuple[RemarkRule, ...] = ()
    caches: tuple[Rule, ...] = ()
    faults: tuple[RemarkRule, ...] = ()
    about: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    always: tuple[str, ...] = ("layers", "dtype", "query_heads", "title", "name", "layer_is", "bare")


def parse_reading(sink: Sink, root: YamlTable, name: str, span: SourceSpan) -> ConfigRules:
    """A config file, with every error in the sink."""
    found = fields(sink, root, CONFIG.what, CONFIG.known, CONFIG.required)
    text(sink, found.get("title"), "title")
    inside, match, about, aside = (words(sink, found.get(key), key) for key in ("inside", "match", "about", "aside"))
    remarks, faults = (_remarks(sink, found.get(key), key) for key in ("remarks", "faults"))
    return ConfigRules(name, inside, match, _words(sink, found.get("words")), remarks, (), faults, about, aside)


def parse_own(sink: Sink, tree: Tree | None, name: str, params_of: Params) -> ConfigRules:
    """What the model file `name` says under `config`."""
    if tree is None:
        return ConfigRules(name)
    found = fields(sink, tree, OWN.what, OWN.known)
    rules: tuple[Rule, ...] = ()
    for cache, (value, span) in named(sink, found.get("caches"), "caches of config", LABEL).items():
        made = parse_rules(sink, value, f"cache '{cache}' of config", params_of)
        rules += tuple(replace(rule, name=cache, span=span) for rule in made)
    words_, remarks = _words(sink, found.get("words")), _remarks(sink, found.get("remarks"), "remarks")
    return ConfigRules(name, (), (), words_, remarks, rules)


def over(general: ConfigRules, own: ConfigRules) -> ConfigRules:
    """Both readings. A model's rules come first; its words as early as can be: after those of their name or use."""
    words_ = general.words
    for name, expr in own.words:
        used = names(expr) | {name}
        at = max((place for place, (other, _) in enumerate(words_, 1) if other in used), default=0)
        words_ = (*words_[:at], (name, expr), *words_[at:])
    remarks, caches = (*general.remarks, *own.remarks), (*own.caches, *general.caches)
    return replace(general, words=words_, remarks=remarks, caches=caches)


def _words(sink: Sink, tree: Tree | None) -> tuple[tuple[str, Expr], ...]:
    exprs = {name: foreign(sink, value, name) for name, (value, _) in named(sink, tree, "words").items()}
    return tuple((name, expr) for name, expr in exprs.items() if expr is not None)


def _remarks(sink: Sink, tree: Tree | None, what: str) -> tuple[RemarkRule, ...]:
    made = [_remark(sink, item) for item in items(sink, tree, what)]
    return tuple(remark for remark in made if remark is not None)


def _remark(sink: Sink, tree: Tree) -> RemarkRule | None:
    found: Mapping[str, Tree] = fields(sink, tree, REMARK.what, REMARK.known, REMARK.required)
    when, say = foreign(sink, found.get("when"), "when"), text(sink, found.get("say"), "say")
    return RemarkRule(when, say) if when and say else None
