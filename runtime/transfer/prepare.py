"""Prepare a link: expand the rows of its reads, and make strided descriptor lists of both sides, once for two workers.

Time and memory grow with the number of rows, never with the number of blocks. Rows that continue from one block into
the next on both sides come first, so that gather.py can join them, which NIXL does not do by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, product

import numpy as np

from kvplan.plan import expand as rows
from kvplan.plan import planes as names
from kvplan.plan import spans
from kvplan.plan import stage as stages
from kvplan.plan.blocks import Mask
from kvplan.plan.layers import chosen
from kvplan.plan.types import Interval, Ints, Plan, Read, Side
from kvplan.runtime.errors import AddressError
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.staging.images import image_parts
from kvplan.runtime.staging.staged import StagedEnds
from kvplan.runtime.transfer.prepared import DescriptorBank, PreparedLink, PreparedRead, release, release_banks
from kvplan.runtime.transport.base import PreparedList, Transport

INT32 = (1 << 31) - 1
# Rows that share a prepared list. All lists of a table use the same indices, so fewer rows mean fewer indices, but
# more transfers, of some microseconds each.
BANK = 16


@dataclass(frozen=True, slots=True)
class MemoryExtent:
    """The geometry of a worker's planes in one memory, and which of them may be bridged."""

    geometry: Geometry
    bridges: Mask


def link(plan: Plan, ends: PreparedLink, transport: Transport) -> PreparedLink:
    """Return the link `ends`, which has no entries yet, with the reads of its `layers` prepared.

    Reads that the plan stages get image parts, if the link has that stage and they fit a buffer.

    Raises BadRequestError if a page holds some of the layers and also other layers; AddressError if the plan has
    numbers that cannot be addresses. Then nothing stays prepared.
    """
    sides = (
        _extents(ends.prefill, plan.prefill, ends.prefill_worker),
        _extents(ends.decode, plan.decode, ends.decode_worker),
    )
    reads = [one for one in enumerate(plan.reads[ends.decode_worker]) if one[1].worker == ends.prefill_worker]
    try:
        made = [(number, entry) for number, read in reads for entry in _entries(plan, read, ends, sides)]
        found = [entry for _, entry in made]
        images = [_with_parts(plan, number, entry, ends) for number, entry in made]
    except OverflowError as error:
        raise AddressError("a number of the plan has more than 64 bits: compile the plan again") from error
    entries = [image for image in images if image is not None]
    try:
        for entry in _of_pairs([entry for entry, image in zip(found, images, strict=True) if image is None]):
            entries.append(_with_banks(entry, transport, ends))
        for memory in {image.parts[0].memory for image in entries if image.parts and not ends.at_peer(image)}:
            assert ends.stage is not None
            ends.stage.of(memory).open()
    except Exception:
        release(entries)
        raise
    return replace(ends, entries=tuple(entries))


def check_inside(geometry: Geometry, plane: Ints, offset: Ints, size: Ints) -> None:
    """Check that spans lie in their pages. Raises AddressError."""
    if ((offset < 0) | (size < 1) | (size > geometry.page[plane] - offset)).any():
        raise AddressError("a span of the plan leaves its page: compile the plan again")


def beside(addresses: Ints) -> Ints:
    """Return rows of `PreparedRead.addresses` by decode address, with those joined that are adjacent on both sides.

    A joined row never exceeds a block on either side, so that it does not overlap the next block's.
    """
    addresses = addresses[np.argsort(addresses[:, 1], kind="stable")]
    before, after = addresses[:-1], addresses[1:]
    follows = (after[:, :2] == before[:, :2] + before[:, 2:3]).all(axis=1) & (after[:, 3:] == before[:, 3:]).all(axis=1)
    if not follows.any():
        return addresses
    first = np.flatnonzero(np.concatenate(([True], ~follows)))
    found = addresses[first]
    found[:, 2] = np.add.reduceat(addresses[:, 2], first)
    return found if (found[:, 2] <= found[:, 3:5].min(axis=1)).all() else addresses


