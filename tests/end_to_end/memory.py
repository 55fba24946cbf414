"""The memory of one worker, filled and checked by naive indexing: every byte of a cache follows from its coordinate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.labels import Atlas, Labels, NeededTokens, TableBlocks, atlas, paged, paint, table_of
from kvplan.compiler.check.oracle import OraclePlane, planes
from kvplan.plan.block_tables import Ring, Table, blocks
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks, Needs

Bytes = npt.NDArray[np.uint8]
# No byte of a cache has these values.
EMPTY, PADDED = 0xF0, 0xF1
# Behind any token.
FAR = 1 << 40


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of worker `number`, with `ids` logical blocks or slots in every group: `allocations` own the bytes.

    `planes` are views of them by name: (kernel blocks or slots, bytes of a page); `stored` says what is in them.
    """

    side: BoundSide
    number: int
    ids: int
    stored: Mapping[str, OraclePlane]
    allocations: tuple[Bytes, ...]
    planes: Mapping[str, Bytes]

    def gap(self, plane: str, block: int) -> Bytes:
        """The bytes between a page and the next one of its plane; none behind the last."""
        view = self.planes[plane]
        size = view.strides[0] - view.shape[1] if block + 1 < len(view) else 0
        return np.lib.stride_tricks.as_strided(view[block], (view.shape[1] + size,), (1,))[view.shape[1] :]


def allocate(side: BoundSide, number: int, ids: int, fill: int) -> Memory:
    """Memory full of `fill` for worker `number`, with `ids` logical blocks or slots in every group."""
    return _allocated(Memory(side, number, ids, planes(side, side.workers[number]), (), {}), fill)


def _allocated(empty: Memory, fill: int) -> Memory:
    """Memory like that of `empty`.

    Blocks of all planes of a group lie side by side where a row of them is as long as their stride; groups lie over
    each other where they share ids and their logical blocks are equally long; any others one plane behind the other.
    """
    by_group = {g.name: [p for p in empty.stored.values() if p.group.name == g.name] for g in empty.side.groups}
    arenas: dict[tuple[object, ...], list[list[OraclePlane]]] = {}
    for name, mine in by_group.items():
        sizes = {p.stride * p.group.ratio for p in mine}
        key = (mine[0].group.arena, *sizes) if len(sizes) == 1 else (name,)
        if mine:
            arenas.setdefault((name,) if _fused(mine) else key, []).append(mine)
    allocations: list[Bytes] = []
    views: dict[str, Bytes] = {}
    for groups in arenas.values():
        blocks = {p.name: empty.ids * p.group.ratio for mine in groups for p in mine}
        room = max(sum(p.stride * blocks[p.name] for p in mine) for mine in groups)
        allocations.append(np.full(room, fill, np.uint8))
        for mine in groups:
            views |= _views(allocations[-1], mine, blocks)
    return replace(empty, allocations=tuple(allocations), planes=views)


def _fused(mine: list[OraclePlane]) -> bool:
    return sum(p.page for p in mine) == mine[0].stride and len(mine) > 1 and len({p.stride for p in mine}) == 1


def _views(memory: Bytes, mine: list[OraclePlane], blocks: Mapping[str, int]) -> dict[str, Bytes]:
    at, found = 0, {}
    for p in mine:
        count, step = blocks[p.name], p.page if _fused(mine) else p.stride * blocks[p.name]
        found[p.name] = np.lib.stride_tricks.as_strided(memory[at:], (count, p.page), (p.stride, 1))
        at += step
    return found


