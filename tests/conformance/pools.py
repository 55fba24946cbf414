"""Pools that an engine registers, compared with a layout: bytes of a page or state, of which layers, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvplan.compiler.api import side_of
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.dsl.library import Library
from kvplan.plan.planes import Plane, planes

PAGES, STATES, WINDOWS, INDEXES, SCALES = "pages", "mamba", "swa", "dsa", "block_scale"
# The parts of a layer that come after its keys and values.
BEHIND = ("2", "3")
# The engine computes in this type because it was asked to.
DTYPE = "bfloat16"
Json = Mapping[str, Any]


def as_served(config: Json, pool: Json) -> dict[str, object]:
    """A configuration as this engine serves it, as its connector has it: element types are the engine's."""
    side = pool["side"]
    states = {"state_dtype": side.get("recurrent"), "conv_state_dtype": side.get("convolution")}
    inner = {key: _typed(value) for key, value in config.items() if isinstance(value, Mapping)}
    return {**_typed(config), **inner, **{key: word for key, word in states.items() if word}}


def _typed(config: Json) -> dict[str, object]:
    return {**config, **{key: DTYPE for key in ("dtype", "torch_dtype") if key in config}}


def side_text(engine: str, pool: Json) -> str:
    return ",".join([f"engine={engine}", *(f"{name}={value}" for name, value in pool["side"].items())])


def differences(library: Library, model: str, engine: str, pool: Json) -> Iterator[str]:
    """Yield each difference in words. Raises CompileError, DslError for a side that the layout refuses."""
    bound = bind(library, library.model(model), side_text(engine, pool))
    side, _ = side_of(bound)
    found: dict[str, list[Plane]] = {PAGES: []}
    for plane in planes(side.workers[0]):
        found.setdefault(_pool_of(bound, plane, pool), []).append(plane)
    given = {PAGES: pool["pages"], **pool["states"]}
    for name in sorted({*found, *given}):
        yield from _different(name, _in_order(found.get(name, [])), given.get(name, {"items": [], "layers": []}))


def _pool_of(bound: BoundSide, plane: Plane, pool: Json) -> str:
    """The pool in which the engine has a plane."""
    cache = next(cache for cache in bound.caches if cache.name == plane.cache)
    if cache.store == "state":
        return STATES
    if cache.kind == "indexer":
        return INDEXES
    some = cache.needs.keep is not None or cache.needs.chunk is not None
    windows, scales = some and WINDOWS in pool["states"], plane.part in BEHIND
    return f"{SCALES}_{WINDOWS}" if windows and scales else SCALES if scales else WINDOWS if windows else PAGES


def _in_order(every: Sequence[Plane]) -> list[Plane]:
    """All layers of the first part, then those of the next."""
    parts = {plane.part: None for plane in every}
    return [p for part in parts for p in sorted((one for one in every if one.part == part), key=lambda p: p.layer or 0)]


def _different(name: str, ordered: Sequence[Plane], given: Json) -> Iterator[str]:
    items, layers = given["items"], given["layers"]
    if len(items) != len(ordered):
        yield f"buffers of {name}: engine {len(items)}, layout {len(ordered)}"
        return
    for plane, item in zip(ordered, items, strict=True):
        if not plane.page == plane.stride == item:
            yield f"bytes of a page of {plane.name} in {name}: engine {item}, layout {plane.stride}"
    if layers and layers != [plane.layer for plane in ordered]:
        yield f"layers of {name}: engine {layers[:8]}, layout {[plane.layer for plane in ordered][:8]}"