def joinable(table: Ints, sides: tuple[Geometry, Geometry], bridges: tuple[Mask, Mask]) -> Mask:
    """Return which rows may continue from one block into the next: dense, or padded the same way on both sides."""
    p, d, size = table[:, rows.P_PLANE], table[:, rows.D_PLANE], table[:, rows.BYTES]
    prefill, decode = sides
    same = prefill.stride[p] == decode.stride[d]
    dense = size == decode.stride[d]
    page = (size == prefill.page[p]) & (size == decode.page[d])
    start = (table[:, rows.P_OFFSET] == 0) & (table[:, rows.D_OFFSET] == 0)
    join: Mask = same & (dense | (page & start & bridges[0][p] & bridges[1][d]))
    return join


def _extents(geometry: Geometry, side: Side, worker: int) -> tuple[MemoryExtent, ...]:
    """Return the extents of a worker's planes in their first memory and, if any has blocks in two, in the second.

    Planes without a second memory have no blocks there.
    """
    bridges, second = shape.bridgeable(geometry, side, worker), names.further(side.workers[worker])
    count = len(geometry.base) - len(second)
    first = MemoryExtent(geometry.chosen(np.arange(count)), bridges[:count])
    if not second:
        return (first,)
    further = np.array([second.get(plane, plane) for plane in range(count)])
    beyond = geometry.chosen(further)
    empty = np.where(further < count, 0, beyond.count)
    return first, MemoryExtent(replace(beyond, count=empty), bridges[further])


Table = tuple[Ints, tuple[rows.TokenRows, ...]]


def _entries(
    plan: Plan, read: Read, ends: PreparedLink, sides: tuple[Sequence[MemoryExtent], ...]
) -> Iterator[PreparedRead]:
    """Yield one read of a link, one entry per memory of its blocks on each side; none if it has none of the layers."""
    page, token = rows.of_read(read)
    if not len(page) and not token:
        raise AddressError(f"a read of worker {read.worker} moves nothing: compile the plan again")
    if ends.layers is not None:
        page, token = chosen(plan, ends.decode_worker, read, (page, token), ends.layers)
    if not len(page) and not token:
        return
    page = rows.joined(page)
    check_inside(ends.prefill, page[:, rows.P_PLANE], page[:, rows.P_OFFSET], page[:, rows.BYTES])
    check_inside(ends.decode, page[:, rows.D_PLANE], page[:, rows.D_OFFSET], page[:, rows.BYTES])
    first = (page if len(page) else token[0].table)[0]
    blocks = [_blocks(some, int(first[plane])) for some, plane in zip(sides, (rows.P_PLANE, rows.D_PLANE), strict=True)]
    apart = any(len(some) > 1 for some in blocks)
    for (theirs, there), (ours, here) in product(*blocks):
        entry = _entry(plan, read, (page, token), (theirs, ours))
        yield replace(entry, within=(there, here)) if apart else entry


def _blocks(extents: Sequence[MemoryExtent], plane: int) -> list[tuple[MemoryExtent, Interval]]:
    """Return the extents that have blocks of a plane, each with the interval of these blocks."""
    counts = [int(extent.geometry.count[plane]) for extent in extents]
    starts = [0, *accumulate(counts)]
    every = zip(extents, pairwise(starts), strict=True)
    return [(extent, blocks) for extent, blocks in every if blocks[0] < blocks[1]]


def _entry(plan: Plan, read: Read, table: Table, extents: tuple[MemoryExtent, MemoryExtent]) -> PreparedRead:
    """Return one read between one memory of each side."""
    page, token = table
    sides, bridges = (extents[0].geometry, extents[1].geometry), (extents[0].bridges, extents[1].bridges)
    join = joinable(page, sides, bridges)
    every = page if len(page) else token[0].table
    blocks = int(sides[0].count[every[0, rows.P_PLANE]]), int(sides[1].count[every[0, rows.D_PLANE]])
    ordered = np.concatenate([page[join], page[~join]])
    pair = spans.pair_named(plan, read.groups)
    sizes = (int(table[:, rows.BYTES].sum()) for table in (ordered, *(one.table for one in token)))
    page_bytes, token_bytes = next(sizes), sum(sizes)
    addresses = _addresses(ordered, sides)
    sums = page_bytes, token_bytes
    return PreparedRead(read, pair, ordered, token, addresses, int(join.sum()), blocks, (), *sums, sides)


