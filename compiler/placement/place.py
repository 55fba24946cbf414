"""Place: resolve a storage expression to a map from coordinate to (plane, byte), and to page trees for the way back.
Law: every element of a tensor has one (plane, byte); no two elements share a byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor, BoundWorker, Members
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.shards import shard_intervals
from kvplan.compiler.placement.tree import (
    PLANE,
    AxisDigit,
    BodyLoop,
    Element,
    PagedRegion,
    PlacedCache,
    TensorPlacement,
    Tree,
    spots,
    volume,
)
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Align, Axis, Expr, Item, Leaf, Pad, Repeat, Value
from kvplan.dsl.lang.nodes import SizeSet as Values

LAYER = "layer"
# The most planes of one worker. Each has a name and is registered separately.
MOST_PLANES = 1 << 16


@dataclass(frozen=True, slots=True)
class LocalSizes:
    """The values that resolve one cache's expressions on one worker: local extents by tensor and axis.

    `spare` bytes lie behind each layer inside a block.
    """

    cache: BoundCache
    extents: Mapping[str, Mapping[str, int]]
    spare: int = 0

    @property
    def name(self) -> str:
        return f"storage {self.cache.storage.name!r} of cache {self.cache.name!r}"

    def number(self, expr: Expr, least: int = 0) -> int:
        value = evaluate(expr, self.cache.env)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            said = f"{self.name}: {expr.text!r} gives {value!r}, not a size"
            allowed = f"sizes here are whole numbers from {least} up"
            raise Refused("C101", said, f"{allowed}: correct the expression or what it uses")
        return value


def place(side: BoundSide, worker: BoundWorker) -> tuple[PlacedCache, ...]:
    """Return all units of a worker in plane order: group by group, cache by cache. Units without bytes are left out."""
    caches = {cache.name: cache for cache in side.caches}
    found = [(group.name, name, layers) for group in side.groups for name, layers in _by_cache(group.members, worker)]
    sizes = {(name, len(layers)): local_sizes(side, worker, caches[name], len(layers)) for _, name, layers in found}
    rows = {memory: _row(side, worker, memory) for memory in {cache.memory for cache in side.caches}}
    parts = {key: tuple(_strided(of, part, rows[of.cache.memory]) for part in _parts(of)) for key, of in sizes.items()}
    units: list[PlacedCache] = []
    for group_name, name, layers in found:
        first = units[-1].first + units[-1].planes if units else 0
        if parts[name, len(layers)]:
            units.append(_unit(name, group_name, layers, first, parts[name, len(layers)]))
    _check_planes(units)
    return tuple(units)


def _check_planes(units: Sequence[PlacedCache]) -> None:
    """Refuse (C143) more planes than a worker may have: each is memory with its own name."""
    count = sum(unit.planes for unit in units)
    if count > MOST_PLANES:
        most = max(units, key=lambda unit: unit.planes)
        said = f"a worker has {count:,} planes, {most.planes:,} of them of {most.cache!r}"
        help = f"at most {MOST_PLANES:,}: choose an order with fewer loops outside `block`, or give more workers"
        raise Refused("C143", said, help)


def _by_cache(members: Members, worker: BoundWorker) -> list[tuple[str, tuple[int, ...]]]:
    """Return the caches of members with their layers on a worker, without caches that have none there."""
    names = dict.fromkeys(cache for cache, _ in members)
    found = [(name, tuple(n for c, n in members if c == name and n in worker.layers)) for name in names]
    return [(name, layers) for name, layers in found if layers]


def _row(side: BoundSide, worker: BoundWorker, memory: str) -> int:
    """Return the bytes of the largest block of one memory: of all layers that share it, over all planes, rounded up to
    the alignment of its caches."""
    caches = {cache.name: cache for cache in side.caches if cache.memory == memory}
    alike = [tuple(member for member in members if member[0] in caches) for members in side.block_members]
    blocks = [_by_cache(members, worker) for members in alike]
    rows = [sum(_least(side, worker, caches[name], len(layers)) for name, layers in stored) for stored in blocks]
    align = lcm(*(caches[name].align for stored in blocks for name, _ in stored))
    return -(-max(rows, default=0) // align) * align


def _least(side: BoundSide, worker: BoundWorker, cache: BoundCache, layers: int) -> int:
    """Return the bytes of a block that a cache's layers take at least."""
    return max(_bytes(_parts(local_sizes(side, worker, cache, layers))), layers * cache.padded)


def _bytes(parts: tuple[PagedRegion, ...]) -> int:
    return sum(part.page * volume(part.outer) for part in parts)


