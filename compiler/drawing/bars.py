"""Bars: pieces of a page to scale, level by level: a bar for the page, then one for the body of each loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from kvplan.compiler.drawing.pieces import Around, DrawnPadding, DrawnRows, DrawnSpan, Piece
from kvplan.compiler.words import many

MOST_ROWS = 8  # repetitions of a loop that are drawn one by one
MOST_SEGMENTS = 24
LEFT_OUT = "…"
PADDING = "."


@dataclass(frozen=True, slots=True)
class Segment:
    """`bytes` bytes of a bar. `labels` are its names, the longest first: the bar shows the first that fits, or else a
    `…`. A segment without a name is padding."""

    bytes: int
    labels: tuple[str, ...] = ()
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """One bar: its title, its bytes, its segments in order, and a legend."""

    title: str
    bytes: int
    segments: tuple[Segment, ...]
    legend: tuple[str, ...] = ()

    def lines(self, width: int, hole: str = PADDING) -> list[str]:
        """Return title and bar."""
        return [f"{self.title}, {self.bytes:,} B", bar(self, width, hole)]


def levels(title: str, body: Sequence[Piece], size: int, around: Around = (), which: str = "each") -> list[Level]:
    """Return the bar of `body`, then those of its loops; a loop over a single span needs no bar of its own.

    The first repetition of a loop is drawn; `which` says whether it stands for each of them.
    """
    if len(body) == 1 and isinstance(body[0], DrawnRows) and body[0].loop.count == 1:
        return levels(title, body[0].body, size, (*around, (body[0].loop, 0)), which)
    segments = [segment for piece in body for segment in _segments(piece, around)]
    found = [Level(title, size, tuple(_some(segments)), tuple(legend(p) for p in body if not isinstance(p, DrawnRows)))]
    for rows in (piece for piece in body if isinstance(piece, DrawnRows) and not _repeats_one_span(piece)):
        title, inner = f"{which} of {many(rows.loop.count, rows.loop.axis)}", (*around, (rows.loop, 0))
        found += levels(title, rows.body, rows.loop.step, inner, which)
    return found


def bar(level: Level, width: int, hole: str = PADDING) -> str:
    """Return `| head 0 | head 1 |`: columns in proportion to bytes, at least one; padding is filled with `hole`."""
    total = sum(_drawn(segment, level) for segment in level.segments)
    wide = [max(1, round(width * _drawn(segment, level) / total) - 1) for segment in level.segments]
    for _ in range(sum(wide) + len(wide) - width):
        wide[wide.index(max(wide))] -= max(wide) > 1
    cells = [(segment, _cell(segment, room, hole)) for segment, room in zip(level.segments, wide, strict=True)]
    return f"|{'|'.join(_joined(cells))}|"


def _segments(piece: Piece, around: Around) -> list[Segment]:
    if isinstance(piece, DrawnPadding):
        return [Segment(piece.end - piece.offset)]
    if isinstance(piece, DrawnSpan):
        return [Segment(piece.end - piece.offset, piece.span.drawable.labels(around))]
    if piece.loop.count <= MOST_ROWS:
        return [_row(piece, around, n) for n in range(piece.loop.count)]
    left_out = Segment((piece.loop.count - 4) * piece.loop.step, (LEFT_OUT,), left_out=True)
    return [*(_row(piece, around, n) for n in range(3)), left_out, _row(piece, around, piece.loop.count - 1)]


def _row(rows: DrawnRows, around: Around, index: int) -> Segment:
    drawable = _spans(rows)[0].span.drawable
    return Segment(rows.loop.step, drawable.row((*around, (rows.loop, index)), _repeats_one_span(rows)))


def _repeats_one_span(rows: DrawnRows) -> bool:
    """Whether the rows repeat a single span."""
    spans = [piece for piece in rows.body if not isinstance(piece, DrawnPadding)]
    return len(spans) == 1 and isinstance(spans[0], DrawnSpan)


def _spans(piece: Piece) -> list[DrawnSpan]:
    if isinstance(piece, DrawnRows):
        return [span for inner in piece.body for span in _spans(inner)]
    return [piece] if isinstance(piece, DrawnSpan) else []


def _some(segments: list[Segment]) -> list[Segment]:
    """Keep only the first and the last segments if there are too many to see."""
    if len(segments) <= MOST_SEGMENTS:
        return segments
    head, rest, tail = segments[: MOST_SEGMENTS // 2], segments[MOST_SEGMENTS // 2 : -3], segments[-3:]
    left_out = Segment(sum(segment.bytes for segment in rest), (f"{LEFT_OUT} {len(rest)} more", LEFT_OUT))
    return [*head, left_out, *tail]


def _drawn(segment: Segment, level: Level) -> int:
    """Return the bytes to draw: a left-out segment takes as much room as the smallest one."""
    return min(other.bytes for other in level.segments) if segment.left_out else segment.bytes


def _cell(segment: Segment, width: int, hole: str) -> str:
    if not segment.labels:
        return hole * width
    label = next((label for label in segment.labels if len(label) <= width), LEFT_OUT)
    return label.center(width)


def _joined(cells: list[tuple[Segment, str]]) -> Iterator[str]:
    """Yield cells; adjacent repetitions without room for their numbers become one cell."""
    for numberless, several in groupby(cells, key=_is_numberless):
        every = [cell for _, cell in several]
        yield from [LEFT_OUT.center(sum(map(len, every)) + len(every) - 1)] if numberless else every


def _is_numberless(cell: tuple[Segment, str]) -> bool:
    segment, text = cell
    return text.strip() == LEFT_OUT and (segment.left_out or segment.labels[-1].isdigit())


def legend(piece: Piece) -> str:
    """Return the parts of a piece in words; rows inside rows stand in brackets."""
    if isinstance(piece, DrawnPadding):
        return f"padding {piece.end - piece.offset:,} B"
    if isinstance(piece, DrawnSpan):
        return piece.span.drawable.legend(piece.span)
    inner = " | ".join(f"[{legend(part)}]" if isinstance(part, DrawnRows) else legend(part) for part in piece.body)
    return f"{many(piece.loop.count, piece.loop.axis)}, {piece.loop.step:,} B each: {inner}"
