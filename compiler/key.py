"""The canonical text of a side: what is not default, aliases resolved, in one order. Digests never use it."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.options import Env, filled, settle
from kvplan.compiler.pipeline import stages
from kvplan.compiler.stored import SHARE
from kvplan.dsl.model import Engine, Sizes, Value


def side_key(engine: Engine, side: BoundSide, env: Env, changed: Mapping[str, int], given: Mapping[str, str]) -> str:
    """For example `tp=4,kv_dtype=fp8,kernel_block=16`. The innermost worker axis is always named."""
    sizes = dict(side.sizes)
    inner = engine.mesh.workers[-1]
    axes = [inner, *reversed(engine.mesh.workers[:-1]), *engine.mesh.derived]
    words = [f"{axis}={sizes[axis]}" for axis in axes if sizes[axis] != 1 or axis == inner]
    defaults = settle(
        {name: p.default for name, p in engine.options.items() if p.default is not None}, _foundation(engine, env)
    )
    words += [f"{n}={show(env[n])}" for n in engine.options if env[n] != defaults.get(n)]
    words += [f"{name}={value}" for name, value in changed.items()]
    words += _shares(side)
    words += _cut(filled(engine.mesh.layers, env), side)
    form = filled(engine.groups.form, env)
    words += [f"groups={given['groups']}"] if given.get("groups", form) != form else []
    words += [f"without={'+'.join(sorted(given['without'].split('+')))}"] if "without" in given else []
    return ",".join(words)


def _shares(side: BoundSide) -> list[str]:
    """`share.CACHE.AXIS=3+5` where shares are listed otherwise than in proportion."""
    listed = {(c.name, axis): counts for c in side.caches for t in c.tensors for axis, counts in t.shares}
    return [f"{SHARE}{cache}.{axis}={'+'.join(map(str, n))}" for (cache, axis), n in sorted(listed.items())]


def _cut(rule: str, side: BoundSide) -> list[str]:
    """`layers=31+30` where the pipeline is cut otherwise than by the engine's rule."""
    cut = tuple(dict.fromkeys(worker.layers for worker in side.workers))
    if cut == stages(rule, cut[-1].stop, len(cut)):
        return []
    return ["layers=" + "+".join(str(len(layers)) for layers in cut)]


def show(value: Value | Sizes) -> str:
    if isinstance(value, Sizes):
        return "+".join(str(size) for size in value.only) if value.only else f"multiples({value.step})"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _foundation(engine: Engine, env: Env) -> Env:
    """What option defaults may use besides each other."""
    return {name: value for name, value in env.items() if name not in engine.options and name not in engine.derive}
