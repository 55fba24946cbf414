"""The spans of a block that a plan moves between an object and an engine's memory, with their places in both.

Spans have the same pattern in all planes of a nest, and repeat by its loops, so few numbers describe those of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from kvplan.plan import planes as names
from kvplan.plan import spans
from kvplan.plan.blocks import Mask, distinct
from kvplan.plan.types import Interval, Ints, Plan, Read, Runs, Worker
from kvplan.runtime.errors import AddressError
from kvplan.runtime.memory.arrays import TOP
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.staging.copies import Repeat, by_planes, run_on
from kvplan.store.header import PIECE, Bytes
from kvplan.store.layout import StoredPart
from kvplan.store.memory import EngineMemory, PieceSpans

PREFILL, DECODE = 0, 1
T = TypeVar("T")


class EngineBody:
    """The body of an object in an engine's memory. `get` fills bytes that no span covers with zeros."""

    def __init__(self, some: Sequence[PieceSpans], memory: EngineMemory) -> None:
        self._spans, self._memory = some, memory
        self.bytes = sum(each.bytes for each in some)

    def get(self, low: int, out: Bytes) -> None:
        some = self._of_piece(low, out)
        if sum(each.bytes for each in some) < out.nbytes:
            out[:] = 0
        self._memory.get(some, out)

    def put(self, low: int, piece: Bytes) -> None:
        self._memory.put(self._of_piece(low, piece), piece)

    def _of_piece(self, low: int, piece: Bytes) -> list[PieceSpans]:
        return [found for each in self._spans for found in each.between(low, low + piece.nbytes)]


# Reads with the same key have the same runs: (pair, prefill shard, decode shard).
RunsKey = tuple[str, int, int]
# Columns of the places where a nest begins, one row per plane and read: byte of the body, address, device, first byte
# and end of its page in the body, start and end of its plane in the engine's memory.
PAGE, BASE, DEVICE, PAGE_START, PAGE_END, PLANE_START, PLANE_END = range(7)


class Extent(NamedTuple):
    """Blocks of a plane in an engine's memory: start and end address, device, block stride, numbers, memory type."""

    start: int
    end: int
    device: int
    stride: int
    blocks: Interval
    type: str


@dataclass(frozen=True, slots=True)
class NestShape:
    """The common pattern of nests: spans of `bytes` bytes, and loops that go forwards in a stored page.

    Loops, the steps of a `token` (None in a table of pages) and hops have the stored side first. Runs that are whole
    pages of `rows` rows use the table of pages, if there is one. The engine's `blocks` are `stride` bytes apart in
    memory of NIXL's type `memory`.
    """

    key: RunsKey
    bytes: int
    loops: tuple[Repeat, ...]
    token: tuple[int, int] | None
    hops: tuple[Repeat, ...]
    rows: int
    tables: tuple[bool, bool]
    stride: int
    blocks: Interval
    memory: str


