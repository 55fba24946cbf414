"""Check that a table's nests pair every prefill element with the same decode element, and find what they write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.tree import PlacedCache, locate, spots
from kvplan.compiler.prove.cover import CoordinateSet, progression
from kvplan.compiler.prove.explode import Box, BoxLoop, explode
from kvplan.plan.types import Nest, Place, Table

MOST_ELEMENTS = 1 << 20
Shift = Mapping[str, Mapping[str, int]]
Coordinate = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ReadEnds:
    """Both units of a read; `shift` is the decode coordinate minus the prefill coordinate of the same element.

    `tokens` names the token axis of every tensor with one; `tiled` are the (tensor, axis) that either side stores in
    tiles. `numbers` are the places of layers in decode's list. `seen` caches exploded ranges of pages: planes of one
    part differ only in their outer coordinate.
    """

    prefill: PlacedCache
    decode: PlacedCache
    shift: Shift
    tokens: Mapping[str, str]
    tiled: frozenset[tuple[str, str]]
    numbers: Mapping[int, int]
    seen: dict[tuple[int, int, int], tuple[Box, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenCoordinates:
    """The decode coordinates that a read's two tables write."""

    page: tuple[CoordinateSet, ...]
    token: tuple[CoordinateSet, ...]


def regions(
    table: Table, prefill: PlacedCache, decode: PlacedCache, shift: Shift, tokens: Mapping[str, str]
) -> WrittenCoordinates:
    """Return the decode coordinates that either table writes. Raises ProofFailed (P001, P013..P017)."""
    numbers = {layer: number for number, layer in enumerate(decode.layers)}
    ends = ReadEnds(prefill, decode, shift, tokens, _tiled(prefill) | _tiled(decode), numbers)
    if any(nest.token_step or nest.hops for nest in table.per_page):
        raise ProofFailed("P013", "a table of pages has a nest with a token step")
    page = tuple(region for nest in table.per_page for region in _nest(ends, nest))
    for nest in table.per_token:
        _check_token(ends, nest)
    return WrittenCoordinates(page, tuple(_tokenless(ends, r) for nest in table.per_token for r in _nest(ends, nest)))


def _tiled(unit: PlacedCache) -> frozenset[tuple[str, str]]:
    """Return the (tensor, axis) that take more than one loop of a unit."""
    every = Counter((tensor, d.axis) for tensor, spot in spots(unit).items() for d in spot.digits if d.count > 1)
    return frozenset(key for key, count in every.items() if count > 1)


def _nest(ends: ReadEnds, nest: Nest) -> list[CoordinateSet]:
    """Return one region per box of the span. Raises ProofFailed if a loop moves anything else than its fields say."""
    first = _boxes(ends, nest, nest.prefill, nest.decode)
    deltas = [_delta(ends, nest, index, first) for index in range(len(nest.loops))]
    for point in dict.fromkeys(_points(nest, _uneven(ends, first))):
        moves = [(axis, turn * delta) for (axis, delta), turn in zip(deltas, point, strict=True) if turn]
        expected = tuple(_shifted(box, moves) for box in first)
        if _boxes(ends, nest, *_places_at(nest, point)) != expected:
            raise ProofFailed("P013", f"a loop of {'+'.join(nest.tensors)} is not regular")
    found = [
        _region(box, [(loop.count, delta) for loop, delta in zip(nest.loops, deltas, strict=True)]) for box in first
    ]
    if sorted({box.tensor for box in first}) != sorted(nest.tensors):
        raise ProofFailed("P014", f"a span says {nest.tensors}, it moves {sorted({box.tensor for box in first})}")
    return found


def _uneven(ends: ReadEnds, boxes: tuple[Box, ...]) -> set[str]:
    """Return axes whose items may lie unevenly: layers, whose lists may be irregular, and axes stored in tiles."""
    return {"layer", *(axis for tensor, axis in ends.tiled if any(box.tensor == tensor for box in boxes))}


def _points(nest: Nest, uneven: set[str]) -> Iterator[tuple[int, ...]]:
    """Yield turns that decide all others: every corner of the loops, and every turn of each axis that is `uneven`."""
    yield from product(*(sorted({0, loop.count - 1}) for loop in nest.loops))
    for axis in sorted(uneven & {loop.axis for loop in nest.loops}):
        yield from product(*(range(loop.count) if loop.axis == axis else (0,) for loop in nest.loops))


