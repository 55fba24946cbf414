"""A side's options: the given ones, and defaults, which may depend on the model's caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from kvplan.compiler.bind.mesh import mesh_sizes
from kvplan.compiler.side.kernels import accepted, common
from kvplan.compiler.side.options import Env, split_options
from kvplan.dsl.lang.nodes import SizeSet
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.kind import Kind, Param
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.schema.names import KERNELS
from kvplan.dsl.text.diagnostics import listed

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


def option_values(library: Library, engine: Engine, model: Model, given: Mapping[str, str]) -> Env:
    """Return a model's words, the mesh sizes and every option. Raises BadInput (S…), Refused (C114, C118), DslError."""
    env: Env = {**model.words, **mesh_sizes(engine, given)}
    if engine.kernels:
        env[KERNELS] = _kernels(library, engine, model, split_options(_before(engine), given, env))
    return split_options(engine.options, given, env)


def _before(engine: Engine) -> dict[str, Param]:
    """Return the options that the engine's `kernels` may use: those whose defaults do not depend on `kernels`."""
    late, options = {KERNELS}, engine.options
    while more := {n for n, option in options.items() if option.default and option.default.names & late} - late:
        late |= more
    return {name: option for name, option in options.items() if name not in late}


def _kernels(library: Library, engine: Engine, model: Model, env: Env) -> SizeSet:
    """Return the block sizes that the attention kernels of every cache accept. Raises Refused (C114, C118)."""
    kinds = {cache.name: library.kind(cache.kind) for cache in model.caches.values()}
    paged = [cache for cache in model.caches.values() if kinds[cache.name].store != "state"]
    sets = {str(cache.name): _accepted(engine, kinds[cache.name], cache, env) for cache in paged}
    return common(engine, sets or {"": accepted(engine, "default", {}, env)}, _unlike(paged, sets))


def _unlike(caches: Sequence[Cache], sets: Mapping[str, SizeSet]) -> str:
    """Say which parameters differ between two caches of one kind that share no block size; empty if none do."""
    pairs = ((a, b) for a, b in combinations(caches, 2) if a.kind == b.kind and not sets[a.name] & sets[b.name])
    for a, b in pairs:
        texts = [{name: expr.text for name, expr in cache.params.items()} for cache in (a, b)]
        names = sorted(name for name in {**a.params, **b.params} if texts[0].get(name) != texts[1].get(name))
        if names:
            return f"correct {listed(names, 'and')} of {a.name} and {b.name}, of kind {a.kind}, in {a.name.span.path}"
    return ""


def _accepted(engine: Engine, kind: Kind, cache: Cache, env: Env) -> SizeSet:
    params = {name: param.default for name, param in kind.params.items() if param.default is not None}
    outer = {name: value for name, value in env.items() if name not in kind.params}
    return accepted(engine, kind.name, {**params, **cache.params}, outer)
