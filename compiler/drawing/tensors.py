"""The tensors of a page as pieces: a plan's views in words and as bars."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from kvplan.compiler.drawing.bars import levels
from kvplan.compiler.drawing.pieces import Around, PageLoop, PageSpan, Piece, gaps, pieces
from kvplan.compiler.words import many
from kvplan.dsl.lang.dtypes import size
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.planes import Plane
from kvplan.plan.types import Group, Planes, View, Worker

WIDTH = 72  # columns
TOKEN, ROW, LAYER = "token", "row", "layer"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a worker, the source of all pictures of it: its tensors, and the global indices in them.

    `kernel` are its tokens. `starts` has the first index on every axis that is split over workers or planes, `layers`
    the layers inside. Sizes are bytes.
    """

    cache: str
    part: str | None
    bytes: int
    stride: int
    kernel: int
    views: tuple[View, ...]
    layers: tuple[int, ...]
    starts: tuple[tuple[str, int], ...]

    def at(self, axis: str, local: int) -> int:
        """Return the global index on an axis."""
        if axis == LAYER and self.layers:
            return self.layers[local]
        return dict(self.starts).get(axis, 0) + local

    def tensors(self) -> tuple[View, ...]:
        """Return the views; a token axis counts rows if several tokens make one."""
        return tuple(_by_row(view) if tokens_per_row(view, self.kernel) > 1 else view for view in self.views)


def page_of(worker: Worker, entry: Planes, group: Group, plane: Plane | None = None) -> Page:
    """Return the page of a plane of `entry`, which belongs to `group`; of its first plane if none is given."""
    at = dict(plane.at) if plane else {axis: indices[0] for axis, indices, _ in entry.loops}
    starts = {axis: where[0] for cache, axis, where in worker.holds if cache == entry.cache} | at
    return Page(
        cache=entry.cache,
        part=entry.part,
        bytes=entry.page_bytes,
        stride=entry.stride,
        kernel=group.kernel,
        views=entry.views,
        layers=entry.layers,
        starts=tuple(sorted(starts.items())),
    )


@dataclass(frozen=True, slots=True)
class DrawnTensor:
    """A tensor of a page, with the global indices of its items."""

    view: View
    page: Page

    def labels(self, around: Around) -> tuple[str, ...]:
        return (self.view.tensor,)

    def row(self, around: Around, lone: bool) -> tuple[str, ...]:
        inner = around[-1][0]
        local = sum(index * loop.weight for loop, index in around if loop.name == inner.name)
        number = ranges(self.page.at(inner.name, local + n) for n in range(inner.weight))
        return f"{inner.name} {number}", number

    def legend(self, span: PageSpan) -> str:
        """Return `exponent 448 B (64 row x 7 tile x u8), 64 rows of 7 B, 8 B apart`."""
        axes = [f"{loop.count:,} {loop.axis}" for loop in span.loops]
        apart = [f"{many(count, axis)} of {each:,} B, {step:,} B apart" for axis, count, each, step in gaps(span)]
        total = span.bytes * span.count
        return ", ".join([f"{self.view.tensor} {total:,} B ({' x '.join([*axes, self.view.dtype])})", *apart])


def page_spans(page: Page) -> list[PageSpan]:
    """Return the tensors of a page as they lie on a worker, one element each, for all pictures of the page."""
    loops = ((view, tuple(PageLoop(*axis) for axis in view.axes)) for view in page.tensors())
    return [PageSpan(view.offset, size(view.dtype), over, DrawnTensor(view, page)) for view, over in loops]


def page_pieces(page: Page) -> tuple[Piece, ...]:
    """Return the tensors of a page, and its padding."""
    return pieces(page_spans(page), page.bytes, whole=True)


def draw(page: Page) -> list[str]:
    """Return the lines of one page, level by level."""
    drawn = levels("page", page_pieces(page), page.bytes)
    return [line for level in drawn for line in (*level.lines(WIDTH), *(f"  {said}" for said in level.legend))]


def tokens_per_row(view: View, kernel: int) -> int:
    """Return the tokens that make a row of a tensor's token axis, in a page of `kernel` tokens; 1 in a state."""
    rows = prod(count for axis, count, _ in view.axes if axis.partition("/")[0] == TOKEN)
    return kernel // rows if kernel else 1


def _by_row(view: View) -> View:
    return replace(view, axes=tuple((_row(axis), count, step) for axis, count, step in view.axes))


def _row(axis: str) -> str:
    name, slash, weight = axis.partition("/")
    return (ROW if name == TOKEN else name) + slash + weight