def _places_at(nest: Nest, point: tuple[int, ...]) -> tuple[Place, Place]:
    (plane, byte), (decode_plane, decode_byte) = nest.prefill, nest.decode
    for turn, loop in zip(point, nest.loops, strict=True):
        plane, byte = plane + turn * loop.prefill[0], byte + turn * loop.prefill[1]
        decode_plane, decode_byte = decode_plane + turn * loop.decode[0], decode_byte + turn * loop.decode[1]
    return (plane, byte), (decode_plane, decode_byte)


def _delta(ends: ReadEnds, nest: Nest, index: int, first: tuple[Box, ...]) -> tuple[str, int]:
    """Return the axis and the number of items by which one turn of a loop moves every box."""
    point = tuple(int(i == index) for i in range(len(nest.loops)))
    second = _boxes(ends, nest, *_places_at(nest, point)) if nest.loops[index].count > 1 else first
    if len(first) != len(second):
        raise ProofFailed("P013", f"a loop over {nest.loops[index].axis} changes what it moves")
    moves = {
        tuple((a, y - x) for (a, x), (_, y) in zip(one.start, two.start, strict=True) if x != y)
        for one, two in zip(first, second, strict=True)
    }
    axis = nest.loops[index].axis
    if len(moves) != 1 or [a for a, _ in next(iter(moves))] != [axis]:
        raise ProofFailed("P013", f"a loop over {axis} moves {sorted(moves)}")
    ((_, delta),) = next(iter(moves))
    if delta < 0:
        raise ProofFailed("P013", f"a loop over {axis} runs backwards")
    return axis, delta


def _shifted(box: Box, moves: Sequence[tuple[str, int]]) -> Box:
    """Return a box that many items further along each axis."""
    if not moves:
        return box
    start = dict(box.start)
    for axis, number in moves:
        start[axis] = start.get(axis, 0) + number
    return Box(box.at, box.tensor, box.size, tuple(sorted(start.items())), box.loops)


def _boxes(ends: ReadEnds, nest: Nest, prefill: Place, decode: Place) -> tuple[Box, ...]:
    """Return the decode boxes of one span, after checking that the prefill boxes are the same elements."""
    theirs = _side(ends, ends.prefill, prefill, nest.bytes)
    ours = _side(ends, ends.decode, decode, nest.bytes)
    moved = tuple(_translate(box, ends) for box in theirs)
    if moved != ours and _elements(moved) != _elements(ours):
        raise ProofFailed("P015", f"a span of {'+'.join(nest.tensors)} connects different elements")
    last = max((b.at + b.size + sum((t.count - 1) * t.step for t in b.loops) for b in ours), default=0)
    if not ours or ours[0].at != 0 or last != nest.bytes:
        raise ProofFailed("P016", f"a span of {'+'.join(nest.tensors)} begins or ends in padding")
    return ours


def _side(ends: ReadEnds, unit: PlacedCache, at: Place, size: int) -> tuple[Box, ...]:
    found = locate(unit, at[0])
    if found is None or at[1] < 0 or size < 1 or at[1] + size > found[0].page:
        raise ProofFailed("P017", f"a span of {size} B at {at} leaves its page")
    part, index = found
    outer = tuple((digit.axis, number * digit.weight) for digit, number in zip(part.outer, index, strict=True))
    key = (id(part), at[1], size)
    if key not in ends.seen:
        ends.seen[key] = explode(part.body, at[1], size)
    return tuple(_shifted(box, outer) for box in ends.seen[key])


def _translate(box: Box, ends: ReadEnds) -> Box:
    """Return a prefill box in decode's local coordinates; layers go through the two units' lists."""
    shift = ends.shift.get(box.tensor, {})
    start = {axis: number + shift.get(axis, 0) for axis, number in box.start}
    theirs = start["layer"]
    start["layer"] = ends.numbers.get(ends.prefill.layers[theirs], -1)
    _check_layers(ends, box.loops, theirs, start["layer"])
    return Box(box.at, box.tensor, box.size, tuple(start.items()), box.loops)


def _check_layers(ends: ReadEnds, turns: tuple[BoxLoop, ...], theirs: int, ours: int) -> None:
    """Check that a span over several layers has the same ones on both sides, from `theirs` and `ours` in the lists."""
    loops = [t for t in turns if t.axis == "layer"]
    if ours >= 0 and not loops:
        return
    moves = [sum(move) for move in product(*(range(0, t.count * t.delta, t.delta) for t in loops))]
    wanted = [ends.prefill.layers[theirs + move] for move in moves]
    if ours < 0 or wanted != [layer for move in moves for layer in ends.decode.layers[ours + move :][:1]]:
        raise ProofFailed("P015", "a span covers different layers")


