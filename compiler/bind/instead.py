"""A model as an engine stores it: some caches become caches of another kind."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvplan.compiler.bind.mesh import mesh_sizes
from kvplan.compiler.bind.options import option_values
from kvplan.compiler.errors import Refused
from kvplan.compiler.side.options import Env, read_option, value_of
from kvplan.dsl.lang.evaluate import filled
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import Expr, Number, SizeSet, Text, Value
from kvplan.dsl.schema.engine import Engine, Instead
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.schema.names import WORDS
from kvplan.dsl.text.diagnostics import listed

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


# Begins the condition under which a side stores a cache.
WHEN = "when "
# Begins the condition under which an engine stores nothing for a kind.
BECAUSE = "because "


@dataclass(frozen=True, slots=True)
class Replaced:
    """A cache that an engine stores as `now`, None if it stores none, because `rule` holds for `reason`."""

    cache: Cache
    now: Cache | None
    rule: Instead
    reason: str

    def note(self, engine: str) -> str:
        """Say what the engine stores instead; empty if only numbers of the kind differ."""
        if self.now is None:
            return f"{engine} does not store {self.cache.name}, because {self.reason}"
        if self.now.kind == self.cache.kind:
            return ""
        params = ", ".join(f"{name} {expr.text}" for name, expr in self.now.params.items())
        kinds = f"{self.now.kind} ({params}), not {self.cache.kind}"
        return f"{engine} stores {self.cache.name} as {kinds}, because {self.reason}"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model as `asked` for, and with its caches as an engine stores them, some of them `replaced`."""

    asked: Model
    model: Model
    replaced: tuple[Replaced, ...] = ()

    def notes(self, engine: Engine, but: Container[str] = ()) -> tuple[str, ...]:
        """Return a sentence on each cache, `but` some, that the engine stores as another kind, or not at all."""
        said = (each.note(engine.name) for each in self.replaced if each.cache.name not in but)
        return tuple(note for note in said if note)

    @property
    def dropped(self) -> dict[str, str]:
        """Return the caches that the engine does not store, each with the condition that holds."""
        return {each.cache.name: f"{BECAUSE}{each.rule.when.text}" for each in self.replaced if each.now is None}


def as_stored(library: Library, engine: Engine, model: Model, given: Mapping[str, str]) -> StoredModel:
    """Return `model` with its caches replaced by the kinds that the engine stores instead. Raises Refused (C110)."""
    if not any(cache.kind in engine.instead for cache in model.caches.values()):
        return StoredModel(model, model)
    read = {name: read_option(engine.options[name], text) for name, text in given.items() if name in engine.options}
    flags = {word: name in read for name, word in given_words(engine.options).items()}
    env: Env = {**model.words, **mesh_sizes(engine, given), **flags, **read}
    every = (_replaced(library, engine, model, cache, env) for cache in model.caches.values())
    found = {str(each.cache.name): each for each in every if each}
    now = {name: found[name].now if name in found else cache for name, cache in model.caches.items()}
    kept = {name: cache for name, cache in now.items() if cache is not None}
    return StoredModel(model, replace(model, caches=kept), tuple(found.values()))


def deciding(engine: Engine, kind: str) -> list[tuple[str, str]]:
    """Return the options that may decide what an engine stores for a kind, each with each of its values."""
    asked = {name for rule in engine.instead.get(kind, ()) for name in rule.when.names}
    return [(name, value) for name in sorted(asked & engine.options.keys()) for value in engine.options[name].values]


def stored_values(library: Library, engine: Engine, model: Model, given: Mapping[str, str]) -> Env:
    """Return the option values of a model as its engine stores it. Raises what `as_stored` and `option_values` do."""
    return option_values(library, engine, as_stored(library, engine, model, given).model, given)


def _replaced(library: Library, engine: Engine, model: Model, cache: Cache, env: Env) -> Replaced | None:
    """Return the cache as the engine stores it, None if that is as the model says."""
    kinds = {other.kind for other in model.caches.values()}
    rules = [rule for rule in engine.instead.get(cache.kind, ()) if not rule.beside or rule.beside in kinds]
    if not rules:
        return None
    params = library.kind(cache.kind).params
    defaults = {
        name: param.default for name, param in {**engine.options, **params}.items() if param.default is not None
    }
    exprs = {**{name: expr for name, expr in defaults.items() if name in params or name not in env}, **cache.params}
    outer = {name: value for name, value in env.items() if name not in params}
    rule = next((rule for rule in rules if value_of(rule.when, exprs, outer) is True), None)
    if rule is None:
        return None
    _check_given(engine, model, cache, rule, {**exprs, **outer})
    _check(engine, model, rule, exprs, outer)
    reason = _reason(engine, model, rule, env)
    if not rule.kind:
        return Replaced(cache, None, rule, reason)
    found = {name: _constant(expr, value_of(expr, exprs, outer)) for name, expr in rule.params.items()}
    return Replaced(cache, replace(cache, kind=rule.kind, params=found), rule, reason)


def _reason(engine: Engine, model: Model, rule: Instead, env: Env) -> str:
    """Return the rule's condition, with the values of the model's file that decide it if the side does not."""
    options = [engine.options[name] for name in rule.when.names if name in engine.options and name not in env]
    asked = frozenset[str]().union(*(option.default.names for option in options if option.default))
    words = [f"{name} {value}" for name, value in model.values.items() if name in asked]
    return f"{rule.when.text} for {listed(words, 'and')}" if words else rule.when.text


def _check_given(engine: Engine, model: Model, cache: Cache, rule: Instead, known: Container[str]) -> None:
    """Refuse (C110) a rule that reads a word which the model's file does not give."""
    lacking = [word for word in WORDS if word in rule.read and word not in known]
    if lacking:
        said = f"{model.name} on {engine.name}: it stores {rule.kind} in place of cache {str(cache.name)!r}"
        words = listed(lacking, "and")
        raise Refused("C110", f"{said}, and the layout lacks {words}", f"give {words} in {cache.span.path}")


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
