"""Place: a storage expression with numbers in it. From coordinate to (plane, byte), and page trees to go back.

Law: every element of a tensor has one (plane, byte); no two elements share a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.errors import Refused
from kvplan.compiler.own import holding
from kvplan.dsl.expr import evaluate
from kvplan.dsl.model import Align, Axis, Expr, Item, Leaf, Pad, Repeat

# One number for a place: plane << SHIFT | byte. Steps are of the same kind, so planes and bytes are one sort of loop.
SHIFT = 44
PLANE = 1 << SHIFT


@dataclass(frozen=True, slots=True)
class Cell:
    """One element at `offset` bytes from its parent's start."""

    offset: int
    tensor: str
    size: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`count` bodies `step` bytes apart; each moves `weight` items along `axis`."""

    offset: int
    axis: str
    weight: int
    count: int
    step: int
    body: tuple[Tree, ...]


Tree = Cell | Loop


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of an axis' coordinate: `count` values of `weight` items, `step` places apart."""

    axis: str
    weight: int
    count: int
    step: int


@dataclass(frozen=True, slots=True)
class Part:
    """One occurrence of `block`: the loops outside it as digits (in planes), the tree inside, the page in bytes.

    Two blocks of a plane lie `stride` bytes apart: the page itself, unless the engine says otherwise.
    """

    name: str | None
    first: int
    outer: tuple[Digit, ...]
    body: tuple[Tree, ...]
    page: int
    stride: int


@dataclass(frozen=True, slots=True)
class Unit:
    """The layers of one cache in one group on one worker: `first` is its first plane, `planes` how many it has."""

    cache: str
    group: str
    layers: tuple[int, ...]
    first: int
    planes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one tensor lies: place of its first element, and its digits, outermost first."""

    tensor: str
    place: int
    digits: tuple[Digit, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the expressions of one cache on one worker are resolved with: local extents by tensor and axis."""

    cache: BoundCache
    extents: Mapping[str, Mapping[str, int]]

    def number(self, expr: Expr) -> int:
        value = evaluate(expr, self.cache.env)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise Refused("C101", f"storage of {self.cache.name!r}: {expr.text!r} gives {value!r}, not a size")
        return value


def place(side: BoundSide, worker: BoundWorker) -> tuple[Unit, ...]:
    """All units of a worker in plane order: group by group, cache by cache."""
    caches = {cache.name: cache for cache in side.caches}
    units: list[Unit] = []
    known: dict[tuple[str, int], tuple[Part, ...]] = {}
    for group in side.groups:
        for name in dict.fromkeys(cache for cache, _ in group.members):
            layers = tuple(n for cache, n in group.members if cache == name and n in worker.layers)
            if layers:
                first = units[-1].first + units[-1].planes if units else 0
                if (name, len(layers)) not in known:
                    known[name, len(layers)] = _parts(local_sizes(side, worker, caches[name], len(layers)))
                units.append(_unit(name, group.name, layers, first, known[name, len(layers)]))
    return tuple(units)


def local_sizes(side: BoundSide, worker: BoundWorker, cache: BoundCache, layers: int) -> Sizes:
    """Local extents of one cache's tensors on a worker, the token axis by kernel block."""
    return Sizes(cache, {tensor.name: _extents(side, worker, cache, tensor, layers) for tensor in cache.tensors})


def page_bytes(sizes: Sizes) -> int:
    """The bytes of one page of every part together."""
    return sum(part.page for part in _parts(sizes))


def spots(unit: Unit) -> dict[str, Spot]:
    """The forward function of a unit: per tensor, where its coordinates lie."""
    found = {}
    for part in unit.parts:
        base = (unit.first + part.first) * PLANE
        outer = tuple(Digit(d.axis, d.weight, d.count, d.step * PLANE) for d in part.outer)
        for spot in _leaves(part.body, base, outer):
            found[spot.tensor] = spot
    return found


def _leaves(body: tuple[Tree, ...], at: int, digits: tuple[Digit, ...]) -> list[Spot]:
    found: list[Spot] = []
    for node in body:
        if isinstance(node, Cell):
            found.append(Spot(node.tensor, at + node.offset, digits))
        else:
            digit = Digit(node.axis, node.weight, node.count, node.step)
            found += _leaves(node.body, at + node.offset, (*digits, digit))
    return found


