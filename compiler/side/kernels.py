"""The block sizes that attention kernels accept, by an engine's rules for the kinds of its caches."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.compiler.errors import Refused
from kvplan.compiler.side.options import Env, value_of
from kvplan.dsl.lang.nodes import Expr, SizeSet
from kvplan.dsl.schema.engine import Engine


def accepted(engine: Engine, kind: str, params: Mapping[str, Expr], env: Env) -> SizeSet:
    """Return the block sizes that a cache's kernels accept; `params` are those not in `env`. Raises Refused (C114)."""
    rule = engine.kernels.get(kind) or engine.kernels.get("tokens") or engine.kernels["default"]
    value = value_of(rule, params, env)
    if not isinstance(value, SizeSet):
        raise Refused(
            "C114", f"`kernels` of {engine.name} is {value!r}, not a set of sizes", "correct the engine's file"
        )
    return value


def common(engine: Engine, sets: Mapping[str, SizeSet], unlike: str = "") -> SizeSet:
    """Return the sizes that the kernels of all these caches accept, `sets` by cache name. Raises Refused (C118).

    `unlike` says which caches of one kind a model's file gives different parameters.
    """
    found, *others = sets.values()
    for sizes in others:
        both = found & sizes
        if both is None:
            takes = ", ".join(f"{name}: {sizes}" for name, sizes in sets.items())
            said = f"no block size suits the attention kernels of all caches on {engine.name} ({takes})"
            raise Refused("C118", said, unlike or "correct `kernels` in the engine's file")
        found = both
    return found
