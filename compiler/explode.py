"""Explode: the inverse of place. Which elements lie in [start, start + length) of a page, as boxes with loops.

Law: the boxes of a range are exactly the elements whose bytes lie in it, each once, with its local coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.tree import Cell, Loop, Tree

Coordinate = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """`count` repetitions `step` bytes apart, each `delta` items further along `axis`."""

    step: int
    count: int
    axis: str
    delta: int


@dataclass(frozen=True, slots=True)
class Box:
    """Elements of `tensor`: the first lies `at` bytes after the range's start, at coordinate `start`."""

    at: int
    tensor: str
    size: int
    start: Coordinate
    turns: tuple[Turn, ...]


def explode(body: tuple[Tree, ...], start: int, length: int) -> tuple[Box, ...]:
    """Boxes of a range of a page, in order of address. Raises ProofFailed (P001) where an element is cut."""
    found = [box for node in body for box in _node(node, start - node.offset, length)]
    return tuple(sorted((_plain(box) for box in found), key=lambda box: (box.at, box.tensor)))


def _node(node: Tree, start: int, length: int) -> list[Box]:
    if isinstance(node, Cell):
        return _cell(node, start, length)
    return _loop(node, start, length)


def _cell(cell: Cell, start: int, length: int) -> list[Box]:
    if start >= cell.size or start + length <= 0:
        return []
    if start > 0 or start + length < cell.size:
        raise ProofFailed("P001", f"a span cuts an element of {cell.tensor!r}")
    return [Box(-start, cell.tensor, cell.size, (), ())]


def _loop(loop: Loop, start: int, length: int) -> list[Box]:
    if not loop.step or not loop.count:
        return []
    low, high = max(0, -(-start // loop.step)), min(loop.count, (start + length) // loop.step)
    first, last = max(0, start // loop.step), min(loop.count - 1, (start + length - 1) // loop.step)
    if low >= high:
        return [box for i in range(first, last + 1) for box in _iteration(loop, i, start, length)]
    whole = [_repeat(box, loop, low, high - low) for box in _iteration(loop, low, start, length)]
    edges = [box for i in (first, last) if not low <= i < high for box in _iteration(loop, i, start, length)]
    return whole + edges


def _iteration(loop: Loop, index: int, start: int, length: int) -> list[Box]:
    """The boxes of one iteration that lie in the range."""
    inner = start - index * loop.step
    found = [box for node in loop.body for box in _node(node, inner - node.offset, length)]
    return [replace(box, start=((loop.axis, index * loop.weight), *box.start)) for box in found]


def _repeat(box: Box, loop: Loop, index: int, count: int) -> Box:
    return replace(box, turns=(Turn(loop.step, count, loop.axis, loop.weight), *box.turns))


def _plain(box: Box) -> Box:
    """A box in one normal form: digits of an axis added up, loops of one turn dropped, loops that continue joined."""
    start: dict[str, int] = {}
    for axis, index in box.start:
        start[axis] = start.get(axis, 0) + index
    turns: list[Turn] = []
    for turn in sorted((t for t in box.turns if t.count > 1), key=lambda t: (-t.step, t.axis)):
        last = turns[-1] if turns else None
        inner = turn.count * turn.step, turn.count * turn.delta
        if last and last.axis == turn.axis and (last.step, last.delta) == inner:
            turns[-1] = Turn(turn.step, last.count * turn.count, turn.axis, turn.delta)
        else:
            turns.append(turn)
    return Box(box.at, box.tensor, box.size, tuple(sorted(start.items())), tuple(turns))
