"""The layout of an engine of SGLang, found by the served model, compared with the buffers that SGLang registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvplan.compiler.api import side_of
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.integrations.sglang.limits import STATES
from kvplan.integrations.sglang.tables import RequestTables
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.facts import EngineFacts
from kvplan.integrations.shared.served import SHOWN, another_layout, engine_layout, model_layout, side_options
from kvplan.integrations.shared.settings import settings
from kvplan.plan.planes import Plane, planes
from kvplan.plan.types import Side
from kvplan.runtime.memory.arrays import Memory


@dataclass(frozen=True, slots=True)
class Buffers:
    """Buffers of one kind in SGLang's order: by part, and for each part by layer. Sizes are bytes.

    `item` is a page, or a slot of a state. `layers` has the layer of each buffer, or is empty if all layers are there.
    """

    addresses: tuple[int, ...]
    sizes: tuple[int, ...]
    items: tuple[int, ...]
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineBuffers:
    """The buffers that a worker of SGLang's registers: `pages` of tokens, and states by SGLang's component word."""

    pages: Buffers
    states: Mapping[str, Buffers]
    mem_type: str = "DRAM"
    device: int = 0


@dataclass(frozen=True, slots=True)
class ServedLayout:
    """One worker's part of a side, its memory by plane, and the tables of requests.

    With `windows` some layers need only the last tokens of a request. Without a plans directory, plans are compiled
    into the folder `cache`. `settings` have to be equal on both sides of a pair.
    """

    side: Side
    model: str
    model_digest: str
    worker: int
    memory: Mapping[str, Memory]
    tables: RequestTables
    windows: bool
    cache: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def worker_layout(config: ConnectorConfig, facts: EngineFacts, buffers: EngineBuffers) -> ServedLayout:
    """Return the layout of a worker's registered memory.

    Raises ConnectorError (I004 no layout, I005 another layout, I009 no cache, I012), DslError, BadInput or Refused.
    """
    layouts, name, cache = model_layout(config, facts)
    engine = engine_layout(layouts, config.engine, facts)
    options = side_options(config, facts, engine)
    mesh = {axis: str(size) for axis, size in facts.mesh.items()}
    key = ",".join(f"{word}={value}" for word, value in {"engine": engine.name, **mesh, **options}.items())
    bound = bind(layouts, layouts.model(name), key)
    side, digest = side_of(bound)
    worker = _worker(bound, facts.rank)
    memory = memory_of(side, worker, buffers)
    tables = RequestTables(side, tuple(buffers.states))
    about = settings(bound, facts)
    return ServedLayout(side, bound.model, digest, worker, memory, tables, bound.windowed, cache, about)


def _worker(bound: BoundSide, rank: Mapping[str, int]) -> int:
    """Return the worker at this rank. Raises ConnectorError (I008)."""
    if (worker := bound.at(rank)) is not None:
        return worker.number
    at = ", ".join(f"{axis} {number}" for axis, number in rank.items())
    raise ConnectorError("I008", f"no worker of {bound.key} is at {at}", "report it with the engine's parallel sizes")


def memory_of(side: Side, worker: int, buffers: EngineBuffers) -> dict[str, Memory]:
    """Return the memory of each plane of a worker. Raises ConnectorError (I005) with both values if they differ."""
    kept = {group.name for group in side.groups if group.store == "state"}
    every = planes(side.workers[worker])
    paged = [plane for plane in every if plane.group not in kept]
    states = [plane for plane in every if plane.group in kept]
    slots = buffers.states.get(STATES, Buffers((), (), ()))
    pairs = [(_in_order(paged), buffers.pages), (_in_order(states), slots)]
    differences = [text for ordered, given in pairs for text in _differences(ordered, given)]
    if differences:
        raise another_layout(f"what SGLang allocated is not as {side.key} says", differences)
    return {
        plane.name: Memory(address, plane.stride, size // item, size, buffers.mem_type, buffers.device)
        for ordered, given in pairs
        for plane, address, size, item in zip(ordered, given.addresses, given.sizes, given.items, strict=True)
    }


def _in_order(every: Iterable[Plane]) -> list[Plane]:
    """Return planes in SGLang's order of buffers: all layers of the first part, then those of the next."""
    parts = {plane.part: None for plane in every}
    return [
        plane
        for part in parts
        for plane in sorted((one for one in every if one.part == part), key=lambda one: one.layer or 0)
    ]


def _differences(ordered: Sequence[Plane], given: Buffers) -> list[str]:
    """Return the differences between planes and buffers."""
    if len(ordered) != len(given.addresses):
        names = ", ".join(plane.name for plane in ordered[:SHOWN])
        return [f"it has {len(given.addresses)} buffers, the layout {len(ordered)} ({names}, …)"]
    layers = [plane.layer for plane in ordered]
    found = [
        f"{plane.name}: it has {item} bytes a page, the layout {plane.stride}"
        for plane, item in zip(ordered, given.items, strict=True)
        if plane.stride != item or plane.page != item
    ]
    if given.layers and list(given.layers) != layers:
        found.append(f"its buffers are of layers {list(given.layers)}, the layout's of {layers}")
    return found
