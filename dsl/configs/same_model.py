"""Find models that store the same: the same layers with the same kinds and numbers; names of caches do not matter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.dsl.configs.numbers import CORRECT
from kvplan.dsl.files.models import parse_model
from kvplan.dsl.files.static_check import known_values, settled_value
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.rules.rule import LIMIT
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import CHECKPOINT, Cache, Model
from kvplan.dsl.text.diagnostics import DslError, Sink, fault
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import read_text

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

# The word of `checkpoint` that names a model's class. Fine-tuned models rename the other one, their architecture.
MODEL_TYPE = "model_type"


def parsed(library: Library, text: str, name: str, place: SourceSpan) -> Model:
    """The model that a text describes. Raises DslError (F007) at `place` for impossible numbers."""
    sink = Sink()
    try:
        root = read_text(text, Path(f"{name}.yaml")).root
        model = parse_model(sink, root, name, library.references)
    except DslError as error:
        sink.take(error)
    if sink.errors:
        notes = tuple(f"{d.span.text.strip()}: {d.message}" for d in sink.errors)
        raise fault("F007", "its numbers make no layout", place, *notes, help=CORRECT)
    return model


def twins(library: Library, model: Model) -> tuple[str, ...]:
    """The models of the library that store the same, without regard to draft layers."""
    wanted = _stored(library.kinds, model)
    every = ((name, library.models[name]) for name in library.models)
    return tuple(
        name
        for name, other in every
        if MODEL_TYPE not in renamed(model, other) and _stored(library.kinds, other) == wanted
    )


def renamed(model: Model, other: Model) -> tuple[str, ...]:
    """The keys of `checkpoint` that both models give, each another word."""
    both = (key for key in CHECKPOINT.known if key in model.values and key in other.values)
    return tuple(key for key in both if model.values[key] != other.values[key])


def _stored(kinds: Mapping[str, Kind], model: Model) -> tuple[object, ...]:
    # Caches that only draft layers have are left out.
    own = [cache for cache in model.caches.values() if not cache.layers or cache.layers[0] < model.layers]
    # Names of the checkpoint are left out: shipped files have none.
    words = {name: value for name, value in model.values.items() if name not in CHECKPOINT.known}
    caches = sorted((_cache(kinds[cache.kind], cache, model) for cache in own), key=repr)
    return model.layers, model.no_cache.shared, words, caches


def _cache(kind: Kind, cache: Cache, model: Model) -> tuple[object, ...]:
    return cache.kind, cache.layers, params_of(kind, cache, model), conditions_of(kind, cache, model)


def params_of(kind: Kind, cache: Cache, model: Model) -> dict[str, object]:
    """The value of each parameter; the text of its expression if that depends on a side."""
    _, env = known_values(kind, cache, model.values)
    exprs = {name: cache.params.get(name, param.default) for name, param in kind.params.items()}
    return {name: env.get(name, expr.text) for name, expr in exprs.items() if expr is not None}


def conditions_of(kind: Kind, cache: Cache, model: Model) -> dict[str, object]:
    """The values of the keys that decide which tokens and layers of a cache are stored or moved.

    A limit of `needs` is named `needs.window`, for example. One that is 0 limits nothing and is left out.
    """
    needs = cache.needs or kind.needs
    limits = {n: _settled(expr, kind, cache, model) for n, expr in (needs.limits if needs else ())}
    when = cache.when.text if cache.when else "always"
    return {"when": when, "optional": cache.optional, **{f"{LIMIT}{n}": v for n, v in limits.items() if v != 0}}


def _settled(expr: Expr, kind: Kind, cache: Cache, model: Model) -> object:
    """The value of an expression; its text if that depends on a side."""
    value = settled_value(expr, kind, cache, model.values)
    return expr.text if value is None else value
