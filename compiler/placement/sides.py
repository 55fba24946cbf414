"""The sides of a plan: a placement in the runtime's types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from kvplan.compiler.bound import BoundGroup, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.placed import PlacedSide
from kvplan.compiler.placement.shards import Interval
from kvplan.compiler.placement.tree import Element, PagedRegion, PlacedCache, Tree
from kvplan.plan.needs import ALL
from kvplan.plan.planes import planes as planes_of
from kvplan.plan.types import Group, Planes, Side, View, Worker


def plan_side(side: PlacedSide) -> Side:
    """Return the side as the runtime sees it, without its digest."""
    planes: dict[object, tuple[Planes, ...]] = {}
    workers = tuple(_worker(side, worker, planes) for worker in side.side.workers)
    needs = tuple(sorted((cache.name, cache.needs) for cache in side.side.caches if cache.needs != ALL))
    groups = tuple(_group(side.side, group) for group in side.side.groups)
    return Side(side.side.key, "", groups, workers, needs)


def _group(side: BoundSide, g: BoundGroup) -> Group:
    ways, chunk = (side.token_shards, side.interleave_tokens) if g.shared else (1, 1)
    return Group(g.name, g.store, g.tokens, g.kernel, g.ratio, g.arena, ways, chunk, g.length, g.ring, g.table)


def _worker(side: PlacedSide, worker: BoundWorker, planes: dict[object, tuple[Planes, ...]]) -> Worker:
    """Return a worker; `planes` keeps the planes of earlier workers, because some have equal layouts."""
    units, held = side.units[worker.number], side.holds[worker.number]
    holds = {(c.name, a): held[c.name, t.name][a] for c in side.side.caches for t in c.tensors for a, _ in t.split}
    named = any(digit.axis != "layer" for unit in units for part in unit.parts for digit in part.outer)
    key = (id(units), worker.number if named else 0)
    if key not in planes:
        planes[key] = tuple(p for unit in units for p in _planes(side, worker, unit))
        _check_names(planes[key])
    turn = worker.token_shard if any(cache.store == "tokens" for cache in side.side.caches) else 0
    return Worker(planes[key], turn, tuple((*names, part) for names, part in sorted(holds.items())))


def _check_names(entries: tuple[Planes, ...]) -> None:
    """Refuse (C140) two planes with one name: memory is registered by these names."""
    names = Counter(plane.name for plane in planes_of(Worker(entries)))
    if twice := [name for name, count in names.items() if count > 1]:
        help = "name caches, and parts of a storage, without dots and numbers"
        raise Refused("C140", f"two planes would be called {twice[0]!r}", help)


def _planes(side: PlacedSide, worker: BoundWorker, unit: PlacedCache) -> list[Planes]:
    cache = next(cache for cache in side.side.caches if cache.name == unit.cache)
    tensors = {tensor.name: tensor for tensor in cache.tensors}
    held: dict[str, Interval] = {}
    # Over all tensors, because a page may hold padding alone; their shares of an axis are equal.
    for name in tensors:
        held |= side.holds[worker.number][cache.name, name]
    return [replace(_part(unit, part, tensors, held), memory=cache.memory) for part in unit.parts]


def _part(
    unit: PlacedCache, part: PagedRegion, tensors: dict[str, BoundTensor], held: Mapping[str, Interval]
) -> Planes:
    views = tuple(_views(part.body, 0, (), tensors))
    loops = tuple(
        (d.axis, unit.layers if d.axis == "layer" else _numbers(held[d.axis], d.weight, d.count), d.step)
        for d in part.outer
    )
    inside = () if any(axis == "layer" for axis, _, _ in loops) else unit.layers
    first = unit.first + part.first
    return Planes(unit.cache, unit.group, part.name, first, loops, part.page, part.stride, views, inside)


def _numbers(held: Interval, weight: int, count: int) -> tuple[int, ...]:
    return tuple(range(held[0], held[0] + weight * count, weight))


def _views(
    body: tuple[Tree, ...], at: int, axes: tuple[tuple[str, int, int], ...], tensors: dict[str, BoundTensor]
) -> list[View]:
    found: list[View] = []
    for node in body:
        if isinstance(node, Element):
            found.append(View(node.tensor, tensors[node.tensor].dtype, at + node.offset, axes))
        else:
            name = node.axis if node.weight == 1 else f"{node.axis}/{node.weight}"
            found += _views(node.body, at + node.offset, (*axes, (name, node.count, node.step)), tensors)
    return found
