"""Derive the values of an engine's rules for every cache of a side, before and after its pages are made equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kvplan.compiler.bound import BoundCache, BoundSide, BoundWorker
from kvplan.compiler.errors import Refused
from kvplan.compiler.paging.measured import ACCEPTED, grid, of_cache, page
from kvplan.compiler.paging.pool import PagePool, PooledCache, pooled
from kvplan.compiler.side.kernels import accepted, common
from kvplan.compiler.side.options import Env, number, settle, value_of
from kvplan.dsl.lang.nodes import Expr, SizeSet, Value
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.grouped import grouped

Over = Mapping[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """The inputs of an engine's rules. `workers` has one worker for every set of holdings; `pools` says whether caches
    share the blocks of one pool according to what each needs."""

    engine: Engine
    side: BoundSide
    workers: Sequence[BoundWorker]
    env: Env
    pools: bool


@dataclass(frozen=True, slots=True)
class DerivedValues:
    """All derived values: for the whole side (`env`), for each cache, and the pool of pages of each memory."""

    env: Env
    caches: Mapping[str, Env]
    pools: Mapping[str, PagePool]


def derived(facts: RuleInputs, over: Over) -> DerivedValues:
    """Derive all values; an entry of `over` (`tokens`, `tokens.NAME`) replaces its rule.

    Raises Refused (C114, C116, C118, C138).
    """
    known = {c.name: {**_cache_values(facts, c), **_overrides_of(over, c.name)} for c in facts.side.caches}
    pools = _pools(facts, known) if facts.pools else {}
    shapes = {"shapes": max((_shapes(facts, pool) for pool in pools.values()), default=1)}
    caches = {
        c.name: _with_derived(facts.engine, {**known[c.name], **shapes, **_pool_values(pools.get(c.memory), c.name)})
        for c in facts.side.caches
    }
    main = _main(facts.side, known)
    plain = {**_cache_values(facts, main), **_overrides_of(over, None), **shapes}
    # A side without token caches is paged the way its first cache is pooled.
    memory = next((c.memory for c in (main, *facts.side.caches) if c), "")
    env = {**plain, **_pool_values(pools.get(memory), main.name if main else None)}
    return DerivedValues(_with_derived(facts.engine, env), caches, pools)


def _cache_values(facts: RuleInputs, cache: BoundCache | None) -> Env:
    """Return the values that rules may use before pages are made equal; `cache` is None for a side without caches."""
    sizes = {ACCEPTED: _accepted(facts, cache)} if facts.engine.kernels else {}
    return {**facts.env, **of_cache(facts.side, facts.workers, cache), **sizes}


def _accepted(facts: RuleInputs, cache: BoundCache | None) -> SizeSet:
    """Return the sizes that the kernels of all caches with the same needs accept; for a state the default rule's."""
    paged = [other for other in facts.side.caches if other.store == "tokens"]
    alike = [other for other in paged if cache in paged and other.needs == cache.needs]
    sets = {other.name: accepted(facts.engine, other.kind, {}, {**facts.env, **other.env}) for other in alike}
    return common(facts.engine, sets or {"": accepted(facts.engine, "default", {}, facts.env)})


def _overrides_of(over: Over, cache: str | None) -> Env:
    """Return the overrides for a cache; its own win over those for all caches."""
    found: Env = {key: value for key, value in over.items() if "." not in key}
    mine = {key.partition(".")[0]: value for key, value in over.items() if key.partition(".")[2] == cache}
    return {**found, **mine}


def _main(side: BoundSide, known: Mapping[str, Env]) -> BoundCache | None:
    """Return the cache that pages the side as a whole: the widest, if possible of those that need all tokens."""
    tokens = [cache for cache in side.caches if cache.store == "tokens"]
    widths = {cache.name: int(str(known[cache.name]["token_bytes"])) for cache in tokens}
    return max(tokens, key=lambda cache: (cache.needs.keep is None, widths[cache.name]), default=None)


