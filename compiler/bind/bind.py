"""Bind: layout files and a side's text become a BoundSide, every number resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.compiler.bind.absent import absent, noted
from kvplan.compiler.bind.caches import SHARE, stored, with_shares
from kvplan.compiler.bind.key import side_key
from kvplan.compiler.bind.mesh import mesh_sizes, workers
from kvplan.compiler.bind.require import check_requirements
from kvplan.compiler.bound import BoundSide, BoundWorker
from kvplan.compiler.paging.paging import override_keys, paged
from kvplan.compiler.paging.rings import check_rings
from kvplan.compiler.side.options import Env, split_options
from kvplan.compiler.side.text import parse_side, unknown, whole
from kvplan.dsl.lang.evaluate import filled
from kvplan.dsl.model import Engine, Model

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

OTHER_KEYS = ("engine", "groups", "blocks", "layers", "without")


def bind(library: Library, model: Model, text: str) -> BoundSide:
    """The side `text` of `model`. Raises BadInput (S…), Refused (C…) or DslError."""
    given = parse_side(text)
    engine = library.engine(given.pop("engine", library.default_engine))
    sizes = mesh_sizes(engine, given)
    env = split_options(engine.options, given, {**model.values, **sizes})
    why = absent(model, engine, env, given.get("without"))
    kept = [cache for name, cache in sorted(model.caches.items()) if name not in why]
    plain = tuple(stored(library.kind(cache.kind), cache, engine, env, lambda: library.storages) for cache in kept)
    _check_keys(engine, given, [*OTHER_KEYS, *sizes, *engine.options, *override_keys(engine, plain)])
    caches = tuple(with_shares(plain, given, sizes))
    env["listed"] = sum(bool(tensor.shares) for cache in caches for tensor in cache.tensors)
    check_requirements(engine, model, caches, env)
    side = _side(engine, model, sizes, env, given)
    found = paged(replace(side, caches=caches), engine, env, given)
    check_requirements(engine, model, caches, found.env, found.caches)
    check_rings("", found.side)
    prefix = () if engine.name == library.default_engine else (f"engine={engine.name}",)
    key = side_key(engine, found.side, found.env, found.changed, given, model.drafts)
    notes = (*found.side.notes, *noted(why))
    return replace(found.side, key=",".join((*prefix, key)), notes=notes, absent=tuple(why.items()))


def _check_keys(engine: Engine, given: Mapping[str, str], known: list[str]) -> None:
    for key in given:
        if key not in known and not key.startswith(SHARE):
            raise unknown("side key", key, [name for name in known if "." not in name or "." in key])


def _side(engine: Engine, model: Model, sizes: Mapping[str, int], env: Env, given: Mapping[str, str]) -> BoundSide:
    """The side with its workers, still without caches."""
    grid: tuple[BoundWorker, ...] = workers(engine, sizes, model, env, given.get("layers"))
    blocks = whole("blocks", given["blocks"], 1) if "blocks" in given else None
    copies, at = filled(engine.copies, env), tuple(sizes.items())
    return BoundSide("", engine.name, model.name, at, copies, (), (), grid, blocks=blocks)
