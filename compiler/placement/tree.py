"""Page trees: the nodes of a placement, each tensor's place in one, and the unit that a plane number belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace

# A place is one number, plane << SHIFT | byte. Steps are such numbers, too, so one kind of loop serves both.
SHIFT = 44
PLANE = 1 << SHIFT


@dataclass(frozen=True, slots=True)
class Element:
    """One element at `offset` bytes from its parent's start."""

    offset: int
    tensor: str
    size: int


@dataclass(frozen=True, slots=True)
class BodyLoop:
    """`count` bodies, `step` bytes apart; each one moves `weight` items along `axis`."""

    offset: int
    axis: str
    weight: int
    count: int
    step: int
    body: tuple[Tree, ...]


Tree = Element | BodyLoop


@dataclass(frozen=True, slots=True)
class AxisDigit:
    """A digit of an axis' coordinate: `count` values of `weight` items, `step` places apart."""

    axis: str
    weight: int
    count: int
    step: int


@dataclass(frozen=True, slots=True)
class PagedRegion:
    """One occurrence of `block`: the loops outside it as digits (in planes), the tree inside it, the page in bytes.

    Two blocks of a plane lie `stride` bytes apart: the page itself, unless the engine has another stride.
    """

    name: str | None
    first: int
    outer: tuple[AxisDigit, ...]
    body: tuple[Tree, ...]
    page: int
    stride: int


@dataclass(frozen=True, slots=True)
class PlacedCache:
    """The layers of one cache in one group on one worker: `first` is its first plane, `planes` how many it has."""

    cache: str
    group: str
    layers: tuple[int, ...]
    first: int
    planes: int
    parts: tuple[PagedRegion, ...]


@dataclass(frozen=True, slots=True)
class TensorPlacement:
    """The place of one tensor: the address of its first element, and its digits, outermost first."""

    tensor: str
    address: int
    digits: tuple[AxisDigit, ...]


def spots(unit: PlacedCache) -> dict[str, TensorPlacement]:
    """Return the placement of every tensor of a unit."""
    found = {}
    for part in unit.parts:
        base = (unit.first + part.first) * PLANE
        outer = tuple(AxisDigit(d.axis, d.weight, d.count, d.step * PLANE) for d in part.outer)
        for spot in _leaves(part.body, base, outer):
            found[spot.tensor] = spot
    return found


def _leaves(body: tuple[Tree, ...], at: int, digits: tuple[AxisDigit, ...]) -> list[TensorPlacement]:
    found: list[TensorPlacement] = []
    for node in body:
        if isinstance(node, Element):
            found.append(TensorPlacement(node.tensor, at + node.offset, digits))
        else:
            digit = AxisDigit(node.axis, node.weight, node.count, node.step)
            found += _leaves(node.body, at + node.offset, (*digits, digit))
    return found


def volume(digits: tuple[AxisDigit, ...]) -> int:
    """Return the number of turns of all loops together."""
    product = 1
    for digit in digits:
        product *= digit.count
    return product


def indices(part: PagedRegion, plane: int) -> tuple[int, ...] | None:
    """Return the index of every loop outside `block` for a unit's plane number, None if it belongs to another part."""
    rest = plane - part.first
    found = []
    for digit in part.outer:
        index = rest // digit.step
        if not 0 <= index < digit.count:
            return None
        found.append(index)
        rest -= index * digit.step
    return tuple(found) if rest == 0 else None


def locate(unit: PlacedCache, plane: int) -> tuple[PagedRegion, tuple[int, ...]] | None:
    """Return the part and the loop indices of a worker's plane number, None if it belongs to another unit."""
    for part in unit.parts:
        index = indices(part, plane - unit.first)
        if index is not None:
            return part, index
    return None


def relative(source: PlacedCache, target: PlacedCache) -> tuple[PlacedCache, PlacedCache]:
    """Return both units in relative numbers, so that groups that differ only in layer numbers become equal.

    Planes count from the unit's first one; layers are indices into those of `target` (-1: not there).
    """
    index = {layer: i for i, layer in enumerate(target.layers)}
    layers = tuple(index.get(layer, -1) for layer in source.layers)
    own = tuple(range(len(target.layers)))
    return replace(source, group="", first=0, layers=layers), replace(target, group="", first=0, layers=own)


def shape(source: PlacedCache, target: PlacedCache) -> tuple[object, ...]:
    """Return a key that two pairs of relative units share only if they are equal. It knows parts by identity: place
    makes equal parts once per worker, and they live as long as the placements."""
    return id(source.parts), id(target.parts), source.layers, len(target.layers)
