"""An engine's conditions: meshes and options that it cannot run are refused with its own sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from kvplan.compiler.bound import BoundCache
from kvplan.compiler.errors import Refused
from kvplan.compiler.side.options import Env
from kvplan.dsl.lang.evaluate import evaluate, filled
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.schema.engine import EVEN, Engine
from kvplan.dsl.schema.kind import Kind, KindDoubt
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.schema.names import MEASURED
from kvplan.dsl.schema.requirement import Requirement
from kvplan.dsl.text.diagnostics import DslError, listed, ranges
from kvplan.dsl.text.yaml_reader import YamlScalar

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

MOST = 33
NO_OPTION = (
    "no value of an option changes that: choose another engine, or describe it in an engine file that extends {}"
)
NONE: Mapping[str, Env] = MappingProxyType({})
SPLITS_KEPT = 256
LISTED, UNLIST = (
    "{} on {}: shares of cache {!r} cannot be listed: each worker has an equal share",
    "leave out share.{}.{}",
)


def check_requirements(
    engine: Engine, model: Model, caches: Sequence[BoundCache], env: Env, derived: Mapping[str, Env] = NONE
) -> None:
    """Check every condition whose names are in `env`, or for a cache in `derived`. Raises Refused (C110)."""
    if engine.shares == EVEN:
        _check_unlisted(engine, model, caches)
    every = applied((*engine.require, *_even(engine, caches)), caches, env, derived)
    for rule, known, cache in every:
        if evaluate(rule.that, known) is not True:
            whose = f"cache {cache!r}: " if cache else ""
            said = f"{model.name} on {engine.name}: {whose}{filled(rule.say, known)}"
            raise Refused("C110", said, _help(engine, [one[:2] for one in every], rule, known))


def check_doubted(library: Library, engine: Engine, model: Model, caches: Sequence[BoundCache]) -> None:
    """Refuse (C110) a parameter that an option of the engine sets, and that the cache's kind doubts then.

    `kvplan check` warns (W002) of a parameter that the model's file gives.
    """
    for cache in caches:
        kind = library.kind(cache.kind)
        for doubt in kind.doubts:
            options = _setting(engine, kind, model.caches[cache.name], doubt)
            if options and doubt.when.names <= cache.env.keys() and evaluate(doubt.when, cache.env) is True:
                said = f"{model.name} on {engine.name}: cache {cache.name!r}: {filled(doubt.say, cache.env)}"
                given = listed([f"{name}={cache.env[name]}" for name in options], "and")
                raise Refused("C110", said, f"{given} makes its {doubt.of} so: give another value")


def _setting(engine: Engine, kind: Kind, cache: Cache, doubt: KindDoubt) -> list[str]:
    """Return the engine's options that set the parameter which a doubt is about; none if the model's file gives it."""
    default = kind.params[doubt.of].default if doubt.of and doubt.of not in cache.params else None
    return sorted(default.names & engine.options.keys()) if default else []


def _check_unlisted(engine: Engine, model: Model, caches: Sequence[BoundCache]) -> None:
    for name, axis in ((cache.name, axis) for cache in caches for tensor in cache.tensors for axis, _ in tensor.shares):
        raise Refused("C110", LISTED.format(model.name, engine.name, name), UNLIST.format(name, axis))


def _even(engine: Engine, caches: Sequence[BoundCache]) -> list[Requirement]:
    """Return conditions that every split axis divides evenly, for an engine that has no rule for remainders."""
    if engine.shares != EVEN:
        return []
    split = ((c.name, axis, dict(t.axes)[axis], over) for c in caches for t in c.tensors for axis, over in t.split)
    return [_evenly(*one) for one in dict.fromkeys(split)]


@lru_cache(SPLITS_KEPT)
def _evenly(cache: str, axis: str, items: int, over: str) -> Requirement:
    that = parse_expr(f"{items} % {over} == 0 or {over} % {items} == 0")
    say = f"cache {cache!r}: the {items} items of axis {axis!r} cannot be divided evenly among {over}={{{over}}}"
    return Requirement(that=that, say=YamlScalar(say))


def applied(
    rules: Sequence[Requirement], caches: Sequence[BoundCache], env: Env, derived: Mapping[str, Env] = NONE
) -> list[tuple[Requirement, Env, str]]:
    """Pair every condition with the values it is about: once for each cache of its kinds or stores, with that name."""
    found: list[tuple[Requirement, Env, str]] = []
    for rule in rules:
        mine = [cache for cache in caches if {cache.kind, cache.store} & {*rule.kinds}]
        about = [({**derived.get(c.name, env), **c.env}, c.name) for c in mine] if rule.kinds else [(env, "")]
        found += [(rule, known, name) for known, name in about if rule.that.names <= known.keys()]
    return found


def _help(engine: Engine, every: list[tuple[Requirement, Env]], rule: Requirement, env: Env) -> str:
    """Say which condition is false, and which sizes of each mesh axis satisfy all conditions on the mesh alone."""
    values = ", ".join(f"{name} = {env[name]}" for name in sorted(rule.that.names))
    measured = {*MEASURED, *engine.derive}
    axes = {*engine.mesh.workers, *engine.mesh.derived} & rule.that.names
    plain = [(other, known) for other, known in every if not other.that.names & measured]
    sizes = {axis: _holding(plain, axis) for axis in sorted(axes)} if not rule.that.names & measured else {}
    allowed = [f"{axis} = {ranges(found)}" for axis, found in sizes.items() if found]
    said = f"{rule.that.text} is false with {values}" if values else NO_OPTION.format(engine.name)
    return said + (f"; allowed: {' or '.join(allowed)}" if allowed else "")


def _holding(every: list[tuple[Requirement, Env]], axis: str) -> list[int]:
    return [n for n in range(1, MOST) if all(_is_true(rule, {**env, axis: n}) for rule, env in every)]


def _is_true(rule: Requirement, env: Env) -> bool:
    try:
        return evaluate(rule.that, env) is True
    except DslError:
        return False
