"""Page trees: what a placement is made of, and the place of every tensor in one."""

from __future__ import annotations

from dataclasses import dataclass

# One number for a place: plane << SHIFT | byte. Steps are of the same kind, so planes and bytes are one kind of loop.
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
    """`count` bodies `step` bytes apart; each moves `weight` items along `axis`."""

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
    """One occurrence of `block`: the loops outside it as digits (in planes), the tree inside, the page in bytes.

    Two blocks of a plane lie `stride` bytes apart: the page itself, unless the engine says otherwise.
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
    """Where one tensor lies: place of its first element, and its digits, outermost first."""

    tensor: str
    address: int
    digits: tuple[AxisDigit, ...]


def spots(unit: PlacedCache) -> dict[str, TensorPlacement]:
    """The forward function of a unit: per tensor, where its coordinates lie."""
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
    """How many turns loops make together."""
    product = 1
    for digit in digits:
        product *= digit.count
    return product
