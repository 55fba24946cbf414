"""The memory of each cache's blocks, from the engine's file or from the side: `memory.CACHE=host`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvplan.compiler.bound import BoundCache
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.side.keys import MEMORY
from kvplan.compiler.side.options import Env
from kvplan.compiler.side.text import nearest, unknown
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.schema.engine import Engine
from kvplan.plan.types import MEMORIES


def with_memory(
    caches: Sequence[BoundCache], engine: Engine, env: Env, given: Mapping[str, str]
) -> tuple[BoundCache, ...]:
    """Return the caches with their memory. Raises BadInput (S005, S009), Refused (C114)."""
    said = {key.removeprefix(MEMORY): value for key, value in given.items() if key.startswith(MEMORY)}
    names = [cache.name for cache in caches]
    for name, value in said.items():
        if name not in names:
            raise unknown("side key", MEMORY + name, [MEMORY + known for known in names])
        if value not in MEMORIES:
            raise BadInput("S009", f"{MEMORY}{name}={value} is not a memory", nearest(value, MEMORIES))
    return tuple(replace(c, memory=said.get(c.name) or by_rule(c, engine, env)) for c in caches)


def by_rule(cache: BoundCache, engine: Engine, env: Env) -> str:
    """Return a cache's memory by its engine's file, empty if the file does not say. Raises Refused (C114)."""
    rule = engine.memory.get(cache.kind) or engine.memory.get(cache.store) or engine.memory.get("default")
    value = evaluate(rule, env) if rule else ""
    if value not in ("", *MEMORIES):
        said = f"`memory` of {engine.name} comes out as {value!r} for {cache.name!r}"
        raise Refused("C114", said, f"correct the engine's file: {', '.join(MEMORIES)}, or '' for none")
    return str(value)


def memory_words(caches: Sequence[BoundCache], engine: Engine, env: Env) -> list[str]:
    """Return `memory.CACHE=host` for each cache whose memory differs from its engine's file."""
    return [f"{MEMORY}{c.name}={c.memory}" for c in caches if c.memory != by_rule(c, engine, env)]
