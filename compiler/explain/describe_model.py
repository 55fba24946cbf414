"""A model in plain values: its caches, with their numbers on a side without special options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import Expr, SizeSet, Value
from kvplan.dsl.schema.kind import Kind, KindVariant, TensorSpec
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.stored_layers import stored_layers
from kvplan.dsl.text.diagnostics import DslError

Plain = dict[str, Any]
Env = Mapping[str, Value | SizeSet]


def describe_model(model: Model, kinds: Mapping[str, Kind], outer: Env) -> Plain:
    """Describe a model's caches and their kinds. Expressions without a value under `outer` stay as written.

    Layers in `bare` store nothing; `undeclared` are those whose file does not say so. `stores` has every tensor
    with its condition, `default` those that exist under `outer`; `records` are the alternatives that other options
    select.
    """
    return {
        "model": model.name,
        "title": model.title,
        "doc-ref": model.doc_ref,
        "layers": model.layers,
        "stored": stored_layers(model),
        "bare": list(model.bare),
        "undeclared": list(model.undeclared),
        "values": dict(model.values),
        "caches": [_cache(cache, kinds[cache.kind], outer) for cache in model.caches.values()],
    }


def _cache(cache: Cache, kind: Kind, outer: Env) -> Plain:
    env = _env(cache, kind, outer)
    defaults = {n: p.default for n, p in kind.params.items() if n not in cache.params and p.default is not None}
    record = _record(kind, env)
    stored = {spec.name: spec for spec in record.tensors.values() if spec.when is None or _value(spec.when, env)}
    return {
        "cache": cache.name,
        "kind": cache.kind,
        "layers": list(cache.layers),
        "optional": cache.optional,
        "params": {name: expr.text for name, expr in cache.params.items()},
        "defaults": {name: _shown(expr, env) for name, expr in defaults.items()},
        "needs": _needs(cache, kind, env),
        "length": kind.length,
        "ring": _shown(kind.ring, env) if kind.ring else None,
        "default": {name: _tensor(spec, env) for name, spec in stored.items()},
        "stores": {spec.name: f"{_tensor(spec, {})}{_when(spec)}" for spec in record.tensors.values()},
        "records": [_variant(variant) for variant in kind.variants if variant.name != record.variant],
        "about": kind.title,
        "per": kind.store,
    }


def _record(kind: Kind, env: Env) -> Kind:
    """Return the kind with the record that is selected, as far as that is known."""
    return next((kind.as_variant(each) for each in kind.variants if _value(each.when, env)), kind)


def _variant(variant: KindVariant) -> Plain:
    """Describe a record that other options select."""
    tensors = {spec.name: f"{_tensor(spec, {})}{_when(spec)}" for spec in variant.tensors.values()}
    return {"record": variant.name, "about": variant.doc, "when": variant.when.text, "stores": tensors}


def _env(cache: Cache, kind: Kind, outer: Env) -> Env:
    """Return the values for the kind's expressions, as far as they are known; its own parameters hide other names."""
    given = {name: value for name, expr in cache.params.items() if (value := _value(expr, outer)) is not None}
    waiting = {n: p.default for n, p in kind.params.items() if n not in cache.params and p.default is not None}
    hidden = {n for n in kind.params if n not in waiting or n not in waiting[n].names}
    flags = {word: name in cache.params for name, word in given_words(kind.params).items()}
    env = {name: value for name, value in outer.items() if name not in hidden} | flags | given
    while ready := [name for name, expr in waiting.items() if expr.names <= env.keys()]:
        found = {name: _value(waiting.pop(name), env) for name in ready}
        env |= {name: value for name, value in found.items() if value is not None}
    return env


def _value(expr: Expr, env: Env) -> Value | SizeSet | None:
    """Return the value of an expression, None if it has none."""
    try:
        return evaluate(expr, env) if expr.names <= env.keys() else None
    except DslError:
        return None


def _shown(expr: Expr, env: Env) -> object:
    """Return a number or a word, or the expression as written."""
    value = _value(expr, env)
    return expr.text if value is None or isinstance(value, SizeSet) else value


def _tensor(spec: TensorSpec, env: Env) -> str:
    """Return `[head 8, token, dim 128] bf16`."""
    token = f"row of {_shown(spec.tokens_per_row, env)} tokens" if spec.tokens_per_row else "token"
    axes = (f"{name} {_shown(expr, env)}" if expr else token for name, expr in spec.axes)
    return f"[{', '.join(axes)}] {_shown(spec.dtype, env)}"


def _when(spec: TensorSpec) -> str:
    return f" when {spec.when.text}" if spec.when else ""


def _needs(cache: Cache, kind: Kind, env: Env) -> object:
    """Return `all`, or the limits by name without those that are 0; None for a state, which is read whole."""
    needs = cache.needs or kind.needs
    found = {name: _shown(expr, env) for name, expr in (needs.limits if needs else ())}
    limited = any(found.get(name, 0) != 0 for name in ("window", "chunk", "whole"))
    if kind.store == "state":
        return None
    return {name: value for name, value in found.items() if value != 0} if limited else "all"
