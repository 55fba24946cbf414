"""Pages cut into lettered spans, as bars to scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kvplan.compiler.explain.draw.bars import LEFT_OUT, Level, Segment, bar
from kvplan.compiler.explain.draw.landing import LandedSpan, LandingSpan, PageRepeat
from kvplan.compiler.words import many
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.types import Interval

WIDTH = 92
MOST_CELLS = 12  # cells of a bar that are repeated one by one
MOST_MARKS = 24
MOST_ZOOMS = 3


@dataclass(frozen=True, slots=True)
class SpanMark:
    """One span of a page."""

    offset: int
    bytes: int
    piece: LandingSpan


@dataclass(frozen=True, slots=True)
class RepeatedMarks:
    """`body`, whose offsets count from `offset`, again and again."""

    offset: int
    turn: PageRepeat
    body: tuple[Node, ...]

    @property
    def bytes(self) -> int:
        return (self.turn.count - 1) * self.turn.step + end(self.body)


Node = SpanMark | RepeatedMarks
Turned = tuple[tuple[PageRepeat, int], ...]


def tree(spans: Iterable[LandedSpan]) -> tuple[Node, ...]:
    """Spans of one page, nested: those that repeat together share their loop; loops that interlace are unrolled.

    Spans that lie on each other stay so.
    """
    rest = every = sorted(spans, key=lambda where: where.offset)
    found: list[Node] = []
    while rest:
        first = rest[0]
        alike = [where for where in rest if _together(first, where)]
        rest = [where for where in rest if not _together(first, where)]
        found.append(_node(first, alike))
    interlaced = any(one.offset + one.bytes > other.offset for one, other in pairwise(found))
    interlaced = interlaced and any(where.turns for where in every)
    return tree(turn for where in every for turn in _unrolled(where)) if interlaced else tuple(found)


def _unrolled(where: LandedSpan) -> list[LandedSpan]:
    if not where.turns:
        return [where]
    first, *inner = where.turns
    return [replace(where, offset=where.offset + n * first.step, turns=tuple(inner)) for n in range(first.count)]


def _together(first: LandedSpan, other: LandedSpan) -> bool:
    if not first.turns:
        return other is first
    return other.turns[:1] == first.turns[:1] and other.offset < first.offset + first.turns[0].step


def _node(first: LandedSpan, alike: Sequence[LandedSpan]) -> Node:
    if not first.turns:
        return SpanMark(first.offset, first.bytes, first.piece)
    inner = [replace(where, offset=where.offset - first.offset, turns=where.turns[1:]) for where in alike]
    return RepeatedMarks(first.offset, first.turns[0], tree(inner))


def end(body: Sequence[Node]) -> int:
    """Bytes up to the end of the last node."""
    return max((node.offset + node.bytes for node in body), default=0)


def cells(body: Sequence[Node], size: int, hole: str = "", turned: Turned = ()) -> list[Segment]:
    """The segments of `size` bytes: spans, holes between them, and one segment for turns that are left out.

    `turned` are the turns of the loops around the body, which narrow what a span is said to hold.
    """
    found: list[Segment] = []
    at = 0
    for node in sorted(body, key=lambda node: node.offset):
        found += [Segment(hole, node.offset - at)] if node.offset > at else []
        found += [_segment(node, turned)] if isinstance(node, SpanMark) else _turns(node, hole, turned)
        at = max(at, node.offset + node.bytes)
    return [*found, Segment(hole, size - at)] if size > at else found


def _turns(node: RepeatedMarks, hole: str, turned: Turned) -> list[Segment]:
    count, width = node.turn.count, node.turn.step
    one = cells(node.body, width, hole, (*turned, (node.turn, 0)))
    if count * len(one) <= MOST_CELLS:
        sizes = [width] * (count - 1) + [end(node.body)]
        every = [cells(node.body, size, hole, (*turned, (node.turn, n))) for n, size in enumerate(sizes)]
        return [cell for turn in every for cell in turn]
    text = f"{LEFT_OUT} {count - 1:,} more like it, every {width:,} B"
    return [
        *one,
        Segment(text, node.bytes - width, (f"{LEFT_OUT} {count - 1:,} more", f"{LEFT_OUT} {count - 1:,}", LEFT_OUT)),
    ]


def _segment(mark: SpanMark, turned: Turned) -> Segment:
    """`A k+v head 0-1`, with less than that, or the letter alone."""
    piece = mark.piece
    held = [f"{axis} {ranges(range(*_narrowed(axis, where, turned)))}" for axis, where in piece.holds]
    words = [[piece.letter, "+".join(piece.nest.tensors), ", ".join(held)], [piece.letter, ", ".join(held)]]
    label, *shorter = [" ".join(word for word in some if word) for some in words]
    return Segment(label, mark.bytes, (*shorter, piece.letter))


def _narrowed(axis: str, where: Interval, turned: Turned) -> Interval:
    """The share of an interval that these turns of the loops over its axis stand for."""
    low, high = where
    for turn, index in turned:
        if turn.axis == axis and (high - low) % turn.count == 0:
            each = (high - low) // turn.count
            low, high = low + index * each, low + (index + 1) * each
    return low, high


def bars(spans: Iterable[LandedSpan], size: int, hole: str, width: int) -> list[str]:
    """One page of `size` bytes, `width` columns wide, then what its loops repeat, as wide as there is room."""
    body = tree(spans)
    zooms = _zooms(body, hole)[: 2 * MOST_ZOOMS]
    return [_bar(_few(cells(body, size, hole)), size, width), *zooms]


def _few(segments: list[Segment]) -> list[Segment]:
    """The first and the last ones where there are too many to be seen."""
    if len(segments) <= MOST_MARKS:
        return segments
    head, rest, tail = segments[:MOST_CELLS], segments[MOST_CELLS:-3], segments[-3:]
    return [*head, Segment(f"{LEFT_OUT} {len(rest)} more", sum(segment.bytes for segment in rest), (LEFT_OUT,)), *tail]


def _bar(segments: list[Segment], size: int, width: int) -> str:
    return bar(Level("", size, tuple(segments), ()), width)


def _zooms(body: Sequence[Node], hole: str, turned: Turned = ()) -> list[str]:
    """The first turn of every loop that was left out, where there is more in it than one span."""
    lines: list[str] = []
    for node in body:
        if not isinstance(node, RepeatedMarks):
            continue
        inner = (*turned, (node.turn, 0))
        one = cells(node.body, node.turn.step, hole, inner)
        if len(one) > 1 and node.turn.count * len(one) > MOST_CELLS:
            lines.append(f"  first of {many(node.turn.count, node.turn.axis)}, {node.turn.step:,} B")
            lines.append(f"  {_bar(_few(one), node.turn.step, WIDTH - 2)}")
        lines += _zooms(node.body, hole, inner)
    return lines
