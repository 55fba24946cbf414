"""Landing: the pieces of prefill pages and their places in the pages of one decode worker.

A piece is a nest of a read with the planes of its two workers. Law: laid out on the decode side, the pieces of one
worker cover every byte that its reads move exactly once, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from string import ascii_lowercase, ascii_uppercase

from kvplan.compiler.drawing.pieces import Around, PageLoop, PageSpan
from kvplan.compiler.drawing.tensors import TOKEN
from kvplan.compiler.errors import BadInput
from kvplan.dsl.lang.dtypes import size
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan import planes as names
from kvplan.plan.types import Interval, Loop, Nest, Place, Plan, Planes, Read, View, Worker

PREFILL, DECODE = 0, 1


@lru_cache(maxsize=64)
def numbered(worker: Worker) -> tuple[tuple[names.Plane, Planes], ...]:
    """Return every plane of a worker by number, with its entry in the plan."""
    return tuple(zip(names.planes(worker), names.entries(worker), strict=True))


def entry(worker: Worker, plane: int) -> Planes:
    """Return a plane's entry in the plan."""
    return numbered(worker)[plane][1]


def interval(worker: Worker, read: Read, nest: Nest, axis: str, held: Interval) -> Interval | None:
    """Return the global interval of a nest on a split axis, None if its tensors do not have that axis.

    It comes from the decode worker's pages: the index at the first byte and at the last one. If the axis is stored in
    tiles it is `held`, the interval of the whole read.
    """
    first = nest.decode[0]
    last = first + sum((loop.count - 1) * loop.decode[0] for loop in nest.loops)
    end = nest.decode[1] + nest.bytes - 1 + sum((loop.count - 1) * loop.decode[1] for loop in nest.loops)
    if not _has(entry(worker, first), nest, axis):
        return None
    start = next((where[0] for cache, name, where in worker.holds if (cache, name) == (read.cache, axis)), 0)
    low, high = _index(worker, first, nest.decode[1], axis, start), _index(worker, last, end, axis, start)
    return held if low is None or high is None or not held[0] <= low <= high < held[1] else (low, high + 1)


def _has(entry: Planes, nest: Nest, axis: str) -> bool:
    inside = [name for view in entry.views if view.tensor in nest.tensors for name, _, _ in view.axes]
    return axis in inside or axis in [name for name, _, _ in entry.loops]


def _index(worker: Worker, plane: int, offset: int, axis: str, start: int) -> int | None:
    """Return the global index on `axis` of a byte of a page, None if the page does not determine it."""
    found, entry = numbered(worker)[plane]
    if axis in dict(found.at):
        return dict(found.at)[axis]
    indices = {_digit(view, offset, axis) for view in entry.views}
    indices.discard(None)
    return start + (indices.pop() or 0) if len(indices) == 1 else None