def _extents(
    side: BoundSide, worker: BoundWorker, cache: BoundCache, tensor: BoundTensor, layers: int
) -> dict[str, int]:
    held = holding(side, tensor, worker)
    extents = {axis: stop - start for axis, (start, stop) in held.items()}
    token = {axis: cache.kernel // tensor.unit for axis, extent in tensor.axes if not extent}
    return {**extents, **token, "layer": layers, "block": 1}


def _unit(cache: str, group: str, layers: tuple[int, ...], first: int, parts: tuple[Part, ...]) -> Unit:
    planes = sum(_volume(part.outer) for part in parts)
    return Unit(cache, group, layers, first, planes, parts)


def _volume(digits: tuple[Digit, ...]) -> int:
    product = 1
    for digit in digits:
        product *= digit.count
    return product


def _parts(sizes: Sizes) -> tuple[Part, ...]:
    parts: list[Part] = []
    first = 0
    for name, items in sizes.cache.storage.parts:
        found, planes = _blocks(sizes, items, (), first)
        several = len(found) > 1
        for number, part in enumerate(found):
            label = ".".join(word for word in (name, str(number) if several else None) if word) or None
            parts.append(replace(part, name=label))
        first += planes
    return tuple(parts)


def _blocks(sizes: Sizes, items: tuple[Item, ...], outer: tuple[Digit, ...], first: int) -> tuple[list[Part], int]:
    """The occurrences of `block` under `items` and how many planes they take, numbered like the loops nest."""
    parts: list[Part] = []
    planes = 0
    for item in items:
        if not isinstance(item, Repeat) or not _tensors((item,), sizes):
            continue
        if item.axis.name == "block":
            body, page = _resolve(sizes, item.body)
            parts.append(Part(None, first + planes, (), body, page, _stride(sizes, page)))
            planes += 1
            continue
        weight, extent, _ = _digit(sizes, item)
        inner, step = _blocks(sizes, item.body, outer, first + planes)
        digit = Digit(item.axis.name, weight, extent, step)
        parts += [replace(part, outer=(digit, *part.outer)) for part in inner]
        planes += step * extent
    return parts, planes


def _stride(sizes: Sizes, page: int) -> int:
    stride = page if sizes.cache.stride is None else sizes.cache.stride
    if stride >= PLANE:
        raise Refused(
            "C106", f"a page of {sizes.cache.name!r} has {stride} B, more than a plan can address", "shrink it"
        )
    if stride < page:
        cache = sizes.cache.name
        raise Refused("C102", f"a page of {cache!r} has {page} B, more than its block stride of {stride} B")
    return stride


def _resolve(sizes: Sizes, items: tuple[Item, ...]) -> tuple[tuple[Tree, ...], int]:
    nodes: list[Tree] = []
    offset = 0
    for item in items:
        if isinstance(item, Pad):
            offset += sizes.number(item.size)
        elif isinstance(item, Align):
            offset += -offset % max(1, sizes.number(item.size))
        elif isinstance(item, Leaf):
            for tensor in (t for t in sizes.cache.tensors if t.name == item.tensor):
                nodes.append(Cell(offset, tensor.name, tensor.size))
                offset += tensor.size
        elif _tensors((item,), sizes):
            loop, size = _loop(sizes, item, offset)
            nodes.append(loop)
            offset += size
    return tuple(nodes), offset


def _loop(sizes: Sizes, item: Repeat, offset: int) -> tuple[Loop, int]:
    weight, extent, extra = _digit(sizes, item)
    body, step = _resolve(sizes, item.body)
    return Loop(offset, item.axis.name, weight, extent, step, body), step * (extent + extra)


def _digit(sizes: Sizes, item: Repeat) -> tuple[int, int, int]:
    """(weight, count, padding iterations) of a loop; all tensors under it must agree on the axis' local extent."""
    axis: Axis = item.axis
    extents = {name: sizes.extents[name][axis.name] for name in _tensors((item,), sizes)}
    if len(set(extents.values())) > 1:
        said = ", ".join(f"{name} {extent}" for name, extent in sorted(extents.items()))
        raise Refused("C103", f"storage of {sizes.cache.name!r}: one loop over {axis.name!r}, unlike extents: {said}")
    weight, extent = 1, next(iter(extents.values()))
    for op, expr in axis.tiles:
        tile = sizes.number(expr)
        if tile < 1 or extent % tile:
            raise Refused(
                "C104", f"storage of {sizes.cache.name!r}: tiles of {tile} do not divide {axis.name} = {extent}"
            )
        weight, extent = (weight * tile, extent // tile) if op == "/" else (weight, tile)
    return weight, extent, sizes.number(axis.extra) if axis.extra else 0


def _tensors(items: tuple[Item, ...], sizes: Sizes) -> list[str]:
    """Names of the tensors that exist under `items`, in order."""
    names: list[str] = []
    for item in items:
        if isinstance(item, Leaf) and item.tensor in sizes.extents:
            names.append(item.tensor)
        elif isinstance(item, Repeat):
            names += _tensors(item.body, sizes)
    return names


def check_chains(sizes: Sizes) -> None:
    """Refuse tiles of an axis that do not chain: weights 1, n1, n1*n2 … up to the local extent."""
    unit = Unit("", "", (), 0, 0, _parts(sizes))
    for spot in spots(unit).values():
        for axis, extent in sizes.extents[spot.tensor].items():
            _check_chain(sizes.cache.name, spot, axis, 1 if axis == "block" else extent)


def _check_chain(cache: str, spot: Spot, axis: str, extent: int) -> None:
    weight = 1
    for digit in sorted((d for d in spot.digits if d.axis == axis), key=lambda d: d.weight):
        if digit.weight != weight:
            raise Refused("C105", f"storage of {cache!r}: the tiles of {spot.tensor}'s {axis} do not chain")
        weight *= digit.count
    if weight != extent:
        raise Refused(
            "C105", f"storage of {cache!r}: the loops of {spot.tensor}'s {axis} make {weight} of {extent} items"
        )
