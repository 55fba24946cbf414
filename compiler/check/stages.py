"""Simulate stages: both hops of a read as lists of copies, composed into one list.

`unpack` reads prefill pages into a buffer as they lie; `pack` writes decode pages from a buffer as they lie.
This module computes the buffer's addresses itself: pages in order, all ranges of each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from kvplan.plan import planes as names
from kvplan.plan.spans import copies, group_named, pair_named
from kvplan.plan.types import PageRange, Plan, Read, Runs

# (prefill plane, prefill offset, decode plane, decode offset, bytes), offsets from the plane's base.
Row = tuple[int, int, int, int, int]
# (plane, offset, offset in the buffer, bytes).
Hop = tuple[int, int, int, int]
# Offset in the buffer by (plane, block, offset in the page) of every range.
Buffer = dict[tuple[int, int], list[tuple[int, int, int]]]


def staged(plan: Plan, number: int, read: Read, runs: Runs, way: str) -> list[Row]:
    """Return the end-to-end copies of a read through a stage, or its direct copies if its table has none.

    Pages that the runs do not fill are sent as far as they are filled. A byte that either hop misses is not copied,
    and the simulation finds it.
    """
    rows = [tuple(row) for row in copies(plan, number, read, runs).tolist()]
    table = read.placed
    if way == "unpack" and table.unpack:
        strides = names.strides(plan.prefill.workers[read.worker]).tolist()
        buffer = _buffer(table.unpack, runs.prefill_block.tolist())
        wire = _pages(buffer, strides)
        copied = [(d, do, at, n) for p, po, d, do, n in rows for at in _buffer_places(buffer, strides, p, po, n)]
        return [(p, po, d, do, n) for (p, po), (d, do), n in composed(wire, copied)]
    if way == "pack" and table.pack:
        strides = names.strides(plan.decode.workers[number]).tolist()
        buffer = _buffer(table.pack, runs.decode_block.tolist())
        places = [(row, at) for row in rows for at in _buffer_places(buffer, strides, *row[2:])]
        packed = [(p, po, at, n) for (p, po, _, _, n), at in places]
        whole = _full_blocks(plan, read, runs)
        wire = _pages({place: parts for place, parts in buffer.items() if place[1] in whole}, strides)
        alone = [(d, do, at, n) for (_, _, d, do, n), at in places if do // strides[d] not in whole]
        return [(p, po, d, do, n) for (p, po), (d, do), n in composed(packed, [*wire, *alone])]
    return rows


def composed(into: Iterable[Hop], out: Iterable[Hop]) -> list[tuple[tuple[int, int], tuple[int, int], int]]:
    """Return (source, target, bytes) of what enters and leaves a buffer, places as (plane, offset)."""
    filled = sorted((at, size, plane, offset) for plane, offset, at, size in into)
    starts = [at for at, *_ in filled]
    found = []
    for plane, offset, low, size in out:
        for at, length, source, start in filled[max(bisect_right(starts, low) - 1, 0) :]:
            if at >= low + size:
                break
            first, end = max(low, at), min(low + size, at + length)
            if first < end:
                found.append(((source, start + first - at), (plane, offset + first - low), end - first))
    return found


def _full_blocks(plan: Plan, read: Read, runs: Runs) -> list[int]:
    """Return the decode blocks whose rows are all in the runs; a state's slot always is."""
    pair = pair_named(plan, read.groups)
    group = group_named(plan.decode, pair.decode)
    if group.store == "state":
        return sorted(set(runs.decode_block.tolist()))
    rows = Counter[int]()
    for block, count in zip(runs.decode_block.tolist(), runs.count.tolist(), strict=True):
        rows[block] += count
    return sorted(block for block, count in rows.items() if count == group.kernel // pair.rows)


def _buffer(ranges: tuple[PageRange, ...], blocks: Iterable[int]) -> Buffer:
    buffer, at = Buffer(), 0
    for block in sorted(set(blocks)):
        for part in ranges:
            for turn in range(part.planes):
                plane = part.plane + turn * part.step
                buffer.setdefault((plane, block), []).append((part.offset, part.bytes, at))
                at += part.bytes
    return buffer


def _pages(buffer: Buffer, strides: list[int]) -> list[Hop]:
    """Return the hop between pages and the buffer."""
    return [
        (plane, block * strides[plane] + offset, at, size)
        for (plane, block), parts in buffer.items()
        for offset, size, at in parts
    ]


def _buffer_places(buffer: Buffer, strides: list[int], plane: int, offset: int, size: int) -> list[int]:
    """Return the place of a page's span in the buffer; empty unless one range has all of it."""
    block, inside = divmod(offset, strides[plane])
    parts = buffer.get((plane, block), [])
    return [at + inside - start for start, length, at in parts if start <= inside and inside + size <= start + length]
