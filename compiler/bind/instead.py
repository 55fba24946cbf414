"""A model as an engine stores it: some caches become caches of another kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.compiler.bind.mesh import mesh_sizes
from kvplan.compiler.errors import Refused
from kvplan.compiler.side.options import Env, read_option, value_of
from kvplan.dsl.lang.evaluate import filled
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import Expr, Number, SizeSet, Text, Value
from kvplan.dsl.schema.engine import Engine, Instead
from kvplan.dsl.schema.model import Cache, Model

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


def as_stored(library: Library, engine: Engine, model: Model, given: Mapping[str, str]) -> Model:
    """Return `model` with its caches replaced by the kinds that the engine stores instead. Raises Refused (C110)."""
    if not any(cache.kind in engine.instead for cache in model.caches.values()):
        return model
    read = {name: read_option(engine.options[name], text) for name, text in given.items() if name in engine.options}
    flags = {word: name in read for name, word in given_words(engine.options).items()}
    env: Env = {**model.words, **mesh_sizes(engine, given), **flags, **read}
    caches = {name: _stored(library, engine, model, cache, env) for name, cache in model.caches.items()}
    return replace(model, caches={name: cache for name, cache in caches.items() if cache is not None})


def _stored(library: Library, engine: Engine, model: Model, cache: Cache, env: Env) -> Cache | None:
    """Return the cache as the engine stores it, None if it does not."""
    kinds = {other.kind for other in model.caches.values()}
    rules = [rule for rule in engine.instead.get(cache.kind, ()) if not rule.beside or rule.beside in kinds]
    if not rules:
        return cache
    params = library.kind(cache.kind).params
    defaults = {
        name: param.default for name, param in {**engine.options, **params}.items() if param.default is not None
    }
    exprs = {**{name: expr for name, expr in defaults.items() if name in params or name not in env}, **cache.params}
    outer = {name: value for name, value in env.items() if name not in params}
    rule = next((rule for rule in rules if value_of(rule.when, exprs, outer) is True), None)
    if rule is None:
        return cache
    _check(engine, model, rule, exprs, outer)
    if not rule.kind:
        return None
    found = {name: _constant(expr, value_of(expr, exprs, outer)) for name, expr in rule.params.items()}
    return replace(cache, kind=rule.kind, params=found)


def _check(engine: Engine, model: Model, rule: Instead, exprs: Mapping[str, Expr], env: Env) -> None:
    for each in rule.needs:
        if value_of(each.that, exprs, env) is not True:
            values = {name: value_of(exprs[name], exprs, env) for name in each.that.names if name in exprs}
            said = f"{model.name} on {engine.name}: {filled(each.say, {**env, **values})}"
            raise Refused("C110", said, f"{each.that.text} is false")


def _constant(expr: Expr, value: Value | SizeSet) -> Expr:
    """Return an expression with the constant value `value`."""
    assert not isinstance(value, SizeSet)
    number = isinstance(value, int) and not isinstance(value, bool)
    tree = (
        Number(int(value), expr.span) if number else Text(value if isinstance(value, bool) else str(value), expr.span)
    )
    return Expr(str(value), tree, expr.span)
