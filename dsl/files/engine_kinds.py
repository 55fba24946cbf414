"""The parts of an engine file about kinds: requirements, storage, block sizes, replaced kinds, dumps.

`check_kinds` reports all their errors, for which it reads every kind. Without it each part is read when its kind is
used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from kvplan.dsl.files.documents import described, nearest_name, params_of
from kvplan.dsl.files.lazy import raising
from kvplan.dsl.files.storages import read_storages
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import Expr, Storage
from kvplan.dsl.rules.params import WANTED
from kvplan.dsl.rules.rule import parse_rules
from kvplan.dsl.schema.engine import INSTEAD, DumpRules, Engine, Instead
from kvplan.dsl.schema.fields import check_names, check_sentence, entries, guarded, placeholders
from kvplan.dsl.schema.kind import WHOSE, Kind, Rule
from kvplan.dsl.schema.names import ALIKE, MEASURED, PAGED, PLACED, WORDS
from kvplan.dsl.schema.requirement import REQUIRED_OF, Requirement
from kvplan.dsl.schema.shapes import EXPRESSION, NameShape
from kvplan.dsl.text.diagnostics import Sink, nearest
from kvplan.dsl.text.yaml_reader import Named, Tree, YamlList, YamlScalar

# The kinds that an engine file may refer to.
Kinds = Mapping[str, Kind]
# A name for conditions of `serve` beside options and mesh axes: whether the engine decodes.
DECODES = "decodes"
# The same for requirements about a cache: its `needs` round the end of a request down to a multiple of `whole` tokens.
WHOLE = "whole"
BYTES = "a number of bytes is expected"


def side_names(engine: Engine) -> set[str]:
    """The names that a side and a model define: options, whether they are given, mesh sizes, words of the model."""
    return {*engine.options, *given_words(engine.options).values(), *engine.mesh.workers, *engine.mesh.derived, *WORDS}


def engine_names(engine: Engine) -> set[str]:
    """The names that all expressions of an engine may use: those of a side, derived values, measured values."""
    return side_names(engine) | {*engine.derive, *MEASURED}


def check_kinds(sink: Sink, engine: Engine, kinds: Kinds) -> None:
    """Report all errors in an engine's rules for kinds: unknown kinds and storages (K008), unknown names (E005), and
    the errors of the kinds that it names."""
    known, axes = engine_names(engine), {*engine.mesh.workers, *engine.mesh.derived}
    for each in engine.serve.require if engine.serve else ():
        _check_requirement(
            sink, each, {*axes, *engine.options, DECODES, *({WHOLE} if each.kinds else ())}, kinds, measured=()
        )
    for name in engine.probed.kinds:
        described(sink, "kind", name, kinds)
    for each in engine.require:
        _check_requirement(sink, each, known, kinds)
    for each in engine.expect:
        _check_requirement(sink, each, {*WORDS}, kinds, measured=())
    _check_by_cache(sink, engine.groups.page, {*known, *PAGED}, kinds)
    _check_by_cache(sink, engine.stride, {*known, *PAGED, *ALIKE, *PLACED}, kinds)
    _check_by_cache(sink, engine.memory, side_names(engine), kinds, "a memory is expected")
    for whose, expr in engine.kernels.items():
        kind = described(sink, "kind", whose, kinds) if whose in kinds else None
        _check_by_cache(sink, {whose: expr}, {*axes, *WORDS, *(kind.params if kind else ())}, kinds, WANTED["sizes"])
    _check_storage(sink, engine, kinds)
    for parts in (engine.own, engine.instead):
        for about in parts:
            guarded(sink, partial(parts.__getitem__, about))
    if dump := engine.dump:
        guarded(sink, lambda: dump_rules(dump, kinds))


def _check_requirement(
    sink: Sink, rule: Requirement, known: set[str], kinds: Kinds, measured: Collection[str] = (*PAGED, *ALIKE)
) -> None:
    """Report unknown kinds and names; `measured` are further names known for a cache."""
    about = [described(sink, "kind", name, kinds) for name in rule.kinds if name not in REQUIRED_OF.words]
    names = {*known, *measured} if rule.kinds else known
    # A parameter is known only if all kinds of the rule have it; for caches of a store none is.
    params = [{*kind.params} for kind in about if kind]
    common = set.intersection(*params) if params and len(about) == len(rule.kinds) else set()
    common |= {*given_words(common).values()}
    check_names(sink, rule.that, names | common)
    check_sentence(sink, rule.say, names | common)


def _check_by_cache(sink: Sink, given: Named[Expr], known: set[str], kinds: Kinds, wanted: str = BYTES) -> None:
    """Report unknown names in rules by kind, store or `default`, and rules for anything else (K008)."""
    for whose, expr in given.items():
        check_names(sink, expr, known, wanted)
        _check_whose(sink, whose, kinds)


def _check_whose(sink: Sink, key: YamlScalar, kinds: Kinds) -> None:
    """Report a key that is no kind, store or `default` (K008)."""
    if key not in kinds and key not in WHOSE.words:
        message, help = f"'{key}' is neither a kind, a store nor default", nearest_name(key, kinds, WHOSE.words)
        sink.add("K008", message, key.span, help=help)


def _check_storage(sink: Sink, engine: Engine, kinds: Kinds) -> None:
    """Report rules for anything but a kind or store, unknown options in them, and storages that a kind lacks."""
    given: Named[YamlScalar] = engine.storage
    for whose, rule in given.items():
        _check_whose(sink, whose, kinds)
        check_sentence(sink, rule, engine.options)
        kind = described(sink, "kind", whose, kinds) if whose in kinds and not placeholders(rule) else None
        known = {*kind.storage, *entries(Sink(), engine.written("own", whose), "own")} if kind else set()
        if kind and rule not in known:
            help = nearest(rule, sorted(known))
            sink.add("K008", f"kind '{kind.name}' has no storage '{rule}'", rule.span, help=help)


def own_storages(engine: Engine, given: Named[Named[Tree]], name: str, kinds: Kinds) -> dict[str, Storage]:
    """The engine's own storage expressions for one kind, over the tensors of all its records. Raises DslError."""
    kind = raising(lambda sink: described(sink, "kind", _written(given, name), kinds))
    if kind is None:
        return {}
    known = engine_names(engine) | {*kind.params}
    return raising(lambda sink: read_storages(sink, given[name], kind.every_tensor, known, kind.fragments))


