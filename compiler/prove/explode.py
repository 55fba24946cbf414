"""Explode: the inverse of place. It returns the elements in [start, start + length) of a page, as boxes with loops.

Law: the boxes of a range are exactly the elements whose bytes lie in it, each once, with its local coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.tree import BodyLoop, Element, Tree

Coordinate = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BoxLoop:
    """`count` repetitions `step` bytes apart, each `delta` items further along `axis`."""

    step: int
    count: int
    axis: str
    delta: int


class Box(NamedTuple):
    """Elements of `tensor`: the first lies `at` bytes after the range's start, at coordinate `start`.

    A tuple, because a proof makes and compares hundreds of thousands.
    """

    at: int
    tensor: str
    size: int
    start: Coordinate
    loops: tuple[BoxLoop, ...]


def explode(body: tuple[Tree, ...], start: int, length: int) -> tuple[Box, ...]:
    """Return the boxes of a range of a page, in order of address. Raises ProofFailed (P001) if it cuts an element."""
    found = [box for node in body for box in _node(node, start - node.offset, length)]
    return _joined(sorted((_plain(box) for box in found), key=lambda box: (box.at, box.tensor)))


def _node(node: Tree, start: int, length: int) -> list[Box]:
    if isinstance(node, Element):
        if start >= node.size or start + length <= 0:
            return []
        if start > 0 or start + length < node.size:
            raise ProofFailed("P001", f"a span cuts an element of {node.tensor!r}")
        return [Box(-start, node.tensor, node.size, (), ())]
    if not node.step or not node.count:
        return []
    low, high = max(0, -(-start // node.step)), min(node.count, (start + length) // node.step)
    first, last = max(0, start // node.step), min(node.count - 1, (start + length - 1) // node.step)
    if low >= high:
        return [box for i in range(first, last + 1) for box in _iteration(node, i, start, length)]
    whole = [_repeat(box, node, low, high - low) for box in _iteration(node, low, start, length)]
    edges = [box for i in (first, last) if not low <= i < high for box in _iteration(node, i, start, length)]
    return whole + edges


def _iteration(loop: BodyLoop, index: int, start: int, length: int) -> list[Box]:
    """Return the boxes of one iteration that lie in the range."""
    inner = start - index * loop.step
    found = [box for node in loop.body for box in _node(node, inner - node.offset, length)]
    return [box._replace(start=((loop.axis, index * loop.weight), *box.start)) for box in found]


def _repeat(box: Box, loop: BodyLoop, index: int, count: int) -> Box:
    return box._replace(loops=(BoxLoop(loop.step, count, loop.axis, loop.weight), *box.loops))


def _plain(box: Box) -> Box:
    """Return a box in normal form: digits of an axis added up, loops of one turn dropped, continued loops joined."""
    start: dict[str, int] = {}
    for axis, index in box.start:
        start[axis] = start.get(axis, 0) + index
    turns: list[BoxLoop] = []
    for turn in sorted((t for t in box.loops if t.count > 1), key=lambda t: (-t.step, t.axis)):
        last = turns[-1] if turns else None
        inner = turn.count * turn.step, turn.count * turn.delta
        if last and last.axis == turn.axis and (last.step, last.delta) == inner:
            turns[-1] = BoxLoop(turn.step, last.count * turn.count, turn.axis, turn.delta)
        else:
            turns.append(turn)
    return Box(box.at, box.tensor, box.size, tuple(sorted(start.items())), tuple(turns))


def _joined(boxes: list[Box]) -> tuple[Box, ...]:
    """Return boxes in order of address, each joined with the last one of its tensor if it continues that."""
    found: list[Box] = []
    last: dict[str, int] = {}
    for box in boxes:
        before = last.get(box.tensor)
        longer = None if before is None else _longer(found[before], box)
        if before is None or longer is None:
            last[box.tensor] = len(found)
            found.append(box)
        else:
            found[before] = longer
    return tuple(found)


def _longer(one: Box, other: Box) -> Box | None:
    """Join two boxes if `other` is the next turns of the outermost loop of `one`; None otherwise."""
    for depth in (1, 0):
        if len(one.loops) >= depth and len(one.loops) - depth in (len(other.loops), len(other.loops) - 1):
            joined = _continued(one, other, depth)
            if joined:
                return joined
    return None


def _continued(one: Box, other: Box, depth: int) -> Box | None:
    inner = one.loops[depth:]
    outer = other.loops[: len(other.loops) - len(inner)]
    moved = {axis: start - dict(one.start)[axis] for axis, start in other.start if start != dict(one.start).get(axis)}
    loops = {(turn.step, turn.axis, turn.delta) for turn in (*one.loops[:depth], *outer)}
    if other.loops[len(outer) :] != inner or len(moved) != 1 or len(loops) > 1:
        return None
    count, more = (one.loops[0].count if depth else 1), (outer[0].count if outer else 1)
    (axis, far), distance = next(iter(moved.items())), other.at - one.at
    step, along, delta = next(iter(loops)) if loops else (distance, axis, far)
    if (distance, far, along) != (count * step, count * delta, axis) or (inner and inner[0].step > step):
        return None
    return _plain(one._replace(loops=(BoxLoop(step, count + more, axis, delta), *inner)))
