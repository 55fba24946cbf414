"""Bind: layout files and a side's text become a BoundSide, every number resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.groups import form
from kvplan.compiler.key import side_key
from kvplan.compiler.mesh import mesh_sizes, workers
from kvplan.compiler.options import Env, settle, split_options
from kvplan.compiler.own import holding
from kvplan.compiler.place import check_chains, local_sizes, page_bytes
from kvplan.compiler.require import check_requirements
from kvplan.compiler.side import nearest, parse_side, unknown, whole
from kvplan.dsl.diagnostics import DslError
from kvplan.dsl.dtypes import SIZES, canonical
from kvplan.dsl.dtypes import size as dtype_size
from kvplan.dsl.expr import evaluate
from kvplan.dsl.model import Cache, Engine, Kind, Model, Sizes, Storage, TensorSpec, Value

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

OTHER_KEYS = ("engine", "groups", "blocks", "layers")


def bind(library: Library, model: Model, text: str) -> BoundSide:
    """The side `text` of `model`. Raises BadInput (S…), Refused (C…) or DslError."""
    given = parse_side(text)
    engine = library.engine(given.pop("engine", library.default_engine))
    sizes = mesh_sizes(engine, given)
    known = [*OTHER_KEYS, *sizes, *engine.options, *engine.derive]
    for key in given:
        if key not in known:
            raise unknown("side key", key, known)
    grid = workers(engine, sizes, model.layers, given.get("layers"))
    env = split_options(engine.options, given, {**model.values, **sizes})
    side = BoundSide("", engine.name, model.name, tuple(sizes.items()), engine.copies, (), (), grid)
    caches = tuple(_cache(library.kind(c.kind), c, engine, env) for _, c in sorted(model.caches.items()))
    check_requirements(engine, model, caches, env)
    prefix = () if engine.name == library.default_engine else (f"engine={engine.name}",)
    bound = _page(replace(side, caches=caches), engine, model, env, given)
    return replace(bound, key=",".join((*prefix, bound.key)))


def _page(side: BoundSide, engine: Engine, model: Model, env: Env, given: Mapping[str, str]) -> BoundSide:
    """The side with blocks, kernel blocks, strides and groups, from the engine's derived values."""
    measured = {**env, **_measures(side)}
    overrides = {name: whole(name, given[name], 1) for name in engine.derive if name in given}
    full = _derived(engine, {**measured, **overrides})
    derived = {name: _derived(engine, {**measured, **_without(overrides, name)})[name] for name in overrides}
    changed = {name: value for name, value in overrides.items() if value != derived[name]}
    tokens, kernel, ratio = _blocks(full)
    check_requirements(engine, model, side.caches, full)
    caches = tuple(_paged(cache, engine, full, kernel) for cache in side.caches)
    rule = replace(engine.groups, form=given.get("groups", engine.groups.form))
    shared, chunk = _turns(engine, side, full)
    bound = replace(
        side,
        key=side_key(engine, side, full, changed, given),
        caches=caches,
        groups=form(rule, caches, tokens, ratio),
        notes=tuple(f"{name}={value} given; derived {derived[name]}" for name, value in changed.items()),
        tokens_over=shared,
        chunk=chunk,
        blocks=whole("blocks", given["blocks"], 1) if "blocks" in given else None,
    )
    return _checked(bound, tokens, kernel)


def _blocks(env: Env) -> tuple[int, int, int]:
    """(tokens of a logical block, tokens of a kernel block, kernel blocks in a logical one)."""
    tokens, kernel = _count(env, "tokens"), _count(env, "kernel_block")
    if tokens % kernel:
        said = f"kernel_block={kernel} does not divide the logical block of {tokens} tokens"
        raise Refused("C113", said, f"use a divisor of {tokens}")
    ratio = _count(env, "ratio")
    if tokens != ratio * kernel:
        raise Refused("C113", f"ratio={ratio} of {kernel} tokens is not the logical block of {tokens}", "leave it out")
    return tokens, kernel, ratio


def _turns(engine: Engine, side: BoundSide, env: Env) -> tuple[str | None, int]:
    """The mesh axis that tokens are shared out over, if they are, and how many make a turn."""
    axis = engine.mesh.tokens
    if axis is None or dict(side.sizes).get(axis, 1) == 1:
        return None, 1
    chunk = evaluate(engine.mesh.chunk, env) if engine.mesh.chunk else 1
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise Refused("C114", f"a turn of the tokens comes out as {chunk!r}, not a number of tokens")
    return axis, chunk


def _derived(engine: Engine, env: Env) -> Env:
    """`env` with the engine's derived values. Raises Refused (C118) where one has no value for this side."""
    try:
        return settle(engine.derive, env)
    except DslError as error:
        first = error.diagnostics[0]
        played = ", ".join(f"{name} = {value}" for name, value in first.values)
        said = f"{engine.name} cannot derive its blocks: {first.message}"
        raise Refused("C118", said, " with ".join(word for word in (first.help, played) if word)) from None


def _without(overrides: Mapping[str, int], name: str) -> Env:
    return {other: value for other, value in overrides.items() if other != name}


def _count(env: Env, name: str) -> int:
    value = env.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refused("C114", f"{name} comes out as {value!r}, not a number of tokens or blocks")
    return value


