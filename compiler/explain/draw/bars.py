"""Pages as text, to scale, level by level: a bar for the page, then one for each of its parts, down to one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvplan.compiler.emit.page_drawing import DrawnPadding, DrawnRows, DrawnTensor, Piece, legend, pieces
from kvplan.compiler.words import many
from kvplan.plan.types import Planes

WIDTH = 72
MOST = 8  # iterations of a loop that are drawn one by one
LEFT_OUT = "…"


@dataclass(frozen=True, slots=True)
class Segment:
    """`bytes` bytes of a bar. Without a label they are padding; the first of `shorter` that has room stands for it."""

    label: str
    bytes: int
    shorter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """One bar: what it is, its bytes, what lies in it in order, and what that is made of."""

    title: str
    bytes: int
    segments: tuple[Segment, ...]
    legend: tuple[str, ...]


def draw(planes: Planes, starts: Mapping[str, int], width: int = WIDTH) -> list[str]:
    """The lines of one page. `starts` has the first global index that the worker holds of a split axis."""
    lines: list[str] = []
    for level in levels("page", pieces(planes.views, planes.page), planes.page, starts):
        lines += [f"{level.title}, {level.bytes:,} B", bar(level, width), *(f"  {line}" for line in level.legend)]
    return lines


def levels(title: str, body: Sequence[Piece], bytes: int, starts: Mapping[str, int]) -> list[Level]:
    """The bar of `body`, then those of the loops in it; a loop of one is not worth a bar."""
    if len(body) == 1 and isinstance(body[0], DrawnRows) and body[0].count == 1:
        return levels(title, body[0].body, bytes, starts)
    segments = [segment for piece in body for segment in _segments(piece, starts)]
    said = tuple(line for piece in body if not isinstance(piece, DrawnRows) for line in legend((piece,)))
    found = [Level(title, bytes, tuple(segments), said)]
    for piece in body:
        if isinstance(piece, DrawnRows):
            found += levels(f"each of {many(piece.count, piece.axis)}", piece.body, piece.step, starts)
    return found


def bar(level: Level, width: int = WIDTH) -> str:
    """`| head 0 | head 1 |`: columns in proportion to bytes, one at least; padding is dotted."""
    total = sum(_drawn(segment, level) for segment in level.segments)
    wide = [max(1, round(width * _drawn(segment, level) / total) - 1) for segment in level.segments]
    for _ in range(sum(wide) + len(wide) - width):
        wide[wide.index(max(wide))] -= max(wide) > 1
    return f"|{'|'.join(_cell(s, w) for s, w in zip(level.segments, wide, strict=True))}|"


def _segments(piece: Piece, starts: Mapping[str, int]) -> list[Segment]:
    if isinstance(piece, DrawnPadding):
        return [Segment("", piece.bytes)]
    if isinstance(piece, DrawnTensor):
        return [Segment(piece.view.tensor, piece.bytes)]
    first = starts.get(piece.axis, 0)
    turns = [Segment(f"{piece.axis} {first + index}", piece.step) for index in range(piece.count)]
    left_out = Segment(LEFT_OUT, (piece.count - 4) * piece.step)
    return turns if piece.count <= MOST else [*turns[:3], left_out, turns[-1]]


def _drawn(segment: Segment, level: Level) -> int:
    """What is left out takes as much room as the smallest part."""
    return min(other.bytes for other in level.segments) if segment.label == LEFT_OUT else segment.bytes


def _cell(segment: Segment, width: int) -> str:
    known = (segment.label, *segment.shorter)
    label = next((label for label in known if len(label) <= width), known[-1])
    return label[:width].center(width) if segment.label else "." * width