def _elements(boxes: tuple[Box, ...]) -> list[tuple[int, str, Coordinate]]:
    """Return every element on its own, for spans whose two pages cut them into different boxes."""
    found: list[tuple[int, str, Coordinate]] = []
    for box in boxes:
        if len(found) > MOST_ELEMENTS:
            raise ProofFailed("P015", "a span connects pages that are too different to be compared")
        for turn in product(*(range(t.count) for t in box.loops)):
            start = dict(box.start)
            for n, t in zip(turn, box.loops, strict=True):
                start[t.axis] = start.get(t.axis, 0) + n * t.delta
            at = box.at + sum(n * t.step for n, t in zip(turn, box.loops, strict=True))
            found.append((at, box.tensor, tuple(sorted(start.items()))))
    return sorted(found)


def _region(box: Box, loops: list[tuple[int, tuple[str, int]]]) -> CoordinateSet:
    axes = []
    for axis, start in box.start:
        turns = [(t.count, t.delta) for t in box.loops if t.axis == axis]
        turns += [(count, delta) for count, (moved, delta) in loops if moved == axis]
        if start < 0:
            raise ProofFailed("P015", f"an element of {box.tensor} comes from outside what prefill holds")
        axes.append((axis, progression(start, turns)))
    return CoordinateSet(box.tensor, tuple(axes))


def _check_token(ends: ReadEnds, nest: Nest) -> None:
    """Check that the token step leads to the next row's same element, on either side, up to the end of the page."""
    if nest.token_step is None or not ends.tokens or any(rows < 1 for rows, _, _ in nest.hops):
        raise ProofFailed("P013", "a table of tokens has a nest without a token step")
    for side, unit, at in ((0, ends.prefill, nest.prefill), (1, ends.decode, nest.decode)):
        first = _side(ends, unit, at, nest.bytes)
        for row in _decisive(ends, unit, side, nest, first):
            there = _side(ends, unit, (at[0], at[1] + _reach(nest, side, row)), nest.bytes)
            if there != tuple(_shifted(box, [(ends.tokens[box.tensor], row)]) for box in first):
                raise ProofFailed("P013", f"the token step of {'+'.join(nest.tensors)} is not one token")


def _reach(nest: Nest, side: int, row: int) -> int:
    """Return the distance of row `row` of a page from row 0 by the nest."""
    step = nest.token_step[side] if nest.token_step else 0
    return row * step + sum(row // hop[0] * hop[1 + side] for hop in nest.hops)


def _decisive(ends: ReadEnds, unit: PlacedCache, side: int, nest: Nest, boxes: tuple[Box, ...]) -> Iterable[int]:
    """Return rows that decide all others: the second turn of each loop of the token axis, and the last row.

    A row's place and the nest's distance are both sums over the turns of these loops, if hops are at the ends of tiles.
    """
    rows, axes = _rows(ends, unit, boxes), {box.tensor: ends.tokens[box.tensor] for box in boxes}
    tiles = [{d.weight for d in spots(unit)[tensor].digits if d.axis == axis} for tensor, axis in axes.items()]
    hops = {hop[0] for hop in nest.hops if hop[1 + side]}
    if not all(hops <= weights for weights in tiles):
        return range(1, rows)
    return sorted(row for row in {rows - 1}.union(*tiles) if 0 < row < rows)


def _rows(ends: ReadEnds, unit: PlacedCache, boxes: tuple[Box, ...]) -> int:
    """Return the rows of the token axis in one page of `unit`."""
    if not boxes:
        return 1
    tensor = boxes[0].tensor
    return prod(d.count for d in spots(unit)[tensor].digits if d.axis == ends.tokens[tensor])


def _tokenless(ends: ReadEnds, region: CoordinateSet) -> CoordinateSet:
    """Return what a token table's nest writes for one row: it moves a page's first row, its steps reach the others."""
    axis = ends.tokens[region.tensor]
    if dict(region.axes)[axis] != 1:
        raise ProofFailed("P013", f"a nest of a table of tokens moves more of {region.tensor} than its first row")
    return CoordinateSet(region.tensor, tuple((name, mask) for name, mask in region.axes if name != axis))
