"""Pages drawn in text: a bar to scale for each side, and what its pieces are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvplan.compiler.words import many
from kvplan.dsl.lang.dtypes import size
from kvplan.plan.types import View

BAR = 64
MOST_PIECES = 16
Axes = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class DrawnTensor:
    """One tensor, all its axes that are its own, at `offset` bytes from where it is drawn."""

    offset: int
    bytes: int
    view: View
    axes: Axes


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """`count` bodies, `step` bytes apart, along one axis that several tensors share."""

    offset: int
    axis: str
    count: int
    step: int
    body: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        return (self.count - 1) * self.step + extent(self.body)


@dataclass(frozen=True, slots=True)
class DrawnPadding:
    """Padding."""

    offset: int
    bytes: int


Piece = DrawnTensor | DrawnRows | DrawnPadding


def pieces(views: tuple[View, ...], page: int) -> tuple[Piece, ...]:
    """A page as pieces in the order of their offsets, padding between them and behind them included."""
    found = _pieces([(view, view.offset, view.axes) for view in views])
    return tuple(_padded(found, page))


def extent(body: tuple[Piece, ...]) -> int:
    """Bytes up to the end of the last piece."""
    return max((piece.offset + piece.bytes for piece in body), default=0)


def bar(body: tuple[Piece, ...], page: int, longest: int) -> str:
    """The page as `|name |name |`, to scale: the longest page of the drawing has BAR characters."""
    width = max(1, BAR * page // longest)
    labels = _labels(body)
    edges: list[int] = []
    for _, start in labels:
        # a piece too small to be seen gets one character all the same
        edges.append(max(width * start // page, edges[-1] + 2 if edges else 0))
    text = ""
    for (label, _), at, end in zip(labels, edges, [*edges[1:], width], strict=True):
        text += f"|{_fit(label, end - at - 1)}"
    return text[:width].ljust(width) + "|"


def legend(body: tuple[Piece, ...]) -> list[str]:
    """What the pieces are, one line each."""
    return [_words(piece) for piece in body]


def _pieces(views: list[tuple[View, int, Axes]]) -> list[Piece]:
    """Tensors with the same outer loop, side by side inside one step of it, share that loop."""
    found: list[Piece] = []
    rest = sorted(views, key=lambda item: item[1])
    while rest:
        view, offset, axes = rest[0]
        alike = [item for item in rest if axes and _shares(item, offset, axes[0])]
        if len(alike) < 2:
            found.append(DrawnTensor(offset, _extent(view, axes), view, axes))
            rest = rest[1:]
            continue
        inner = _pieces([(v, at - offset, own[1:]) for v, at, own in alike])
        axis, count, step = axes[0]
        found.append(DrawnRows(offset, axis, count, step, tuple(_padded(inner, step))))
        rest = [item for item in rest if item not in alike]
    return found


def _shares(item: tuple[View, int, Axes], offset: int, loop: tuple[str, int, int]) -> bool:
    _, at, axes = item
    return bool(axes) and axes[0] == loop and at < offset + loop[2]


def _extent(view: View, axes: Axes) -> int:
    return size(view.dtype) + sum((count - 1) * step for _, count, step in axes)


def _padded(found: list[Piece], page: int) -> Iterator[Piece]:
    end = 0
    for piece in found:
        if piece.offset > end:
            yield DrawnPadding(end, piece.offset - end)
        yield piece
        end = max(end, piece.offset + piece.bytes)
    if page > end:
        yield DrawnPadding(end, page - end)


def _fit(label: str, room: int) -> str:
    """The label, or its last word, or as much of it as there is room for."""
    text = label if len(label) <= room else label.split()[-1]
    return text[: max(0, room)].ljust(room)


def _labels(body: tuple[Piece, ...]) -> list[tuple[str, int]]:
    found = []
    for piece in body:
        found += _row_labels(piece) if isinstance(piece, DrawnRows) else [(_name(piece), piece.offset)]
    return found


def _row_labels(rows: DrawnRows) -> list[tuple[str, int]]:
    if rows.count > MOST_PIECES:
        return [(f"{rows.axis} x{rows.count:,}", rows.offset)]
    return [(f"{rows.axis} {index}", rows.offset + index * rows.step) for index in range(rows.count)]


def _name(piece: DrawnTensor | DrawnPadding) -> str:
    return piece.view.tensor if isinstance(piece, DrawnTensor) else "padding"


def _words(piece: Piece) -> str:
    if isinstance(piece, DrawnPadding):
        return f"padding {piece.bytes:,} B"
    if isinstance(piece, DrawnTensor):
        axes = [f"{count:,} {axis}" for axis, count, _ in piece.axes]
        return f"{piece.view.tensor} {piece.bytes:,} B ({' x '.join([*axes, piece.view.dtype])})"
    inner = " | ".join(_words(part) for part in piece.body)
    return f"{many(piece.count, piece.axis)}, {piece.step:,} B each: {inner}"
