"""An engine's conditions: meshes and options that it cannot run are refused with the engine's own sentence."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.compiler.bound import BoundCache
from kvplan.compiler.errors import Refused
from kvplan.compiler.header import ranges
from kvplan.compiler.options import Env
from kvplan.dsl.diagnostics import DslError
from kvplan.dsl.engines import MEASURED
from kvplan.dsl.expr import evaluate, names
from kvplan.dsl.model import Engine, Model, Require

MOST = 33


def check_requirements(engine: Engine, model: Model, caches: Sequence[BoundCache], env: Env) -> None:
    """Check every condition whose names `env` knows by now. Raises Refused (C110)."""
    for rule in engine.require:
        if rule.kind is None:
            _check(engine, model, rule, env)
            continue
        for cache in (cache for cache in caches if cache.kind == rule.kind):
            _check(engine, model, rule, {**env, **cache.env})


def _check(engine: Engine, model: Model, rule: Require, env: Env) -> None:
    if not names(rule.that) <= env.keys() or evaluate(rule.that, env) is True:
        return
    said = rule.say
    for name in sorted(env):
        said = said.replace("{" + name + "}", str(env[name]))
    values = ", ".join(f"{name} = {env[name]}" for name in sorted(names(rule.that)))
    help = f"{rule.that.text} is false with {values}{_holds(engine, rule, env)}"
    raise Refused("C110", f"{model.name} on {engine.name}: {said}", help)


def _holds(engine: Engine, rule: Require, env: Env) -> str:
    """The sizes of a mesh axis with which the condition holds, where nothing else in it depends on the mesh."""
    axes = {*engine.mesh.workers, *engine.mesh.derived} & names(rule.that)
    if names(rule.that) & {*MEASURED, *engine.derive}:
        return ""
    found = {axis: [n for n in range(1, MOST) if _is_true(rule, {**env, axis: n})] for axis in sorted(axes)}
    told = [f"{axis} = {ranges(sizes)}" for axis, sizes in found.items() if sizes]
    return f"; it holds with {' or '.join(told)}" if told else ""


def _is_true(rule: Require, env: Env) -> bool:
    try:
        return evaluate(rule.that, env) is True
    except DslError:
        return False