def stored_instead(engine: Engine, given: Named[Tree], name: str, kinds: Kinds) -> tuple[Instead, ...]:
    """The rules by which the engine stores another kind in place of this one. Raises DslError."""
    key, tree, known = _written(given, name), given[name], side_names(engine)
    rules = tree.items if isinstance(tree, YamlList) else (tree,)
    read = raising(lambda sink: [_instead(sink, key, rule, known, kinds) for rule in rules])
    return tuple(rule for rule in read if rule is not None)


def _written(given: Named[object], name: str) -> YamlScalar:
    """The key `name` of a mapping, with its place."""
    found: YamlScalar = next(key for key in given if key == name)
    return found


def _instead(sink: Sink, name: YamlScalar, tree: Tree, known: set[str], kinds: Kinds) -> Instead | None:
    what = f"what is stored for '{name}'"
    chosen = NameShape("kind").read(sink, entries(sink, tree, what).get("kind"), "kind")
    kind, other = (described(sink, "kind", each, kinds) if each is not None else None for each in (name, chosen))
    if kind is None or (chosen is not None and other is None):
        return None
    params = other.params if other else {}
    required = [param.name for param in params.values() if param.default is None]
    rule = INSTEAD.read(sink, tree, what, params, required)
    names = {*known, *kind.params}
    trees = {param: rule.given[param] for param in params if param in rule.given}
    exprs = {param: EXPRESSION.read(sink, value, f"'{param}'") for param, value in trees.items()}
    for expr in (rule.when, *exprs.values(), *(each.that for each in rule.needs)):
        check_names(sink, expr, names)
    for each in rule.needs:
        check_sentence(sink, each.say, names)
    if (beside := rule.word("beside")) is not None:
        described(sink, "kind", beside, kinds)
    found = {param: expr for param, expr in exprs.items() if expr is not None}
    return replace(rule, kind=other.name if other else "", params=found)


def dump_rules(dump: DumpRules, kinds: Kinds) -> tuple[Rule, ...]:
    """The rules that recognise a layer's cache from its dump. Raises DslError."""
    tree, what = dump.written("caches"), "a rule of a dump"
    return raising(lambda sink: parse_rules(sink, tree, what, partial(params_of, sink, kinds)))