def _of_pairs(entries: list[PreparedRead]) -> Iterator[PreparedRead]:
    """Yield the reads of each pair of groups as one, with adjacent rows of their pages joined."""
    alike: dict[object, list[PreparedRead]] = {}
    for entry in entries:
        table = entry.read.table
        key = (entry.pair.name, entry.blocks, entry.within, not table.per_page, not table.per_token)
        alike.setdefault(key, []).append(entry)
    for same in alike.values():
        run_on = np.concatenate([entry.addresses[: entry.joinable] for entry in same])
        others = np.concatenate([entry.addresses[entry.joinable :] for entry in same])
        joined = beside(others)
        # Adjacent rows that together fill their blocks continue into the next block, even if none did alone.
        dense = (joined[:, 2] == joined[:, 3]) & (joined[:, 2] == joined[:, 4])
        addresses = np.concatenate([run_on, joined[dense], joined[~dense]])
        page = np.concatenate([entry.page for entry in same])
        token = tuple(one for entry in same for one in entry.token)
        joinable = len(run_on) + int(dense.sum())
        yield replace(
            same[0],
            page=page,
            token=token,
            addresses=addresses,
            joinable=joinable,
            page_bytes=sum(entry.page_bytes for entry in same),
            token_bytes=sum(entry.token_bytes for entry in same),
        )


def _with_parts(plan: Plan, number: int, entry: PreparedRead, ends: PreparedLink) -> PreparedRead | None:
    """Return read `number` of the decode worker with its image parts; None if it is not staged, or does not fit."""
    way = stages.way(entry.read.table, ends.push)
    packed = way == "pack"
    stage = ends.stage if packed == ends.push else ends.peer_stage
    if not way or stage is None or entry.within is not None:
        return None
    imaged, pool = (ends.decode, ends.prefill) if packed else (ends.prefill, ends.decode)
    between = StagedEnds(packed, imaged, pool, stage.buffer_bytes)
    parts = image_parts(plan, ends.decode_worker, number, ends.layers, between)
    return replace(entry, parts=parts) if parts else None


def _addresses(page: Ints, sides: tuple[Geometry, Geometry]) -> Ints:
    prefill, decode = sides
    p, d = page[:, rows.P_PLANE], page[:, rows.D_PLANE]
    address = prefill.base[p] + page[:, rows.P_OFFSET], decode.base[d] + page[:, rows.D_OFFSET]
    strides, regions = (prefill.stride[p], decode.stride[d]), (prefill.region[p], decode.region[d])
    return np.stack((*address, page[:, rows.BYTES], *strides, *regions, prefill.count[p], decode.count[d]), axis=1)


def _with_banks(entry: PreparedRead, transport: Transport, ends: PreparedLink) -> PreparedRead:
    addresses, size = entry.addresses, min(INT32 // max(entry.blocks), BANK)
    if not size or spans.is_whole(entry.read.table):
        return entry
    prefill, decode = _strided(addresses, 0, ends.prefill), _strided(addresses, 1, ends.decode)
    local, remote = (prefill, decode) if ends.push else (decode, prefill)
    banks: list[DescriptorBank] = []
    try:
        for start, stop in _cut(entry.joinable, len(addresses), size):
            lists = _lists(transport, ends, addresses[start:stop], local[start:stop], remote[start:stop])
            banks.append(DescriptorBank(stop - start, stop <= entry.joinable, *lists))
    except Exception:
        release_banks(banks)
        raise
    return replace(entry, banks=tuple(banks))


def _strided(addresses: Ints, side: int, geometry: Geometry) -> Ints:
    """Return rows (address, bytes, device, stride, count) of one side, 0 for prefill and 1 for decode."""
    address, size, stride, region, count = (addresses[:, n] for n in (side, 2, 3 + side, 5 + side, 7 + side))
    return np.stack((address, size, geometry.regions[region, 2], stride, count), axis=1)


def _lists(
    transport: Transport, ends: PreparedLink, addresses: Ints, local: Ints, remote: Ints
) -> tuple[PreparedList, PreparedList]:
    """Return the prepared lists of both sides. The rows of `addresses` lie in one type of memory on each side."""
    local_type, remote_type = ends.types(*addresses[0, 5:7].tolist())
    prepared = transport.prepare(None, local, local_type)
    try:
        return prepared, transport.prepare(ends.peer, remote, remote_type)
    except Exception:
        prepared.release()
        raise


def _cut(joinable: int, total: int, size: int) -> list[tuple[int, int]]:
    """Return row intervals of at most `size` rows, cut where joinable rows end."""
    edges = sorted({*range(0, joinable, size), *range(joinable, total, size), joinable, total} - {0})
    return list(pairwise([0, *edges])) if total else []
