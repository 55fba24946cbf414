"""An engine's conditions: meshes and options that it cannot run are refused with the engine's own sentence."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.compiler.bound import BoundCache
from kvplan.compiler.errors import Refused
from kvplan.compiler.options import Env
from kvplan.dsl.expr import evaluate, names
from kvplan.dsl.model import Engine, Model, Require


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
    raise Refused("C110", f"{model.name} on {engine.name}: {said}", f"{rule.that.text} is false with {values}")
