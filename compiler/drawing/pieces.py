"""Pieces of a page: spans that repeat together share their loop, and gaps between spans are padding.

Law: the pieces of a page lie in order, and with the padding they make up all its bytes; only spans that overlap from
the beginning still overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PageLoop:
    """`count` turns over `axis`, `step` bytes apart. Axes in tiles are `dim/8` and `dim`."""

    axis: str
    count: int
    step: int

    @property
    def name(self) -> str:
        """The axis without its tiles."""
        return self.axis.partition("/")[0]

    @property
    def weight(self) -> int:
        """The number of items by which a turn moves the index on the axis."""
        return int(self.axis.partition("/")[2] or 1)


# The loops around something with the turn of each, outermost first.
Around = tuple[tuple[PageLoop, int], ...]


class Drawable(Protocol):
    """The content of a span, which draws itself."""

    def labels(self, around: Around) -> tuple[str, ...]:
        """Return its names in a bar, the longest first, for one repetition of every loop around it."""

    def row(self, around: Around, lone: bool) -> tuple[str, ...]:
        """Return names of the innermost repetition by global index, `head 4`, plus its name if it is `lone` there."""

    def legend(self, span: PageSpan) -> str:
        """Describe its parts with all repetitions; empty if another place does."""


@dataclass(frozen=True, slots=True)
class PageSpan:
    """`bytes` bytes of `drawable` at `offset`, repeated by `loops`, outermost first."""

    offset: int
    bytes: int
    loops: tuple[PageLoop, ...]
    drawable: Drawable

    @property
    def end(self) -> int:
        """The first byte behind the last repetition."""
        return self.offset + self.bytes + sum((loop.count - 1) * loop.step for loop in self.loops)

    @property
    def count(self) -> int:
        """The number of repetitions."""
        return prod(loop.count for loop in self.loops)

    @property
    def name(self) -> str:
        """The longest name of its content."""
        return self.drawable.labels(())[0]


@dataclass(frozen=True, slots=True)
class DrawnSpan:
    """A span drawn as one piece, with all its repetitions."""

    offset: int
    end: int
    span: PageSpan


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """The bodies of a loop that their spans share."""

    offset: int
    end: int
    loop: PageLoop
    body: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class DrawnPadding:
    """Bytes [offset, end), which belong to no span."""

    offset: int
    end: int


Piece = DrawnSpan | DrawnRows | DrawnPadding


def gaps(span: PageSpan) -> list[tuple[str, int, int, int]]:
    """Return the loops with gaps between repetitions: (axis, count, bytes of each, bytes apart)."""
    found, size = [], span.bytes
    for loop in reversed(span.loops):
        found += [(loop.axis, loop.count, size, loop.step)] if loop.count > 1 and loop.step != size else []
        size = loop.count * loop.step
    return found[::-1]


def pieces(spans: Iterable[PageSpan], size: int, whole: bool) -> tuple[Piece, ...]:
    """Return the pieces of `size` bytes. A span that shares its outermost loop with no other is one piece if `whole`.

    Loops that interlace are unrolled. A repetition takes its whole step if the last one has room behind it.
    """
    rest = every = sorted(spans, key=lambda span: span.offset)
    found: list[Piece] = []
    while rest:
        together = [span for span in rest if _together(rest[0], span)]
        rest = [span for span in rest if span not in together]
        found.append(_piece(together, rest[0].offset if rest else size, whole))
    if any(one.end > other.offset for one, other in pairwise(found)) and any(span.loops for span in every):
        return pieces((turn for span in every for turn in _unrolled(span)), size, whole)
    return tuple(_padded(found, size))


def _together(first: PageSpan, other: PageSpan) -> bool:
    """Whether both lie in one repetition of the same loop."""
    if not first.loops:
        return other is first
    return other.loops[:1] == first.loops[:1] and other.offset < first.offset + first.loops[0].step


def _piece(together: Sequence[PageSpan], room: int, whole: bool) -> Piece:
    first = together[0]
    if not first.loops:
        return DrawnSpan(first.offset, first.end, first)
    loop = first.loops[0]
    full = first.offset + loop.count * loop.step
    end = full if full <= room else max(span.end for span in together)
    if whole and len(together) == 1:
        return DrawnSpan(first.offset, end, first)
    inner = [replace(span, offset=span.offset - first.offset, loops=span.loops[1:]) for span in together]
    return DrawnRows(first.offset, end, loop, pieces(inner, loop.step, whole))


def _unrolled(span: PageSpan) -> list[PageSpan]:
    if not span.loops:
        return [span]
    loop, *inner = span.loops
    return [replace(span, offset=span.offset + n * loop.step, loops=tuple(inner)) for n in range(loop.count)]


def _padded(found: Iterable[Piece], size: int) -> Iterator[Piece]:
    end = 0
    for piece in found:
        if piece.offset > end:
            yield DrawnPadding(end, piece.offset)
        yield piece
        end = max(end, piece.end)
    if size > end:
        yield DrawnPadding(end, size)