def _strided(sizes: LocalSizes, part: PagedRegion, row: int) -> PagedRegion:
    """Return a part with its block stride."""
    cache = sizes.cache
    if cache.stride is None:
        return replace(part, stride=_stride(cache, part.page, part.page))
    stride = evaluate(cache.stride.expr, {**cache.stride.env, "page": part.page, "block_bytes": row})
    return replace(part, stride=_stride(cache, part.page, stride))


def local_sizes(side: BoundSide, worker: BoundWorker, cache: BoundCache, layers: int) -> LocalSizes:
    """Return the local extents of one cache's tensors on a worker, the token axis by kernel block."""
    return LocalSizes(cache, {tensor.name: _extents(side, worker, cache, tensor, layers) for tensor in cache.tensors})


def layer_bytes(sizes: LocalSizes) -> int:
    """Return the bytes that all layers take in one block, over all planes."""
    return _bytes(_parts(sizes))


def _extents(
    side: BoundSide, worker: BoundWorker, cache: BoundCache, tensor: BoundTensor, layers: int
) -> dict[str, int]:
    held = shard_intervals(side, tensor, worker)
    extents = {axis: stop - start for axis, (start, stop) in held.items()}
    token = {axis: cache.kernel // tensor.tokens_per_row for axis, extent in tensor.axes if not extent}
    return {**extents, **token, "layer": layers, "block": 1}


def _unit(cache: str, group: str, layers: tuple[int, ...], first: int, parts: tuple[PagedRegion, ...]) -> PlacedCache:
    planes = sum(volume(part.outer) for part in parts)
    return PlacedCache(cache, group, layers, first, planes, parts)


def _parts(sizes: LocalSizes) -> tuple[PagedRegion, ...]:
    """Return the occurrences of `block`; layers inside one are padded so that their page has its full size.

    Raises Refused (C107).
    """
    parts = _regions(sizes)
    cache, layers = sizes.cache, next(iter(sizes.extents.values()))[LAYER]
    inside = [part for part in parts if all(digit.axis != LAYER for digit in part.outer)]
    if not inside or layers * cache.padded <= _bytes(parts):
        return parts
    whole = len(parts) == 1 and volume(parts[0].outer) == 1
    if not whole or not _in_one_piece(parts[0].body, parts[0].page):
        said = f"a page of {cache.name!r} padded to {cache.padded} B: storage {cache.storage.name!r} has its layers in"
        raise Refused("C107", f"{said} pieces, so that the padding has no place", "choose another order")
    return _regions(replace(sizes, spare=cache.padded - _bytes(parts) // layers))


def _regions(sizes: LocalSizes) -> tuple[PagedRegion, ...]:
    parts: list[PagedRegion] = []
    first = 0
    for name, items in sizes.cache.storage.parts:
        found, planes = _blocks(sizes, items, (), first)
        several = len(found) > 1
        for number, part in enumerate(found):
            label = ".".join(word for word in (name, str(number) if several else None) if word) or None
            parts += [replace(part, name=label)] if part.page and volume(part.outer) else []
        first += planes
    return tuple(parts)


def _in_one_piece(body: tuple[Tree, ...], page: int) -> bool:
    """Whether a layer of a page is contiguous: its loop is the outermost, apart from loops of one turn."""
    (loop,) = body if len(body) == 1 else (None,)
    if not isinstance(loop, BodyLoop) or loop.count * loop.step != page:
        return False
    return loop.axis == LAYER or (loop.count == 1 and _in_one_piece(loop.body, page))


def _blocks(
    sizes: LocalSizes, items: tuple[Item, ...], outer: tuple[AxisDigit, ...], first: int
) -> tuple[list[PagedRegion], int]:
    """Return the occurrences of `block` under `items` and their number of planes, numbered in loop order."""
    parts: list[PagedRegion] = []
    planes = 0
    for item in items:
        if not isinstance(item, Repeat) or not (tensors := _tensors((item,), sizes)):
            continue
        if item.axis.name == "block":
            body, page = _resolve(sizes, item.body)
            _check_size(sizes.cache, page)
            parts.append(PagedRegion(None, first + planes, (), body, page, page))
            planes += 1 if page else 0
            continue
        weight, extent, _ = _digit(sizes, item, tensors)
        inner, step = _blocks(sizes, item.body, outer, first + planes)
        digit = AxisDigit(item.axis.name, weight, extent, step)
        parts += [replace(part, outer=(digit, *part.outer)) for part in inner]
        planes += step * extent
    return parts, planes


def _stride(cache: BoundCache, page: int, stride: Value | Values) -> int:
    if isinstance(stride, bool) or not isinstance(stride, int):
        said = f"the block stride of {cache.name!r} comes out as {stride!r}, not bytes"
        raise Refused("C114", said, "correct the engine's stride: it gives a number")
    _check_size(cache, stride)
    if stride < page:
        said = f"a page of {cache.name!r} has {page} B, more than its block stride of {stride} B"
        raise Refused("C102", said, "correct the engine's stride: it is at least `page`")
    return stride


def _check_size(cache: BoundCache, size: int) -> None:
    if size >= PLANE:
        raise Refused(
            "C106", f"a page of {cache.name!r} has {size} B", f"a plan can address {PLANE - 1}: look at its sizes"
        )


def _resolve(sizes: LocalSizes, items: tuple[Item, ...]) -> tuple[tuple[Tree, ...], int]:
    nodes: list[Tree] = []
    offset = 0
    for item in items:
        if isinstance(item, Pad):
            offset += sizes.number(item.size)
        elif isinstance(item, Align):
            offset += -offset % sizes.number(item.size, 1)
        elif isinstance(item, Leaf):
            for tensor in (t for t in sizes.cache.tensors if t.name == item.tensor):
                nodes.append(Element(offset, tensor.name, tensor.size))
                offset += tensor.size
        elif tensors := _tensors((item,), sizes):
            loop, size = _loop(sizes, item, tensors, offset)
            nodes += [loop] if loop.count else []
            offset += size
    return tuple(nodes), offset


def _loop(sizes: LocalSizes, item: Repeat, tensors: Sequence[str], offset: int) -> tuple[BodyLoop, int]:
    weight, extent, extra = _digit(sizes, item, tensors)
    body, step = _resolve(sizes, item.body)
    step += sizes.spare if item.axis.name == LAYER else 0
    return BodyLoop(offset, item.axis.name, weight, extent, step, body), step * (extent + extra)


def _digit(sizes: LocalSizes, item: Repeat, tensors: Sequence[str]) -> tuple[int, int, int]:
    """Return (weight, count, padding iterations) of a loop; all `tensors` under it must have the same local extent."""
    axis: Axis = item.axis
    extents = {name: sizes.extents[name][axis.name] for name in tensors}
    if len(set(extents.values())) > 1:
        said = ", ".join(f"{name} {extent}" for name, extent in sorted(extents.items()))
        said = f"{sizes.name}: one loop over {axis.name!r}, different extents: {said}"
        raise Refused("C103", said, "give each of them a loop of its own")
    weight, extent = 1, next(iter(extents.values()))
    for op, expr in axis.tiles:
        tile = sizes.number(expr)
        if tile < 1 or extent % tile:
            said = f"{sizes.name}: tiles of {tile} do not divide {axis.name} = {extent}"
            raise Refused("C104", said, f"use a tile that divides {extent}, which is what one worker holds")
        weight, extent = (weight * tile, extent // tile) if op == "/" else (weight, tile)
    return weight, extent, sizes.number(axis.extra) if axis.extra else 0


def _tensors(items: tuple[Item, ...], sizes: LocalSizes) -> list[str]:
    """Return the names of the tensors that exist under `items`, in order."""
    names: list[str] = []
    for item in items:
        if isinstance(item, Leaf) and item.tensor in sizes.extents:
            names.append(item.tensor)
        elif isinstance(item, Repeat):
            names += _tensors(item.body, sizes)
    return names


def check_chains(sizes: LocalSizes) -> None:
    """Refuse tiles of an axis that do not chain: weights must be 1, n1, n1*n2 … up to the local extent."""
    unit = PlacedCache("", "", (), 0, 0, _parts(sizes))
    for spot in spots(unit).values():
        for axis, extent in sizes.extents[spot.tensor].items():
            _check_chain(sizes.name, spot, axis, 1 if axis == "block" else extent)


def _check_chain(storage: str, spot: TensorPlacement, axis: str, extent: int) -> None:
    weight = 1
    for digit in sorted((d for d in spot.digits if d.axis == axis), key=lambda d: d.weight):
        if digit.weight != weight:
            said = f"{storage}: {spot.tensor}'s {axis} has a tile that counts in {digit.weight}s"
            raise Refused("C105", said, f"it has to count in {weight}s, the whole of the next smaller one")
        weight *= digit.count
    if weight != extent:
        said = f"{storage}: the loops of {spot.tensor}'s {axis} make {weight} of {extent} items"
        raise Refused("C105", said, f"let the outermost tile go on to {extent}")