def _cache(kind: Kind, cache: Cache, engine: Engine, env: Env) -> BoundCache:
    given = {name: evaluate(expr, env) for name, expr in cache.params.items()}
    defaults = {n: p.default for n, p in kind.params.items() if n not in given and p.default is not None}
    own = settle(defaults, {**_less(env, kind.params), **given})
    tensors = tuple(_tensor(spec, own) for spec in kind.tensors.values() if _exists(spec, own))
    _check_split_axes(cache.name, tensors)
    storage = _storage(kind, engine, own)
    return BoundCache(cache.name, kind.name, kind.store, cache.layers, tensors, storage, own, 0, None, cache.optional)


def _less(env: Env, params: Mapping[str, object]) -> Env:
    """`env` without the names that a kind's own parameters hide, except where a parameter defaults to its own name."""
    return {name: value for name, value in env.items() if name not in params}


def _exists(spec: TensorSpec, env: Env) -> bool:
    return spec.when is None or evaluate(spec.when, env) is True


def _tensor(spec: TensorSpec, env: Env) -> BoundTensor:
    dtype = evaluate(spec.dtype, env)
    if not isinstance(dtype, str):
        raise BadInput("S012", f"tensor {spec.name!r}: {spec.dtype.text!r} gives {dtype!r}, not an element type")
    if canonical(dtype) not in SIZES:
        raise BadInput(
            "S012", f"tensor {spec.name!r} cannot store {dtype!r}, no element type", nearest(dtype, sorted(SIZES))
        )
    axes = tuple(
        (name, 0 if expr is None else _extent(spec.name, name, evaluate(expr, env))) for name, expr in spec.axes
    )
    unit = evaluate(spec.unit, env) if spec.unit else 1
    return BoundTensor(
        spec.name, axes, dtype, dtype_size(dtype), tuple(spec.split.items()), _extent(spec.name, "token", unit)
    )


def _extent(tensor: str, axis: str, value: Value | Sizes) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(
            "S012", f"tensor {tensor!r}: axis {axis!r} has {value!r} items", "sizes are whole numbers from 1"
        )
    return value


def _check_split_axes(cache: str, tensors: tuple[BoundTensor, ...]) -> None:
    """A split axis has one extent per cache, so that one interval says what a worker holds of it."""
    seen: dict[str, int] = {}
    for tensor in tensors:
        for axis in dict(tensor.split):
            extent = dict(tensor.axes)[axis]
            if seen.setdefault(axis, extent) != extent:
                raise BadInput(
                    "S013",
                    f"cache {cache!r}: split axis {axis!r} has {seen[axis]} items and {extent} items",
                    "give unlike axes unlike names",
                )


def _storage(kind: Kind, engine: Engine, env: Env) -> Storage:
    rule = engine.storage.get(kind.name) or engine.storage.get(kind.store) or engine.storage["default"]
    name = rule
    for option in engine.options:
        name = name.replace("{" + option + "}", str(env[option]))
    known = {**kind.storage, **engine.own.get(kind.name, {})}
    if name not in known:
        raise BadInput(
            "S014",
            f"kind {kind.name!r} has no storage {name!r}, which engine {engine.name!r} asks for",
            nearest(name, sorted(known)),
        )
    return known[name]


def _measures(side: BoundSide) -> Env:
    """What derived values may ask: bytes per token of one layer, the largest state page, how many states."""
    states = [cache for cache in side.caches if cache.store != "tokens"]
    largest = max((page_bytes(local_sizes(side, w, c, 1)) for c in states for w in _kinds_of(side)), default=0)
    row = max((_row_bytes(side, w, c) for c in side.caches if c not in states for w in _kinds_of(side)), default=0)
    return {"states": len(states), "largest_state": largest, "bytes_per_token": row}


def _kinds_of(side: BoundSide) -> list[BoundWorker]:
    """One worker for every set of holdings."""
    tensors = [tensor for cache in side.caches for tensor in cache.tensors]
    unlike = {str([[b - a for a, b in holding(side, t, w).values()] for t in tensors]): w for w in side.workers}
    return list(unlike.values())


def _row_bytes(side: BoundSide, worker: BoundWorker, cache: BoundCache) -> int:
    held = [(holding(side, tensor, worker), tensor) for tensor in cache.tensors]
    return sum(prod(b - a for a, b in h.values()) * t.size // t.unit for h, t in held)


def _paged(cache: BoundCache, engine: Engine, env: Env, kernel: int) -> BoundCache:
    stride = evaluate(engine.stride[cache.store], env) if cache.store in engine.stride else None
    if stride is not None and (isinstance(stride, bool) or not isinstance(stride, int)):
        raise Refused("C114", f"the block stride of {cache.name!r} comes out as {stride!r}, not bytes")
    inner = {**cache.env, "kernel_block": kernel}
    return replace(cache, kernel=kernel if cache.store == "tokens" else 0, stride=stride, env=inner)


def _checked(side: BoundSide, tokens: int, kernel: int) -> BoundSide:
    if side.tokens_over and (tokens % side.chunk or (kernel % side.chunk and side.chunk % kernel)):
        raise Refused(
            "C115", f"turns of {side.chunk} tokens do not fit blocks of {tokens} in kernel blocks of {kernel}"
        )
    for cache in side.caches:
        _check_units(cache)
        for worker in _kinds_of(side):
            check_chains(local_sizes(side, worker, cache, 1))
    return side


def _check_units(cache: BoundCache) -> None:
    for tensor in cache.tensors:
        if tensor.unit > 1:
            raise Refused(
                "C116",
                f"{tensor.name} of {cache.name!r} has a row per {tensor.unit} tokens: a range of tokens may cut it",
                "only rows of one token can be moved by token so far",
            )