@dataclass(frozen=True, slots=True)
class StoredNest:
    """Nests of a plan with one pattern, and the origins of each. Side `stored` of the plan is stored."""

    shape: NestShape
    origins: Ints
    stored: int

    def of_block(self, runs: Runs) -> Iterator[PieceSpans]:
        """Yield the spans of a block's `runs`. Raises AddressError if one leaves its page or the engine's memory."""
        shape = self.shape
        runs = spans.pick(runs, self._own_runs(runs))
        runs = spans.in_tiles(runs, [(size, *_swapped(self.stored, (one, other))) for size, one, other in shape.hops])
        for count in distinct(runs.count).tolist():
            some = spans.pick(runs, np.flatnonzero(runs.count == count))
            inside, at = (self._first(some, side) for side in (0, 1))
            yield from self._pieces(inside, at + some[2 * (1 - self.stored)] * shape.stride, count)

    def _own_runs(self, runs: Runs) -> Mask:
        """Return the runs that use this nest's table and lie in its blocks, as a mask."""
        page, token = self.shape.tables
        block, (first, end) = runs[2 * (1 - self.stored)], self.shape.blocks
        whole = np.full(len(runs.count), not token) if not (page and token) else runs.count == self.shape.rows
        found: Mask = (whole if self.shape.token is None else ~whole) & (block >= first) & (block < end)
        return found

    def _first(self, runs: Runs, side: int) -> Ints:
        """Return the bytes from the nest's begin to each run's, in a page of the stored side (0) or the engine (1)."""
        row = runs[2 * _swapped(self.stored, (0, 1))[side] + 1]
        further = sum(row // hop[0] * hop[1 + side] for hop in self.shape.hops)
        return row * (self.shape.token or (0, 0))[side] + further

    def _pieces(self, inside: Ints, at: Ints, count: int) -> Iterator[PieceSpans]:
        shape, start = self.shape, self.origins
        rows = [(count, *shape.token)] if shape.token else []
        size, loops = run_on(shape.bytes, [*shape.loops, *rows])
        # In the order of the engine's addresses, because the bytes of a piece are in the processor's cache anyway.
        ordered = tuple(sorted(loops, key=lambda loop: -abs(loop[2])))
        made = PieceSpans(start[:, PAGE], start[:, BASE], start[:, DEVICE], inside, at, size, ordered, shape.memory)
        self._check(made, 1, PAGE, PAGE_START, PAGE_END)
        self._check(made, 2, BASE, PLANE_START, PLANE_END)
        long = (start[:, PAGE_END] - start[:, PAGE_START]).max() > PIECE
        yield from _cut(made, start[:, PAGE_START]) if long else [made.ordered()]

    def _check(self, made: PieceSpans, side: int, origin: int, start: int, end: int) -> None:
        low, high = made.reach(side)
        first = self.origins[:, origin]
        if (first + low < self.origins[:, start]).any() or (first + high > self.origins[:, end]).any():
            raise AddressError("a span leaves its page, or the engine's memory: the block table or the plan is wrong")


def stored_nests(plan: Plan, stored: int, pools: Sequence[Pool], part: StoredPart) -> tuple[StoredNest, ...]:
    """Return all nests of a plan in the planes of a part. Its side `stored`, PREFILL or DECODE, is stored."""
    found: dict[NestShape, list[tuple[int, ...]]] = {}
    for worker, reads in enumerate(plan.reads):
        for read in reads:
            for shape, origin in _of_read(plan, stored, worker, read, part, pools):
                found.setdefault(shape, []).append(origin)
    return tuple(StoredNest(shape, np.array(sorted(some), np.int64), stored) for shape, some in found.items())


def _of_read(
    plan: Plan, stored: int, worker: int, read: Read, part: StoredPart, pools: Sequence[Pool]
) -> Iterator[tuple[NestShape, tuple[int, ...]]]:
    ends = plan.prefill.workers[read.worker], plan.decode.workers[worker]
    key, pages = (read.groups, ends[0].shard, ends[1].shard), _pages(part)
    memory = _extents(pools[read.worker if stored == DECODE else worker].geometry, ends[1 - stored])
    rows, tables = (
        spans.pair_named(plan, read.groups).page_rows,
        (bool(read.table.per_page), bool(read.table.per_token)),
    )
    for nest in (*read.placed.per_page, *read.placed.per_token):
        apart = by_planes(nest)
        every = [(loop.count, *_swapped(stored, (loop.prefill[1], loop.decode[1]))) for loop in apart.loops]
        back = [sum((loop[0] - 1) * loop[side] for loop in every if loop[1] < 0) for side in (1, 2)]
        loops = tuple((count, -one, -other) if one < 0 else (count, one, other) for count, one, other in every)
        hops = tuple((size, *_swapped(stored, (prefill, decode))) for size, prefill, decode in nest.hops)
        token = _swapped(stored, nest.token_step) if nest.token_step else None
        for first in apart.firsts[np.isin(apart.firsts[:, 2 * stored], part.planes)].tolist():
            (number, inside), (plane, offset) = _swapped(stored, (first[0:2], first[2:4]))
            start, end = pages[number]
            for extent in memory[plane]:
                base = extent.start - extent.blocks[0] * extent.stride + offset + back[1]
                shape = NestShape(
                    key, nest.bytes, loops, token, hops, rows, tables, extent.stride, extent.blocks, extent.type
                )
                yield shape, (start + inside + back[0], base, extent.device, start, end, extent.start, extent.end)


def _swapped(stored: int, both: tuple[T, T]) -> tuple[T, T]:
    """Convert (prefill, decode) to (stored side, engine), or back."""
    return both if stored == PREFILL else (both[1], both[0])


def _pages(part: StoredPart) -> dict[int, Interval]:
    """Return the first byte and the end of every plane's page in the body of a part."""
    ends = list(accumulate(part.pages, initial=0))
    return dict(zip(part.planes, pairwise(ends), strict=True))


def _extents(geometry: Geometry, worker: Worker) -> list[tuple[Extent, ...]]:
    """Return the extents of every plane: one, or one for its first blocks and a second for the others."""
    second = names.further(worker)

    def extent(number: int, blocks: Interval) -> Extent:
        region = geometry.region[number]
        place = int(geometry.base[number]), int(geometry.end[number]), int(geometry.device[number])
        return Extent(*place, int(geometry.stride[number]), blocks, geometry.mem_types[region])

    found = list[tuple[Extent, ...]]()
    for number in range(len(names.planes(worker))):
        if number not in second:
            found.append((extent(number, (0, TOP)),))
            continue
        count = int(geometry.count[number])
        found.append((extent(number, (0, count)), extent(second[number], (count, TOP))))
    return found


def _cut(made: PieceSpans, start: Ints) -> Iterator[PieceSpans]:
    """Yield the same spans, cut so that none lies in two pieces: pages, from `start` on, end at multiples of PIECE."""
    for offset in distinct(made.page - start).tolist():
        some = made.page - start == offset
        yield from _uncrossed(made.of_planes(some, offset)._replace(inside=made.inside + offset))


def _uncrossed(made: PieceSpans) -> Iterator[PieceSpans]:
    while made.loops and _crosses(made):
        made = made.unrolled()
    if not _crosses(made):
        yield made.ordered()
        return
    size = np.full_like(made.at, made.size)
    runs = spans.in_tiles(Runs(made.at, made.inside, made.at, made.at, size), [(PIECE, 1, 0)])
    for some in distinct(runs.count).tolist():
        of_size = runs.count == some
        cut = made._replace(inside=runs.prefill_token[of_size], at=runs.decode_token[of_size], size=some)
        yield cut.ordered()


def _crosses(made: PieceSpans) -> bool:
    return bool((made.inside // PIECE != (made.inside + made.extent - 1) // PIECE).any())


@dataclass
class RequestBodies:
    """The bodies of a request's objects: `nests` by part, and the runs of reads by stored block."""

    nests: Mapping[str, tuple[StoredNest, ...]]
    runs: Mapping[RunsKey, Mapping[int, Runs]]
    memory: EngineMemory
    made: list[EngineBody] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The bytes that the plan moves for all bodies made so far."""
        return sum(body.bytes for body in self.made)

    def body(self, position: int, part: StoredPart) -> EngineBody:
        """Make the body of a part at a position. Raises AddressError."""
        some = [each for nest in self.nests[part.name] for each in self._of_block(nest, position)]
        self.made.append(body := EngineBody(some, self.memory))
        return body

    def _of_block(self, nest: StoredNest, position: int) -> Iterator[PieceSpans]:
        runs = self.runs.get(nest.shape.key, {})
        return nest.of_block(runs[position]) if position in runs else iter(())


def by_block(runs: Runs, stored: int) -> dict[int, Runs]:
    """Group runs by the block of the stored side that they lie in."""
    order = np.argsort(block := runs[2 * stored], kind="stable")
    numbers, first = np.unique(block[order], return_index=True)
    return {n: spans.pick(runs, at) for n, at in zip(numbers.tolist(), np.split(order, first[1:]), strict=False)}