def _pools(facts: RuleInputs, known: Mapping[str, Env]) -> dict[str, PagePool]:
    """Return the pool of pages of each memory."""
    rule = facts.engine.groups
    inside = rule.inside is not None and bool(known) and _holds(facts.engine, rule.inside, facts.env)
    every = grouped((cache.memory, _entry(facts, cache, known[cache.name])) for cache in facts.side.caches)
    return {memory: pooled(entries, inside) for memory, entries in every.items()}


def _entry(facts: RuleInputs, cache: BoundCache, env: Env) -> PooledCache:
    rule = facts.engine.groups
    tokens = _tokens(facts.engine, cache, env) if cache.store == "tokens" else 0
    least = rule.page.get(cache.kind) or rule.page.get(cache.store) or rule.page.get("default")
    size = _number(cache, "page", _value(facts.engine, least, env)) if least else 0
    rigid = rule.rigid is not None and _holds(facts.engine, rule.rigid, env)
    return PooledCache(cache, tokens, max(size, page(facts.side, facts.workers, cache, tokens)), rigid)


def _tokens(engine: Engine, cache: BoundCache, env: Env) -> int:
    """Return the tokens of a block before pages are made equal: by the side's text, or else by the rule."""
    rule = engine.groups.block or engine.derive["tokens"]
    tokens = _number(cache, "tokens", env["tokens"] if "tokens" in env else _value(engine, rule, env))
    for tensor in cache.tensors:
        if tokens < 1 or tokens % tensor.tokens_per_row:
            said = f"{tensor.name} of {cache.name!r} has a row per {tensor.tokens_per_row} tokens, a block has {tokens}"
            raise Refused("C116", said, f"use a multiple of {tensor.tokens_per_row}")
    return tokens


def _number(cache: BoundCache, what: str, value: Value | SizeSet) -> int:
    return number(value, 0, f"{what} of {cache.name!r}", "a number of tokens or bytes", "correct the engine's rule")


def _pool_values(pool: PagePool | None, name: str | None) -> Env:
    """Return the values that rules may use once pages are made equal."""
    entry = next((e for e in pool.entries if e.cache.name == name), None) if pool else None
    if pool is None or entry is None:
        return {"own_page": 0, "shared_page": pool.page if pool else 0, "fully_allocated": False}
    return {"own_page": entry.page, "shared_page": pool.page, "fully_allocated": name in pool.promoted}


def _shapes(facts: RuleInputs, pool: PagePool) -> int:
    """Count the different pages by heads, rows and bytes."""
    return len({(*grid(facts.side, facts.workers, e.cache, e.tokens), e.page) for e in pool.entries})


def _value(engine: Engine, expr: Expr, env: Env) -> Value | SizeSet:
    """Evaluate an expression with only the derived values that it needs. Raises Refused (C118)."""
    return _or_refuse(engine, lambda: value_of(expr, engine.derive, env))


def _holds(engine: Engine, expr: Expr, env: Env) -> bool:
    """Whether a condition is true, or a number other than 0. Raises Refused (C114, C118)."""
    value = _value(engine, expr, env)
    if not isinstance(value, int):
        raise Refused("C114", f"{expr.text} comes out as {value!r}, not as a condition", "correct the engine's rule")
    return bool(value)


def _with_derived(engine: Engine, env: Env) -> Env:
    """Add the engine's derived values to `env`. Raises Refused (C118) if one has no value for this side."""
    return _or_refuse(engine, lambda: settle(engine.derive, env))


def _or_refuse(engine: Engine, make: Callable[[], T]) -> T:
    try:
        return make()
    except DslError as error:
        first = error.diagnostics[0]
        # The values help the author of an engine's file; a user who chose a block needs to know what to choose instead.
        values = ", ".join(f"{name} = {value}" for name, value in first.values)
        said = f"{engine.name} cannot derive its blocks: {first.message}"
        raise Refused("C118", said, first.help or f"the values are {values}") from None
