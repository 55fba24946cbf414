"""Model files: which layers have which cache, with which numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from kvplan.dsl.diagnostics import Sink, nearest
from kvplan.dsl.fields import (
    LABEL,
    entries,
    expression,
    fields,
    guarded,
    integer,
    named,
    scalar,
    shape,
    text,
    truth,
)
from kvplan.dsl.model import Cache, Kind, Model, Param
from kvplan.dsl.needs import check_tokens, parse_needs
from kvplan.dsl.nodes import Expr, Value
from kvplan.dsl.params import check_value, checked, dtype_word
from kvplan.dsl.reader import List, Scalar, Table, Tree
from kvplan.dsl.source import Span
from kvplan.dsl.worth import check_worth

KEYS = ("kvplan", "model", "title", "doc", "doc-ref", "match", "dtype", "query_heads", "layers", "caches")
REQUIRED = ("title", "dtype", "layers", "caches")
CACHE_KEYS = ("kind", "layers", "optional", "needs")


@dataclass(frozen=True, slots=True)
class Known:
    """What a model file may refer to: kinds, and the names that a kind's expressions may use besides its own."""

    kinds: Mapping[str, Kind]
    outer: tuple[str, ...]


def parse_model(sink: Sink, root: Table, name: str, span: Span, known: Known) -> Model:
    """A model, with every error in the sink."""
    found = fields(sink, root, "a model", KEYS, REQUIRED)
    layers = integer(sink, found.get("layers"), "layers", 1)
    entries(sink, found.get("match"), "match")
    values = _values(sink, found)
    caches = {}
    for cache, (value, place) in named(sink, found.get("caches"), "caches", LABEL).items():
        caches[cache] = _cache(sink, cache, value, place, layers, known, values)
    title, ref = text(sink, found.get("title"), "title"), text(sink, found.get("doc-ref"), "doc-ref")
    text(sink, found.get("doc"), "doc")
    good = {cache: made for cache, made in caches.items() if made is not None}
    return Model(name, title, ref, layers or 0, values, good, span)


def _values(sink: Sink, found: Mapping[str, Tree]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    dtype = dtype_word(sink, found.get("dtype"), "dtype")
    heads = integer(sink, found.get("query_heads"), "query_heads")
    values |= {"dtype": dtype} if dtype is not None else {}
    return values | ({"query_heads": heads} if heads is not None else {})


def _cache(
    sink: Sink,
    name: str,
    tree: Tree,
    span: Span,
    layers: int | None,
    known: Known,
    values: Mapping[str, Value],
) -> Cache | None:
    kinds = known.kinds
    given = {key.text: value for key, value in entries(sink, tree, f"cache '{name}'").items()}
    chosen = scalar(sink, given.get("kind"), "kind")
    if chosen is None:
        if isinstance(tree, Table) and "kind" not in given:
            sink.add("K002", f"cache '{name}' lacks 'kind'", span, help="add kind: …")
        return None
    if chosen.text not in kinds:
        sink.add("K008", f"unknown kind '{chosen.text}'", chosen.span, help=nearest(chosen.text, kinds))
        return None
    kind = guarded(sink, lambda: kinds[chosen.text])
    if kind is None:
        return None
    found = fields(sink, tree, f"cache '{name}' of kind '{kind.name}'", [*CACHE_KEYS, *kind.params], _required(kind))
    check_tokens(sink, kind.store, f"kind '{kind.name}'", found)
    needs = parse_needs(sink, found.get("needs"), {*kind.params, *known.outer})
    params = {key: _param(sink, kind.params[key], found[key], values) for key in kind.params if key in found}
    good = {key: expr for key, expr in params.items() if expr is not None}
    check_worth(sink, kind, good, values, span, needs)
    held = _layers(sink, found.get("layers"), layers)
    return Cache(name, kind.name, held, good, span, truth(sink, found.get("optional"), "optional"), needs)


def _required(kind: Kind) -> list[str]:
    return ["layers", *(name for name, param in kind.params.items() if param.default is None)]


def _param(sink: Sink, param: Param, tree: Tree, values: Mapping[str, Value]) -> Expr | None:
    before = len(sink.found)
    expr = checked(sink, param, expression(sink, tree, f"'{param.name}'"))
    check_value(sink, param, expr, {"dtype", "query_heads"} | set(values))
    return expr if len(sink.found) == before else None


def _layers(sink: Sink, tree: Tree | None, count: int | None) -> tuple[int, ...]:
    """`all`, or a list of layer numbers from 0, ascending (K012)."""
    if tree is None:
        return ()
    if isinstance(tree, Scalar) and tree.text == "all":
        return tuple(range(count or 0))
    if not isinstance(tree, List) or not tree.items:
        what = "an empty list" if isinstance(tree, List) else shape(tree)
        sink.add("K012", f"layers must be a list of numbers or all, not {what}", tree.span)
        return ()
    numbers = [(number, item.span) for item in tree.items if (number := integer(sink, item, "a layer")) is not None]
    for number, span in numbers:
        if count is not None and number >= count:
            sink.add(
                "K012",
                f"layer {number} of a model with {count} layers",
                span,
                f"layers are numbered from 0 to {count - 1}",
            )
    for (before, _), (number, span) in pairwise(numbers):
        if number <= before:
            fault = "twice" if number == before else f"after layer {before}"
            sink.add(
                "K012", f"layer {number} is listed {fault}", span, help="list layers in ascending order, each once"
            )
    return tuple(number for number, _ in numbers)
