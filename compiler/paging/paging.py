"""Paging: blocks, kernel blocks, strides, groups and turns of tokens, from values that an engine's rules derive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from kvplan.compiler.bound import BoundCache, BoundSide, BoundWorker, Stride
from kvplan.compiler.errors import Refused
from kvplan.compiler.paging.derive import DerivedValues, Over, RuleInputs, derived
from kvplan.compiler.paging.groups import BY_RETENTION, form
from kvplan.compiler.paging.measured import distinct_workers, of_groups, of_side
from kvplan.compiler.paging.overrides import Overrides, given_values, once, overrides
from kvplan.compiler.paging.rings import wrapped
from kvplan.compiler.placement.place import check_chains, local_sizes
from kvplan.compiler.side.options import Env, number, override_help
from kvplan.dsl.lang.evaluate import evaluate, filled
from kvplan.dsl.schema.engine import Engine, GroupRules

NONE_GIVEN = Overrides({}, (), {})
LEAST = {"page_size_padded": 0, "block_stride_alignment": 1}


@dataclass(frozen=True, slots=True)
class PagedSide:
    """A paged side, its derived values as a whole and per cache, and the overrides in its text."""

    side: BoundSide
    env: Env
    caches: Mapping[str, Env]
    overrides: Overrides


def paged(side: BoundSide, engine: Engine, env: Env, given: Mapping[str, str]) -> PagedSide:
    """Page a side: blocks, strides, groups, turns. Raises BadInput (S004, S006), Refused (C11x, C138)."""
    workers = distinct_workers(side)
    groups = engine.groups
    own = replace(
        groups,
        form=filled(groups.form, env),
        assign=filled(groups.assign, env),
        overlay=filled(groups.overlay, env),
    )
    named = given.get("groups", own.form)
    facts = RuleInputs(engine, side, workers, {**env, **of_side(side, workers)}, own.form == BY_RETENTION)
    over = given_values(engine, side.caches, given)
    bind = once(partial(_bound, facts, own, named))
    found, bound = bind(over)
    made = overrides(facts, bind, over) if over else NONE_GIVEN
    checked = _checked(replace(bound, notes=made.notes), workers)
    return PagedSide(checked, {**found.env, **of_groups(bound)}, found.caches, made)


def _bound(facts: RuleInputs, own: GroupRules, named: str, over: Over) -> tuple[DerivedValues, BoundSide]:
    """Derive all values with the overrides `over`, and the side that they make; `named` is the form of its tables."""
    found = derived(facts, over)
    caches = tuple(_paged(cache, facts.engine, found.caches[cache.name]) for cache in facts.side.caches)
    ways, chunk = _turns(facts.engine, facts.side, found.env)
    groups = form(own, caches, found.pools)
    paged = replace(facts.side, caches=caches, groups=groups, token_shards=ways, interleave_tokens=chunk)
    if named == own.form:
        return found, paged
    stored = tuple(group.members for group in groups)
    return found, replace(paged, groups=form(replace(own, form=named), caches, stored=stored), stored=stored)


def _paged(cache: BoundCache, engine: Engine, env: Env) -> BoundCache:
    rules = engine.stride
    rule = rules.get(cache.kind) or rules.get(cache.store) or rules.get("default")
    stride = Stride(rule, {name: env[name] for name in sorted(rule.names) if name in env}) if rule else None
    cache = replace(
        cache,
        padded=_bytes(cache.name, engine, env, "page_size_padded"),
        align=_bytes(cache.name, engine, env, "block_stride_alignment"),
    )
    if cache.store != "tokens":
        return replace(cache, stride=stride, env={**cache.env, **_kernel(cache.name, env)})
    tokens, kernel = _blocks(cache.name, env)
    ring, env = wrapped(cache, engine, env), {**cache.env, **_kernel(cache.name, env)}
    return replace(cache, tokens=tokens, kernel=kernel, stride=stride, env=env, ring=ring)


def _kernel(cache: str, env: Env) -> Env:
    """Return the values for storage expressions: the kernel block, and the page in it that kernels see, which is the
    block unless the engine derives it."""
    page = _count(cache, env, "kernel_page") if "kernel_page" in env else env["kernel_block"]
    return {"kernel_block": env["kernel_block"], "kernel_page": page}


def _blocks(cache: str, env: Env) -> tuple[int, int]:
    """Return (tokens of a logical block, tokens of a kernel block)."""
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
    return number(env.get(name), 1, f"{name} of {cache!r}", "a number of tokens or blocks", override_help(name))


def _bytes(cache: str, engine: Engine, env: Env, name: str) -> int:
    """Return a derived number of bytes; engines without the rule have the least value."""
    least = LEAST[name]
    value, unit = env[name] if name in engine.derive else least, f"a number of bytes from {least} up"
    return number(value, least, f"{name} of {cache!r}", unit, override_help(name))


def _turns(engine: Engine, side: BoundSide, env: Env) -> tuple[int, int]:
    """Return how many workers take turns of tokens, and the tokens of a turn."""
    ways = prod(dict(side.sizes)[axis] for axis in engine.mesh.tokens)
    if ways == 1:
        return 1, 1
    value = evaluate(engine.mesh.interleave, env) if engine.mesh.interleave else 1
    what, help = "the interleave of the tokens", "correct the interleave of the engine's mesh"
    return ways, number(value, 1, what, "a number of tokens", help)


def _checked(side: BoundSide, workers: Sequence[BoundWorker]) -> BoundSide:
    check_rows(side)
    for cache in side.caches:
        for worker in workers:
            check_chains(local_sizes(side, worker, cache, 1))
    return side


def check_rows(side: BoundSide) -> None:
    """Check that a row of several tokens lies in one kernel block of one worker. Raises Refused (C116)."""
    for cache, tensor in [(c, t) for c in side.caches for t in c.tensors]:
        turn = side.interleave_tokens if side.token_shards > 1 and cache.shared else 0
        for what, tokens in (("a kernel block", cache.kernel), ("a turn", turn)):
            if cache.store == "tokens" and tokens % tensor.tokens_per_row:
                said = (
                    f"{tensor.name} of {cache.name!r} has a row per {tensor.tokens_per_row} tokens, {what} has {tokens}"
                )
                raise Refused("C116", said, f"use a multiple of {tensor.tokens_per_row}")
