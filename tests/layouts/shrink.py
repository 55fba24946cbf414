"""A model made small: few layers, short vectors; heads, which are what sharding is about, as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import Expr, Number
from kvplan.dsl.library import Library
from kvplan.dsl.model import Cache, Kind, Model

LAYERS = 6
# Where a format has a scale per 16 elements, what is divided stays a multiple of 16.
LEAST, LIMIT = 16, 32


def shrunk(library: Library, model: Model) -> Model:
    """`model` with at most LAYERS layers of every cache, with vectors of at most LIMIT elements, windows of at most 64
    tokens and chunks of at most 256; its draft layers stay last."""
    caches = {name: _cache(library.kind(cache.kind), cache) for name, cache in model.caches.items()}
    kept = sorted({layer for cache in caches.values() for layer in cache.layers})
    number = {layer: index for index, layer in enumerate(kept)}
    drafts = sum(layer >= model.layers for layer in kept)
    small = {name: replace(c, layers=tuple(number[n] for n in c.layers)) for name, c in caches.items()}
    return replace(model, layers=len(kept) - drafts, drafts=drafts, caches=small)


def _cache(kind: Kind, cache: Cache) -> Cache:
    layers = cache.layers if len(cache.layers) <= LAYERS else (*cache.layers[: LAYERS - 1], cache.layers[-1])
    return replace(cache, layers=layers, params=_params(kind, cache.params))


def _params(kind: Kind, params: Mapping[str, Expr]) -> dict[str, Expr]:
    """The parameters, with those smaller that are the length of a vector, a window or a chunk."""
    lengths, most = _lengths(kind), {"window": 64, "chunk": 256}
    numbers = {name: expr.tree.value for name, expr in params.items() if isinstance(expr.tree, Number)}
    small = {name: min(value, most[name]) for name, value in numbers.items() if name in most}
    small |= {name: _short(value) for name, value in numbers.items() if name in lengths}
    return {**params, **{name: parse_expr(str(value)) for name, value in small.items()}}


def _short(value: int) -> int:
    while value > LIMIT and value % (2 * LEAST) == 0:
        value //= 2
    return value


def _lengths(kind: Kind) -> set[str]:
    """Parameters that are nothing but the extent of an axis that no mesh axis shares."""
    axes = [(axis, expr, spec) for spec in kind.tensors.values() for axis, expr in spec.axes]
    return {
        expr.tree.id
        for axis, expr, spec in axes
        if axis not in spec.split and expr is not None and hasattr(expr.tree, "id")
    }
