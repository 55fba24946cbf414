"""The tensors of a page as pieces: what a plan's views say of them, in words and as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from kvplan.compiler.drawing.bars import levels
from kvplan.compiler.drawing.pieces import Around, PageSpan, Piece, gaps, pieces
from kvplan.compiler.words import many
from kvplan.dsl.lang.dtypes import size
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.types import Group, Planes, View, Worker

WIDTH = 72  # columns
TOKEN, ROW, LAYER = "token", "row", "layer"


@dataclass(frozen=True, slots=True)
class PageIndex:
    """Global indices of what lies in a page: where every split axis begins, and the layers inside."""

    starts: Mapping[str, int]
    layers: tuple[int, ...]

    def at(self, axis: str, local: int) -> int:
        """The global index on an axis."""
        if axis == LAYER and self.layers:
            return self.layers[local]
        return self.starts.get(axis, 0) + local


def page_index(worker: Worker, entry: Planes) -> PageIndex:
    """The indices in the page of the first plane of an entry of a worker."""
    held = {axis: where[0] for cache, axis, where in worker.holds if cache == entry.cache}
    return PageIndex(held | {axis: indices[0] for axis, indices, _ in entry.loops}, entry.layers)


@dataclass(frozen=True, slots=True)
class DrawnTensor:
    """A tensor of a page, with the global indices of what lies in it."""

    view: View
    index: PageIndex

    def labels(self, around: Around) -> tuple[str, ...]:
        return (self.view.tensor,)

    def row(self, around: Around, lone: bool) -> tuple[str, ...]:
        axis, _, weight = around[-1][0][0].partition("/")
        turns = [(loop[0].partition("/"), index) for loop, index in around]
        local = sum(n * int(each or 1) for (name, _, each), n in turns if name == axis)
        number = ranges(self.index.at(axis, local + n) for n in range(int(weight or 1)))
        return f"{axis} {number}", number

    def legend(self, span: PageSpan) -> str:
        """`exponent 448 B (64 row x 7 tile x u8), 64 rows of 7 B, 8 B apart`."""
        axes = [f"{count:,} {axis}" for axis, count, _ in span.loops]
        apart = [f"{many(count, axis)} of {each:,} B, {step:,} B apart" for axis, count, each, step in gaps(span)]
        total = span.bytes * prod(count for _, count, _ in span.loops)
        return ", ".join([f"{self.view.tensor} {total:,} B ({' x '.join([*axes, self.view.dtype])})", *apart])


def page(entry: Planes, group: Group, worker: Worker) -> tuple[Piece, ...]:
    """The tensors of a page of `group`, and its padding, as they lie on a worker."""
    views, index = by_row(entry.views, group), page_index(worker, entry)
    spans = [PageSpan(view.offset, size(view.dtype), view.axes, DrawnTensor(view, index)) for view in views]
    return pieces(spans, entry.page, whole=True)


def draw(entry: Planes, group: Group, worker: Worker) -> list[str]:
    """The lines of one page, level by level."""
    drawn = levels("page", page(entry, group, worker), entry.page)
    return [line for level in drawn for line in (*level.lines(WIDTH), *(f"  {said}" for said in level.legend))]


def by_row(views: Sequence[View], group: Group) -> tuple[View, ...]:
    """Views in which the token axis is called for what it counts: rows, where several tokens make one."""
    return tuple(
        replace(v, axes=tuple((_row(axis), n, step) for axis, n, step in v.axes)) if tokens_per_row(v, group) > 1 else v
        for v in views
    )


def tokens_per_row(view: View, group: Group) -> int:
    """The tokens that make a row of a tensor's token axis, which a page of a group has one kernel block of."""
    rows = prod(count for axis, count, _ in view.axes if axis.partition("/")[0] == TOKEN)
    return group.kernel // rows if group.kernel else 1


def _row(axis: str) -> str:
    name, slash, weight = axis.partition("/")
    return (ROW if name == TOKEN else name) + slash + weight
