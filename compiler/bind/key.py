"""The canonical text of a side: only what it needs to say, aliases resolved, in one order. Digests never use it."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.compiler.bind.memory import memory_words
from kvplan.compiler.bind.mesh import stages
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.side.keys import SHARE
from kvplan.compiler.side.options import Env
from kvplan.dsl.lang.evaluate import evaluate, filled
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.kind import Param
from kvplan.dsl.text.diagnostics import as_written


def side_key(
    engine: Engine, side: BoundSide, env: Env, changed: Mapping[str, int], given: Mapping[str, str], drafts: int
) -> str:
    """Return for example `tp=4,kv_dtype=fp8,kernel_block=16`. It always names the innermost worker axis, and of the
    options only those that are given. The last stage has `drafts` draft layers."""
    sizes = dict(side.sizes)
    inner = engine.mesh.workers[-1]
    axes = [inner, *reversed(engine.mesh.workers[:-1]), *engine.mesh.derived]
    words = [f"{axis}={sizes[axis]}" for axis in axes if sizes[axis] != 1 or axis == inner]
    words += [f"{name}={as_written(env[name])}" for name in engine.options if name in given]
    words += [f"{name}={value}" for name, value in changed.items()]
    words += _shares(side)
    words += memory_words(side.caches, engine, env)
    words += _cut(filled(engine.mesh.layers, env), side, drafts)
    form = filled(engine.groups.form, env)
    words += [f"groups={given['groups']}"] if given.get("groups", form) != form else []
    words += [f"without={'+'.join(sorted(given['without'].split('+')))}"] if "without" in given else []
    return ",".join(words)


def _shares(side: BoundSide) -> list[str]:
    """Return `share.CACHE.AXIS=3+5` for each axis whose listed shares are not proportional."""
    listed = {(c.name, axis): counts for c in side.caches for t in c.tensors for axis, counts in t.shares}
    return [f"{SHARE}{cache}.{axis}={'+'.join(map(str, n))}" for (cache, axis), n in sorted(listed.items())]


def _cut(rule: str, side: BoundSide, drafts: int) -> list[str]:
    """Return `layers=31+30` if the engine's rule would cut the pipeline otherwise; draft layers do not count."""
    *others, last = dict.fromkeys(worker.layers for worker in side.workers)
    cut = (*others, range(last.start, last.stop - drafts))
    if cut == stages(rule, cut[-1].stop, len(cut)):
        return []
    return ["layers=" + "+".join(str(len(layers)) for layers in cut)]


def is_usual(option: Param, env: Env) -> bool:
    """Whether an option has its default value under `env`."""
    return option.default is not None and env[option.name] == evaluate(option.default, env)
