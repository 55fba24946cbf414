"""One cache of a model with every size resolved: its tensors, and the storage expression that its engine uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from kvplan.compiler.bound import BoundCache, BoundTensor
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.placement.shards import proportional
from kvplan.compiler.side.keys import SHARE
from kvplan.compiler.side.options import Env, settle
from kvplan.compiler.side.text import nearest, unknown, whole
from kvplan.dsl.lang.dtypes import SIZES, canonical
from kvplan.dsl.lang.dtypes import size as dtype_size
from kvplan.dsl.lang.evaluate import evaluate, filled, is_true
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.lang.nodes import SizeSet, Storage, Value
from kvplan.dsl.lang.storage import leaves
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.fields import placeholders
from kvplan.dsl.schema.kind import Kind, NeedsRule, TensorSpec
from kvplan.dsl.schema.model import Cache
from kvplan.dsl.text.diagnostics import listed
from kvplan.plan.types import ALL
from kvplan.plan.types import Needs as Needed

# The most items of one axis: the proof has a bit for each, and no real cache comes near.
MOST_ITEMS = 1 << 22


def stored(kind: Kind, cache: Cache, engine: Engine, env: Env, known: Callable[[], Collection[str]]) -> BoundCache:
    """Resolve a cache before paging; `known` returns the names of all storage expressions.

    Raises BadInput (S012..S014, S018), Refused (C121).
    """
    given = {name: evaluate(expr, env) for name, expr in cache.params.items()}
    defaults = {n: p.default for n, p in kind.params.items() if n not in given and p.default is not None}
    flags = {word: name in given for name, word in given_words(kind.params).items()}
    own = settle(defaults, {**_without(env, kind.params), **flags, **given})
    record = kind.stored_as(own)
    there = (spec for spec in record.tensors.values() if spec.when is None or is_true(spec.when, own))
    tensors = tuple(_tensor(spec, own, partial(_no_dtype, kind, engine, env)) for spec in there)
    if not tensors:
        message = f"cache {cache.name!r} has no tensors: the condition of each is false"
        raise BadInput("S012", message, f"give the cache itself a `when`, or correct those of kind {kind.name!r}")
    _check_split_axes(cache.name, tensors)
    needs = _needs(cache.name, cache.needs or kind.needs, own)
    storage = _storage(cache.name, kind, record, engine, env, known)
    _check_place(cache.name, tensors, storage)
    # A ring is one way to store tokens; another engine may store the same tokens without it.
    store = "tokens" if kind.store == "ring" else kind.store
    ring = _tokens(cache.name, "ring", evaluate(kind.ring, own)) if kind.ring else 0
    return BoundCache(
        cache.name, kind.name, store, cache.layers, tensors, storage, own, 0, None, cache.optional,
        needs=needs, length=kind.length, ring=ring,
    )  # fmt: skip


def with_shares(caches: tuple[BoundCache, ...], given: Mapping[str, str], sizes: Mapping[str, int]) -> list[BoundCache]:
    """Add the shares that a side lists to its caches: `share.CACHE.AXIS=3+5`. Raises BadInput (S005, S017, S034)."""
    listed = {key: text for key, text in given.items() if key.startswith(SHARE)}
    known = {f"{SHARE}{c.name}.{axis}": (c, axis) for c in caches for t in c.tensors for axis, _ in t.split}
    for key in listed:
        if key not in known:
            raise unknown("side key", key, known)
    for cache in caches:
        _check_mesh(cache, sizes)
    return [_with_shares(cache, listed, sizes) for cache in caches]


def _check_mesh(cache: BoundCache, sizes: Mapping[str, int]) -> None:
    """Refuse an axis that is split over something that is no axis of the engine's mesh. Raises BadInput (S034)."""
    for axis, over in (pair for tensor in cache.tensors for pair in tensor.split):
        if over not in sizes:
            message = f"cache {cache.name!r} (kind {cache.kind!r}): axis {axis!r} is split over {over!r}, no mesh axis"
            raise BadInput("S034", message, nearest(over, sorted(sizes)))


def _with_shares(cache: BoundCache, listed: Mapping[str, str], sizes: Mapping[str, int]) -> BoundCache:
    def shares(tensor: BoundTensor) -> tuple[tuple[str, tuple[int, ...]], ...]:
        keys = [(axis, f"{SHARE}{cache.name}.{axis}", over) for axis, over in tensor.split]
        given = [(axis, key, sizes[over]) for axis, key, over in keys if key in listed]
        found = [(axis, _counts(key, listed[key], dict(tensor.axes)[axis], count)) for axis, key, count in given]
        return tuple((axis, counts) for axis, counts in found if counts != proportional(sum(counts), len(counts)))

    return replace(cache, tensors=tuple(replace(tensor, shares=shares(tensor)) for tensor in cache.tensors))


def _counts(key: str, text: str, items: int, workers: int) -> tuple[int, ...]:
    counts = tuple(whole(key, piece) for piece in text.split("+"))
    if len(counts) != workers or sum(counts) != items:
        said = f"{key}={text} does not share {items} items over {workers} workers"
        raise BadInput("S017", said, f"write {workers} numbers that make {items} together")
    return counts


def _without(env: Env, params: Mapping[str, object]) -> Env:
    """Return `env` without the names that a kind's own parameters hide."""
    return {name: value for name, value in env.items() if name not in params}