def content(labels: Labels) -> Bytes:
    """One byte for every label, below EMPTY."""
    mixed = (labels.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    found: Bytes = ((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(7)).astype(np.uint32).astype(np.uint8)
    return np.where(found < EMPTY, found, found ^ 0x80).astype(np.uint8)


def stamp(memory: Memory, regions: Atlas, tables: Mapping[str, Table]) -> None:
    """Fill the blocks of `tables` with what the caches hold, whatever a request needs of it."""
    for plane, pages in _pages(memory, tables):
        labels = paint(plane, regions, pages.token)
        memory.planes[plane.name][pages.ids] = np.where(labels < 0, PADDED, content(labels))


def wrong(memory: Memory, regions: Atlas, request: Request, skipped: tuple[str, ...] = ()) -> list[str]:
    """Errors in decode memory that was EMPTY before `request`: needed bytes must have arrived, all others be untouched.

    Padding of the request's own blocks may hold a producer's padding. Bytes behind the last token in the last block
    may be those of prefill if the request allows it.
    """
    every = [(p, pages) for p, pages in _pages(memory, request.decode) if p.cache not in skipped]
    want, loose, behind = _allocated(memory, EMPTY), _gaps(memory, every), _allocated(memory, EMPTY)
    for plane, pages in every:
        needed = paint(plane, regions, pages.token, _wanted(memory.side, plane, request))
        want.planes[plane.name][pages.ids] = np.where(needed < 0, EMPTY, content(needed))
        loose.planes[plane.name][pages.ids] = paint(plane, regions, pages.token) < 0
        if request.whole_last_page:
            rest = paint(plane, regions, *_behind(memory.side, plane, request, pages))
            behind.planes[plane.name][pages.ids] = np.where(rest < 0, EMPTY, content(rest))
    every_byte = zip(memory.allocations, want.allocations, loose.allocations, behind.allocations, strict=True)
    return [
        f"allocation {n}: {bad.size} bytes wrong, the first at {bad[0]}: {got[bad[0]]}, not {right[bad[0]]}"
        for n, (got, right, free, rest) in enumerate(every_byte)
        if (bad := np.flatnonzero((got != right) & ~_may_be(got, free, rest))).size
    ]


def _may_be(got: Bytes, free: Bytes, rest: Bytes) -> npt.NDArray[np.bool_]:
    """Which bytes are a producer's padding, where that is free, or what lies there behind the last token."""
    found: npt.NDArray[np.bool_] = ((free == 1) & (got == PADDED)) | ((rest != EMPTY) & (got == rest))
    return found


def _behind(
    side: BoundSide, plane: OraclePlane, request: Request, pages: TableBlocks
) -> tuple[npt.NDArray[np.int64], NeededTokens]:
    """The tokens of the page that the last needed token is in, and those of them that come behind it."""
    wanted = _wanted(side, plane, request)
    stop = wanted.end - wanted.end % wanted.needs.whole
    last = (pages.token == stop - 1).any(axis=1, keepdims=True)
    return np.where(last, pages.token, -1), NeededTokens(Needs(), stop, FAR)


def _gaps(memory: Memory, every: Sequence[tuple[OraclePlane, TableBlocks]]) -> Memory:
    """Memory with 1 behind the pages of `every` where no page of the same group lies, and 0 elsewhere.

    Pages of another group may lie there: a block belongs to one group at a time.
    """
    found = _allocated(memory, 0)
    for name in dict.fromkeys(plane.group.name for plane, _ in every):
        mine = _allocated(memory, 0)
        for plane, block in ((p, b) for p, pages in every if p.group.name == name for b in pages.ids.tolist()):
            mine.gap(plane.name, block)[:] = 1
        for plane in (p for p in memory.stored.values() if p.group.name == name):
            mine.planes[plane.name][:] = 0
        for whole, one in zip(found.allocations, mine.allocations, strict=True):
            whole |= one
    return found


def ids_of(tables: Mapping[str, Table]) -> int:
    """Logical blocks that hold all ids of a side's tables, and two more."""
    return max(int(blocks(table).ids.max(initial=0)) for table in tables.values()) + 3


def _pages(memory: Memory, tables: Mapping[str, Table]) -> list[tuple[OraclePlane, TableBlocks]]:
    worker = memory.side.workers[memory.number]
    pages = {g.name: paged(memory.side, worker, g, table_of(tables, g)) for g in memory.side.groups}
    return [(p, pages[p.group.name]) for p in memory.stored.values() if pages[p.group.name].ids.size]


def _wanted(side: BoundSide, plane: OraclePlane, request: Request) -> NeededTokens:
    c = next(c for c in side.caches if c.name == plane.cache)
    return NeededTokens(c.needs, *request.range_of(c))


def regions_of(sides: tuple[BoundSide, BoundSide], requests: Sequence[Request]) -> Atlas:
    """Labels for every byte that any table of the requests has room for."""
    ends = [
        _room(side, getattr(r, word)) for r in requests for side, word in zip(sides, ("prefill", "decode"), strict=True)
    ]
    return atlas(sides[1], max(*ends, *(end for r in requests for _, end in r.ranges())))


def _room(side: BoundSide, tables: Mapping[str, Table]) -> int:
    groups = {g.name: g for g in side.groups}
    held = [(t.first + len(t.ids)) * groups[n].tokens for n, t in tables.items() if isinstance(t, Blocks)]
    rings = [t.at for t in tables.values() if isinstance(t, Ring)]
    return max(max(held, default=0) * side.token_shards + side.token_shards * side.interleave_tokens, *rings, 0)


def refill(memory: Memory, value: int) -> None:
    """All bytes of a worker's memory the same."""
    for allocation in memory.allocations:
        allocation[:] = value
