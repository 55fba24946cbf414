"""Paging: blocks, kernel blocks, strides, groups and turns of tokens, from the values that an engine derives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from kvplan.compiler.bound import BoundCache, BoundSide, BoundWorker, Stride
from kvplan.compiler.errors import Refused
from kvplan.compiler.groups import form
from kvplan.compiler.options import Env, filled, settle
from kvplan.compiler.own import holding
from kvplan.compiler.place import check_chains, local_sizes, page_bytes
from kvplan.compiler.side import whole
from kvplan.dsl.diagnostics import DslError
from kvplan.dsl.expr import evaluate, names
from kvplan.dsl.model import Engine


@dataclass(frozen=True, slots=True)
class Paged:
    """A paged side, the values derived for its widest cache, and what a side's text overrode (key -> value)."""

    side: BoundSide
    env: Env
    changed: Mapping[str, int]


def override_keys(engine: Engine, caches: tuple[BoundCache, ...]) -> list[str]:
    """The side keys that override a derived value: for all caches (`tokens`), or for one (`tokens.NAME`).

    Turns of tokens are the same for all caches, so that what they are made of has no value for one.
    """
    own = [name for name in engine.derive if engine.mesh.chunk is None or name not in names(engine.mesh.chunk)]
    return [*engine.derive, *(f"{name}.{cache.name}" for name in own for cache in caches)]


def paged(side: BoundSide, engine: Engine, env: Env, given: Mapping[str, str]) -> Paged:
    """The side with blocks, strides, groups and turns. Raises BadInput (S004, S006), Refused (C11x)."""
    measured = {**env, **_measures(side)}
    over = {key: whole(key, given[key], 1) for key in override_keys(engine, side.caches) if key in given}
    full = _derived(engine, {**measured, **_for_cache(side, None), **_of(over, None)})
    envs = {c.name: _cache_env(engine, side, c, measured, over) for c in side.caches}
    caches = tuple(_paged(cache, engine, envs[cache.name]) for cache in side.caches)
    ways, chunk = _turns(engine, side, full)
    rule = replace(
        engine.groups,
        form=given.get("groups", filled(engine.groups.form, env)),
        assign=filled(engine.groups.assign, env),
    )
    bound = replace(side, caches=caches, groups=form(rule, caches), ways=ways, chunk=chunk)
    changed, notes = _changed(engine, side, measured, over)
    return Paged(_checked(replace(bound, notes=notes)), full, changed)


def _cache_env(engine: Engine, side: BoundSide, cache: BoundCache, measured: Env, over: Mapping[str, int]) -> Env:
    """Everything derived for one cache; a state is paged by what its widest neighbour has."""
    whose = cache if cache.store == "tokens" else None
    return _derived(engine, {**measured, **_for_cache(side, whose), **_of(over, cache.name)})


def _for_cache(side: BoundSide, cache: BoundCache | None) -> Env:
    """What expressions may ask of the cache being paged; of the widest one where it is None."""
    if cache is None:
        return {"token_bytes": _widest(side), "window": 0, "chunk": 0}
    window = 0 if cache.needs.keep is None else cache.needs.keep + 1
    return {"token_bytes": _row_bytes(side, cache), "window": window, "chunk": cache.needs.chunk or 0}


def _of(over: Mapping[str, int], cache: str | None) -> Env:
    """The overrides that count for a cache: its own before those for all."""
    found: Env = {key: value for key, value in over.items() if "." not in key}
    mine = {key.partition(".")[0]: value for key, value in over.items() if key.partition(".")[2] == cache}
    return {**found, **mine}