def _tensor(spec: TensorSpec, env: Env, no_dtype: Callable[[str, str], BadInput]) -> BoundTensor:
    dtype = evaluate(spec.dtype, env)
    if not isinstance(dtype, str):
        raise BadInput("S012", f"tensor {spec.name!r}: {spec.dtype.text!r} gives {dtype!r}, not an element type")
    if canonical(dtype) not in SIZES:
        raise no_dtype(spec.name, dtype)
    axes = tuple(
        (name, 0 if expr is None else _extent(spec.name, name, evaluate(expr, env))) for name, expr in spec.axes
    )
    unit = evaluate(spec.tokens_per_row, env) if spec.tokens_per_row else 1
    return BoundTensor(
        spec.name,
        axes,
        canonical(dtype),
        dtype_size(dtype),
        tuple(spec.split.items()),
        _extent(spec.name, "token", unit),
    )


def _no_dtype(kind: Kind, engine: Engine, env: Env, tensor: str, dtype: str) -> BadInput:
    """Return the error (S012) for an element format of other kinds, with the option that asks for it, if any."""
    asked = next((option for option in engine.options.values() if env.get(option.name) == dtype), None)
    if asked is None:
        return BadInput(
            "S012", f"tensor {tensor!r} cannot store {dtype!r}, no element type", nearest(dtype, sorted(SIZES))
        )
    said = f"{asked.name}={dtype} is a format that kind {kind.name} does not have"
    why = f"its tensor {tensor!r} has plain elements"
    return BadInput(
        "S012", f"{said}: {why}", f"use {listed([value for value in asked.values if canonical(value) in SIZES])}"
    )


def _extent(tensor: str, axis: str, value: Value | SizeSet) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_ITEMS:
        message = f"tensor {tensor!r}: axis {axis!r} has {value!r} items"
        raise BadInput("S012", message, f"sizes are whole numbers from 1 to {MOST_ITEMS:,}")
    return value


def _check_split_axes(cache: str, tensors: tuple[BoundTensor, ...]) -> None:
    """Check that a split axis has one extent and one share per cache, so that one interval is a worker's part."""
    for axis in sorted({axis for tensor in tensors for axis, _ in tensor.split}):
        split = [(dict(t.axes)[axis], dict(t.split).get(axis, "nothing")) for t in tensors if axis in dict(t.axes)]
        for said in ([f"has {extent} items" for extent, _ in split], [f"is split over {over}" for _, over in split]):
            differing = list(dict.fromkeys(said))
            if len(differing) > 1:
                message = f"cache {cache!r}: split axis {axis!r} {' and '.join(differing)}"
                raise BadInput("S013", message, "give different axes different names")


def _needs(cache: str, needs: NeedsRule | None, env: Env) -> Needed:
    if needs is None:
        return ALL
    given = {word: _tokens(cache, word, evaluate(expr, env)) for word, expr in needs.limits}
    window, retain, chunk, sink, whole = (given.get(word, 0) for word in ("window", "retain", "chunk", "sink", "whole"))
    if window and chunk:
        said = f"cache {cache!r} needs a window of {window} and a chunk of {chunk} tokens"
        raise BadInput("S018", said, "give one of them")
    if not window and not chunk:
        return Needed(whole=max(1, whole))
    return Needed(window - 1 + retain if window else None, chunk or None, sink, max(1, whole))


def _tokens(cache: str, word: str, value: Value | SizeSet) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput("S018", f"cache {cache!r}: {word} is {value!r}, not a number of tokens", "write 0 for none")
    return value


def _check_place(cache: str, tensors: tuple[BoundTensor, ...], storage: Storage) -> None:
    """Refuse (C121) a storage without a place for an existing tensor; it may leave out one whose condition is false."""
    placed = {leaf.tensor for _, items in storage.parts for leaf in leaves(items)}
    homeless = [tensor.name for tensor in tensors if tensor.name not in placed]
    if homeless:
        said = f"storage {storage.name!r} has no place for {', '.join(homeless)} of cache {cache!r}"
        raise Refused("C121", said, "choose another storage, or another record")


def _storage(
    cache: str, kind: Kind, record: Kind, engine: Engine, env: Env, known: Callable[[], Collection[str]]
) -> Storage:
    """Return the storage expression that an engine has for a cache, which is stored as a `record` of its kind."""
    rule = engine.storage.get(kind.name) or engine.storage.get(kind.store) or engine.storage["default"]
    name = filled(rule, env)
    mine = {**record.storage, **engine.own.get(kind.name, {})}
    if name in mine:
        return mine[name]
    if name not in known() and not any(name in own for own in engine.own.values()):
        said = f"engine {engine.name!r} is asked for a storage {name!r}, which no kind has"
        raise BadInput("S014", said, nearest(name, sorted(mine)))
    stored_as = f" for the record {record.variant!r}" if name in kind.storage else ""
    said = f"engine {engine.name!r} cannot store cache {cache!r}: kind {kind.name!r} has no storage {name!r}{stored_as}"
    other = "".join(f"give another {option}, or " for option in placeholders(rule))
    own = f"in an engine's file name one for {kind.name!r} under `storage`, or add one under `own`"
    raise Refused("C121", said, f"it has {listed(sorted(mine), 'and')}: {other}{own}")