def _digit(view: View, offset: int, axis: str) -> int | None:
    """Return the index on `axis` of the element at `offset`, None if there is no element or the axis is in tiles."""
    rest, found = offset - view.offset, []
    for name, count, width in view.axes:
        turn = min(rest // width, count - 1)
        rest -= turn * width
        found += [turn] if name == axis else []
    return found[0] if len(found) == 1 and 0 <= rest < size(view.dtype) else None


@dataclass(frozen=True, slots=True)
class LandingSpan:
    """The spans of `nest`, from prefill worker `read.worker` to decode worker `reader`; pieces of a pair have letters.

    Places count from the start of each worker, not of the read. `holds` are the global intervals on split axes that it
    moves. `rows` are the rows of a page of either side in a table of tokens, which are drawn one after the other (0, 0
    in a table of pages).
    """

    letter: str
    reader: int
    read: Read
    nest: Nest
    holds: tuple[tuple[str, Interval], ...]
    rows: Place = (0, 0)

    @property
    def spans(self) -> int:
        return math.prod(loop.count for loop in self.nest.loops)

    @property
    def close(self) -> bool:
        """Whether consecutive tokens adjoin on both sides, within a tile if there are tiles."""
        return self.nest.token_step == (self.nest.bytes, self.nest.bytes)

    @property
    def joined(self) -> bool:
        """Whether a run of tokens of any length is one span."""
        return self.close and not self.nest.hops


@dataclass(frozen=True, slots=True)
class LetteredSpan:
    """A piece in a bar: `A k+v head 0-1`, a shorter form, or the letter alone."""

    letter: str
    piece: LandingSpan = field(compare=False, repr=False)

    def labels(self, around: Around) -> tuple[str, ...]:
        held = ", ".join(f"{axis} {ranges(range(*_narrowed(axis, where, around)))}" for axis, where in self.piece.holds)
        words = ([self.letter, "+".join(self.piece.nest.tensors), held], [self.letter, held], [self.letter])
        return tuple(" ".join(word for word in some if word) for some in words)

    def row(self, around: Around, lone: bool) -> tuple[str, ...]:
        loop, index = around[-1]
        axis = loop.axis
        held = next((where for name, where in self.piece.holds if name == axis), None)
        number = ranges(range(*_narrowed(axis, held, around))) if held else str(index)
        if not lone:
            return f"{axis} {number}", number
        names = self.labels(around)
        return (
            names if held else (*(f"{name} {axis} {number}" for name in names), f"{self.letter} {number}", self.letter)
        )

    def legend(self, span: PageSpan) -> str:
        """Return nothing: letters have a table."""
        return ""


def _narrowed(axis: str, where: Interval, around: Around) -> Interval:
    """Return the share of an interval that these repetitions of the loops over its axis have."""
    low, high = where
    for loop, index in around:
        if loop.axis == axis and (high - low) % loop.count == 0:
            each = (high - low) // loop.count
            low, high = low + index * each, low + (index + 1) * each
    return low, high


@dataclass(frozen=True, slots=True)
class LandedPages:
    """Planes of one worker with equal spans in them, and the pieces of these spans."""

    side: int
    worker: int
    planes: tuple[names.Plane, ...]
    spans: tuple[PageSpan, ...]
    pieces: tuple[LandingSpan, ...]

    @property
    def bytes(self) -> int:
        return self.planes[0].page

    @property
    def written(self) -> int:
        """The bytes of the page in any of the spans."""
        return sum(span.bytes * span.count for span in self.spans)


def pieces(plan: Plan, reader: int) -> tuple[LandingSpan, ...]:
    """Return the pieces of decode worker `reader`, in the plan's order. Raises BadInput (S024) without that worker."""
    if not 0 <= reader < len(plan.reads):
        known = f"{plan.decode.key or 'the side'!r} has 0 to {len(plan.reads) - 1}"
        raise BadInput("S024", f"there is no decode worker {reader}, {known}", "give --worker one of these")
    kinds = dict.fromkeys((read.groups, read.cache) for read in plan.reads[reader])
    return tuple(piece for kind in kinds for piece in _of_kind(plan, reader, kind))


def laid(piece: LandingSpan, end: int) -> Iterator[tuple[int, PageSpan]]:
    """Yield the piece's place in every plane of its worker on one side: (plane, span). Loops over planes are expanded.

    If runs of tokens are one span, all tokens of the page are one.
    """
    nest = piece.nest
    first = (nest.prefill, nest.decode)[end]
    over = [loop for loop in nest.loops if step(loop, end)[0]]
    inside = [PageLoop(loop.axis, loop.count, step(loop, end)[1]) for loop in nest.loops if loop not in over]
    inside += [] if piece.joined else _token_loops(piece, end)
    order = tuple(sorted(inside, key=lambda loop: -loop.step))
    size = nest.bytes * (piece.rows[end] if piece.joined else 1)
    for point in product(*(range(loop.count) for loop in over)):
        plane, offset = (
            first[i] + sum(n * step(loop, end)[i] for n, loop in zip(point, over, strict=True)) for i in (0, 1)
        )
        yield plane, PageSpan(offset, size, order, LetteredSpan(piece.letter, piece))


def planes_of(piece: LandingSpan) -> Iterator[Place]:
    """Yield the planes that the piece connects: (of the prefill worker, of the decode worker)."""
    nest = piece.nest
    over = [loop for loop in nest.loops if loop.prefill[0] or loop.decode[0]]
    for point in product(*(range(loop.count) for loop in over)):
        turns = list(zip(point, over, strict=True))
        yield (
            nest.prefill[0] + sum(n * loop.prefill[0] for n, loop in turns),
            nest.decode[0] + sum(n * loop.decode[0] for n, loop in turns),
        )


def step(loop: Loop, end: int) -> Place:
    """Return (planes, bytes) of one turn on one side."""
    return (loop.prefill, loop.decode)[end]


def worker_of(piece: LandingSpan, end: int) -> int:
    """Return the worker on that side."""
    return (piece.read.worker, piece.reader)[end]


def pages(plan: Plan, found: Sequence[LandingSpan], side: int) -> list[LandedPages]:
    """Return the pages of one side that the pieces touch: planes with equal spans once, ordered by worker and plane.

    If prefill workers take turns of the tokens of a page, only the first has spans: the others' have the same places.
    """
    laid_in: dict[tuple[int, int], list[tuple[PageSpan, LandingSpan]]] = {}
    for piece in found:
        for number, span in laid(piece, side):
            laid_in.setdefault((worker_of(piece, side), number), []).append((span, piece))
    alike: dict[tuple[object, ...], LandedPages] = {}
    for (worker, number), every in sorted(laid_in.items(), key=lambda item: item[0]):
        plane, _ = numbered((plan.prefill, plan.decode)[side].workers[worker])[number]
        there = sorted(_first_shard(plan, every), key=lambda both: both[0].offset)
        spans, moved = tuple(span for span, _ in there), tuple(piece for _, piece in there)
        key = (worker, plane.page, plane.part, spans)
        pages = alike.setdefault(key, LandedPages(side, worker, (), spans, moved))
        alike[key] = replace(pages, planes=(*pages.planes, plane))
    return list(alike.values())


def _first_shard(plan: Plan, there: Sequence[tuple[PageSpan, LandingSpan]]) -> list[tuple[PageSpan, LandingSpan]]:
    shards = [plan.prefill.workers[piece.read.worker].shard for _, piece in there]
    return [both for both, shard in zip(there, shards, strict=True) if shard == min(shards)]


def _of_kind(plan: Plan, reader: int, kind: tuple[str, str]) -> list[LandingSpan]:
    reads = [read for read in plan.reads[reader] if (read.groups, read.cache) == kind]
    paged = all(read.table.per_page for read in reads)
    nests = [(read, nest) for read in reads for nest in (read.placed.per_page if paged else read.placed.per_token)]
    return [_piece(plan, reader, read, nest, _letter(number)) for number, (read, nest) in enumerate(nests)]


def _piece(plan: Plan, reader: int, read: Read, nest: Nest, letter: str) -> LandingSpan:
    source, worker = plan.prefill.workers[read.worker], plan.decode.workers[reader]
    found = [(axis, interval(worker, read, nest, axis, held)) for axis, held in read.holds]
    holds = tuple((axis, where) for axis, where in found if where)
    rows = _rows(entry(source, nest.prefill[0]), nest), _rows(entry(worker, nest.decode[0]), nest)
    return LandingSpan(letter, reader, read, nest, holds, rows if nest.token_step else (0, 0))


def _letter(number: int) -> str:
    """Return A to Z, a to z, then A2 and so on: as few characters as possible."""
    known = ascii_uppercase + ascii_lowercase
    again, which = divmod(number, len(known))
    return f"{known[which]}{again + 1 if again else ''}"


def _rows(entry: Planes, nest: Nest) -> int:
    """Return the rows of the token axis in one page."""
    axes = next((view.axes for view in entry.views if view.tensor in nest.tensors), ())
    return math.prod(count for axis, count, _ in axes if axis.partition("/")[0] == TOKEN)


def _token_loops(piece: LandingSpan, end: int) -> list[PageLoop]:
    """Return the rows of a page as loops: one, plus one for every size of tile."""
    nest, rows = piece.nest, piece.rows[end]
    if nest.token_step is None:
        return []
    edges = [1, *sorted(hop[0] for hop in nest.hops if hop[0] < rows), rows]
    far = [edge * nest.token_step[end] + sum(edge // hop[0] * hop[1 + end] for hop in nest.hops) for edge in edges]
    pairs = zip(edges, edges[1:], far, strict=False)
    return [PageLoop(TOKEN, -(-after // before), at) for before, after, at in pairs if after > before]
