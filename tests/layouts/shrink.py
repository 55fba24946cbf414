"""A model made small: few layers, short vectors; heads, which are what sharding is about, as they are.

Thousands of channels are fewer, and as many workers share them evenly as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvplan.compiler.api import Compiled, compile_bound
from kvplan.compiler.bind.bind import bind
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import Expr, Name, Number
from kvplan.dsl.library import Library
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import Model

LAYERS = 4
# Multiples of 16 stay so: formats have a scale per 16 elements. A state has the product of its lengths.
LEAST = 16
LIMITS = {"tokens": 32, "ring": 32, "state": 16}
CHANNELS = 512


def thinned(model: Model) -> Model:
    """`model` with at most LAYERS layers of every cache; its draft layers stay last."""
    layers = {name: _few(cache.layers) for name, cache in model.caches.items()}
    kept = sorted({layer for few in layers.values() for layer in few})
    number = {layer: index for index, layer in enumerate(kept)}
    drafts = sum(layer >= model.layers for layer in kept)
    caches = {
        name: replace(cache, layers=tuple(number[n] for n in layers[name])) for name, cache in model.caches.items()
    }
    return replace(model, layers=len(kept) - drafts, drafts=drafts, caches=caches)


def shrunk(library: Library, model: Model) -> Model:
    """`model` thinned, with short vectors, few channels, windows of at most 64 tokens and chunks of at most 256."""
    caches = thinned(model).caches
    small = {name: replace(c, params=_params(library.kind(c.kind), c.params)) for name, c in caches.items()}
    return replace(thinned(model), caches=small)


def compiled(library: Library, model: Model, prefill: str, decode: str) -> Compiled:
    """A pair of sides of a model that is in no file."""
    return compile_bound(bind(library, model, prefill), bind(library, model, decode))


def _few(layers: tuple[int, ...]) -> tuple[int, ...]:
    return layers if len(layers) <= LAYERS else (*layers[: LAYERS - 1], layers[-1])


def _params(kind: Kind, params: Mapping[str, Expr]) -> dict[str, Expr]:
    """The parameters, with those smaller that are the length of a vector, channels, a window or a chunk."""
    most = {"window": 64, "chunk": 256}
    numbers = {name: expr.tree.value for name, expr in params.items() if isinstance(expr.tree, Number)}
    small = {name: min(value, most[name]) for name, value in numbers.items() if name in most}
    small |= {name: _short(numbers[name], CHANNELS) for name in _extents(kind, split=True) & numbers.keys()}
    small |= {name: _short(numbers[name], LIMITS[kind.store]) for name in _extents(kind, split=False) & numbers.keys()}
    return {**params, **{name: parse_expr(str(value)) for name, value in small.items()}}


def _short(value: int, limit: int) -> int:
    return limit if value > limit and value % LEAST == 0 else value


def _extents(kind: Kind, split: bool) -> set[str]:
    """Parameters that are nothing but the extent of an axis that a mesh axis shares, or that none does."""
    axes = [(axis, expr, spec) for spec in kind.tensors.values() for axis, expr in spec.axes]
    return {
        expr.tree.id
        for axis, expr, spec in axes
        if (axis in spec.split) == split and expr is not None and isinstance(expr.tree, Name)
    }