def _changed(
    engine: Engine, side: BoundSide, measured: Env, over: Mapping[str, int]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The overrides that differ from what would have been derived without them, and a note on each."""
    found, notes = {}, []
    for key, value in over.items():
        name, _, cache = key.partition(".")
        rest = {other: v for other, v in over.items() if other != key}
        whose = next((c for c in side.caches if c.name == cache and c.store == "tokens"), None)
        derived = _derived(engine, {**measured, **_for_cache(side, whose), **_of(rest, cache or None)})[name]
        if value != derived:
            found[key] = value
            notes.append(f"{key}={value} given; derived {derived}")
    return found, tuple(notes)


def _paged(cache: BoundCache, engine: Engine, env: Env) -> BoundCache:
    rules = engine.stride
    rule = rules.get(cache.kind) or rules.get(cache.store) or rules.get("default")
    stride = Stride(rule, env) if rule else None
    if cache.store != "tokens":
        return replace(cache, stride=stride, env={**cache.env, "kernel_block": env["kernel_block"]})
    tokens, kernel = _blocks(cache.name, env)
    return replace(cache, tokens=tokens, kernel=kernel, stride=stride, env={**cache.env, "kernel_block": kernel})


def _blocks(cache: str, env: Env) -> tuple[int, int]:
    """(tokens of a logical block, tokens of a kernel block)."""
    tokens, kernel = _count(cache, env, "tokens"), _count(cache, env, "kernel_block")
    if tokens % kernel:
        said = f"kernel_block={kernel} does not divide the logical block of {tokens} tokens of {cache!r}"
        raise Refused("C113", said, f"use a divisor of {tokens}")
    ratio = _count(cache, env, "ratio")
    if tokens != ratio * kernel:
        said = f"ratio={ratio} of {kernel} tokens is not the logical block of {tokens} of {cache!r}"
        raise Refused("C113", said, "leave it out")
    return tokens, kernel


def _count(cache: str, env: Env, name: str) -> int:
    value = env.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        said = f"{name} of {cache!r} comes out as {value!r}, not a number of tokens or blocks"
        raise Refused("C114", said, f"give {name}=… in the side, or mend the engine's rule")
    return value


def _turns(engine: Engine, side: BoundSide, env: Env) -> tuple[int, int]:
    """How many workers take turns of tokens, and of how many."""
    ways = prod(dict(side.sizes)[axis] for axis in engine.mesh.tokens)
    if ways == 1:
        return 1, 1
    chunk = evaluate(engine.mesh.chunk, env) if engine.mesh.chunk else 1
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        said = f"a turn of the tokens comes out as {chunk!r}, not a number of tokens"
        raise Refused("C114", said, "mend the chunk of the engine's mesh")
    return ways, chunk


def _derived(engine: Engine, env: Env) -> Env:
    """`env` with the engine's derived values. Raises Refused (C118) where one has no value for this side."""
    try:
        return settle(engine.derive, env)
    except DslError as error:
        first = error.diagnostics[0]
        played = ", ".join(f"{name} = {value}" for name, value in first.values)
        said = f"{engine.name} cannot derive its blocks: {first.message}"
        raise Refused(
            "C118", said, "; ".join(word for word in (first.help, f"in play: {played}" if played else "") if word)
        ) from None


def _measures(side: BoundSide) -> Env:
    """What derived values may ask: bytes per token of the widest layer, the largest state page, how many states."""
    states = [cache for cache in side.caches if cache.store != "tokens"]
    largest = max((page_bytes(local_sizes(side, w, c, 1)) for c in states for w in _kinds_of(side)), default=0)
    return {"states": len(states), "largest_state": largest, "bytes_per_token": _widest(side)}


def _widest(side: BoundSide) -> int:
    return max((_row_bytes(side, cache) for cache in side.caches if cache.store == "tokens"), default=0)


def _row_bytes(side: BoundSide, cache: BoundCache) -> int:
    """Bytes of a token of one layer, on the worker that has most."""
    return max(_local_bytes(side, worker, cache) for worker in _kinds_of(side))


def _local_bytes(side: BoundSide, worker: BoundWorker, cache: BoundCache) -> int:
    held = [(holding(side, tensor, worker), tensor) for tensor in cache.tensors]
    return sum(prod(b - a for a, b in h.values()) * t.size // t.unit for h, t in held)


def _kinds_of(side: BoundSide) -> list[BoundWorker]:
    """One worker for every set of holdings."""
    tensors = [tensor for cache in side.caches for tensor in cache.tensors]
    unlike = {str([[b - a for a, b in holding(side, t, w).values()] for t in tensors]): w for w in side.workers}
    return list(unlike.values())


def _checked(side: BoundSide) -> BoundSide:
    check_rows(side)
    for cache in side.caches:
        for worker in _kinds_of(side):
            check_chains(local_sizes(side, worker, cache, 1))
    return side


def check_rows(side: BoundSide) -> None:
    """A row of several tokens lies in one kernel block of one worker. Raises Refused (C116)."""
    for cache, tensor in [(c, t) for c in side.caches for t in c.tensors]:
        for what, tokens in (("a kernel block", cache.kernel), ("a turn", side.chunk if side.ways > 1 else 0)):
            if cache.store == "tokens" and tokens % tensor.unit:
                said = f"{tensor.name} of {cache.name!r} has a row per {tensor.unit} tokens, {what} has {tokens}"
                raise Refused("C116", said, f"use a multiple of {tensor.unit}")
