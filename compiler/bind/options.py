"""The options of a side: those that are given, and defaults, which may depend on the caches that a model has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvplan.compiler.bind.mesh import mesh_sizes
from kvplan.compiler.errors import Refused
from kvplan.compiler.side.options import Env, split_options, value_of
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import SizeSet, Value
from kvplan.dsl.model import Cache, Engine, Kind, Model
from kvplan.dsl.schema.names import KERNELS

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


def option_values(library: Library, engine: Engine, model: Model, given: Mapping[str, str]) -> Env:
    """A model's words, the sizes of the mesh and every option. Raises BadInput (S…), Refused (C114, C118), DslError."""
    env: Env = {**model.words, **mesh_sizes(engine, given)}
    if engine.kernels:
        env[KERNELS] = _kernels(library, engine, model, env)
    return split_options(engine.options, given, env)


def _kernels(library: Library, engine: Engine, model: Model, env: Env) -> SizeSet:
    """The block sizes that the attention kernels of every cache accept. Raises Refused (C114, C118)."""
    kinds = {cache.name: library.kind(cache.kind) for cache in model.caches.values()}
    paged = [cache for cache in model.caches.values() if kinds[cache.name].store != "state"]
    sets = {cache.name: _accepted(engine, kinds[cache.name], cache, env) for cache in paged}
    found = default_kernels(engine, env) if not sets else next(iter(sets.values()))
    for sizes in sets.values():
        common = found & sizes
        if common is None:
            takes = ", ".join(f"{name}: {sizes}" for name, sizes in sets.items())
            said = f"no block size suits the attention kernels of all caches on {engine.name} ({takes})"
            raise Refused("C118", said, "mend `kernels` in the engine's file")
        found = common
    return found


def _accepted(engine: Engine, kind: Kind, cache: Cache, env: Env) -> SizeSet:
    rule = engine.kernels.get(kind.name) or engine.kernels.get("tokens")
    if rule is None:
        return default_kernels(engine, env)
    params = {name: param.default for name, param in kind.params.items() if param.default is not None}
    outer = {name: value for name, value in env.items() if name not in kind.params}
    return _sizes(engine, value_of(rule, {**params, **cache.params}, outer))


def default_kernels(engine: Engine, env: Env) -> SizeSet:
    """What kernels accept whose kind the engine's file does not name. Raises Refused (C114)."""
    return _sizes(engine, evaluate(engine.kernels["default"], env))


def _sizes(engine: Engine, value: Value | SizeSet) -> SizeSet:
    if not isinstance(value, SizeSet):
        raise Refused("C114", f"`kernels` of {engine.name} is {value!r}, not a set of sizes", "mend the engine's file")
    return value
