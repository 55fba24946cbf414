"""Checksums of cache memory that do not depend on its layout: sharding, paging, order and padding do not change them.

The digest of a layer of a cache is the sum modulo 2^64, over all its elements, of key(layer) * key(token) *
key(tensor, index on every axis, word) * word. Words are the 16 (or 8) bits that an element consists of; keys are odd
numbers, hashes of coordinates. The digests of several workers' shares add up. A single different word is always found.
Any other difference would be missed with odds below 2^-40 per layer if the keys were random. The keys are public, so
checksums find faults, not forgeries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kvplan.plan.block_tables import Table, Tables
from kvplan.plan.errors import BadRequestError, PlanFormatError
from kvplan.plan.request import Request
from kvplan.plan.types import CONTEXT, Group, GroupPair, Interval, Ints, Plan, Read
from kvplan.runtime.checksum import memory, rows
from kvplan.runtime.checksum.elements import (
    MASK,
    LayerSheet,
    TensorField,
    cropped,
    fields,
    key_table,
    layer_key,
    name_hash,
    odd_keys,
)
from kvplan.runtime.checksum.rows import Sample as Sample
from kvplan.runtime.checksum.rows import SampledTokens
from kvplan.runtime.errors import ChecksumError, RegisterError
from kvplan.runtime.memory.register import Pool

# Digests by (cache, layer).
Sums = dict[tuple[str, int], int]
# Kernel blocks, rows in them, and keys of the rows, one entry per row.
Places = tuple[Ints, Ints, Ints]
EVERY = Sample()


@dataclass(frozen=True, slots=True)
class TensorShare:
    """The part of a tensor that one worker sums: layers, and the interval of global indices on each axis."""

    field: TensorField
    layers: frozenset[int]
    want: Mapping[str, Interval]


def of_read(
    plan: Plan,
    prefill_worker: int,
    decode_worker: int,
    role: str,
    pool: Pool,
    request: Request,
    sample: Sample = EVERY,
) -> Sums:
    """Return digests of all that a decode worker reads from a prefill worker, computed from the memory of `role`.

    `pool` and the tables are those of `role`. The digests of both roles are equal after a correct transfer. Raises
    PlanFormatError if the plan lacks coordinates, BadRequestError if tables are missing or do not hold the needed
    tokens, RegisterError if `pool` is another worker's.
    """
    _check_pool(plan, role, pool, {"prefill": prefill_worker, "decode": decode_worker})
    both = fields(plan.prefill, prefill_worker), fields(plan.decode, decode_worker)
    tables: Tables = getattr(request, role)
    sums = Sums()
    for read in (read for read in plan.reads[decode_worker] if read.worker == prefill_worker):
        pair = next(pair for pair in plan.group_pairs if pair.name == read.groups)
        _check_holds(plan, read, decode_worker)
        asked = _sample(plan, decode_worker, read, pair, request, sample)
        for share in _shares(both, read, pair, role):
            add(sums, pool, share, asked, tables)
    return sums


def first_unlike(local: Sums, remote: Sums) -> tuple[str, int] | None:
    """Return the (cache, layer) with the lowest layer whose digest differs, or is only in one of the two."""
    unlike = [key for key in local.keys() | remote.keys() if local.get(key) != remote.get(key)]
    return min(unlike, key=lambda key: (key[1], key[0]), default=None)


def check(local: Sums, remote: Sums) -> None:
    """Raises ChecksumError with the first (cache, layer) whose digests differ, and both of them."""
    key = first_unlike(local, remote)
    if key is None:
        return
    here, there = ("none" if sums.get(key) is None else f"{sums[key]:#018x}" for sums in (local, remote))
    where = f"layer {key[1]} of cache {key[0]!r}"
    raise ChecksumError(f"{where} differs: its checksum is {here} here, {there} there. Do not use what arrived")


def _shares(
    both: tuple[tuple[TensorField, ...], tuple[TensorField, ...]], read: Read, pair: GroupPair, role: str
) -> list[TensorShare]:
    """Return the tensor shares that a read covers, which both workers hold, as fields of the side of `role`.

    Raises PlanFormatError if the two sides and the read disagree.
    """
    prefill, decode = _moved(both[0], "prefill", pair.prefill, read), _moved(both[1], "decode", pair.decode, read)
    said, layers = prefill if role == "prefill" else decode, frozenset(read.layers)
    return [TensorShare(said[name], layers, _want(read, pair, prefill[name], decode[name])) for name in sorted(decode)]


def _moved(of_worker: tuple[TensorField, ...], role: str, group: str, read: Read) -> dict[str, TensorField]:
    """Return the fields that a read moves on the worker of `role`, by tensor."""
    names = {name for nests in (read.table.per_page, read.table.per_token) for nest in nests for name in nest.tensors}
    of_group = [field for field in of_worker if (field.cache, field.group.name) == (read.cache, group)]
    moved = {field.tensor: field for field in of_group if field.tensor in names}
    for name in names:
        if name not in moved or not moved[name].layers.issuperset(read.layers):
            text = (
                f"the {role} worker has not all layers {read.layers} of {name!r} of {read.cache!r} in group {group!r}"
            )
            raise PlanFormatError(f"{text}, which a read names: compile the plan again")
    return moved


def _check_holds(plan: Plan, read: Read, decode_worker: int) -> None:
    """Check that both workers name their interval on every split axis; otherwise all would seem to begin at 0."""
    for side, number in ((plan.prefill, read.worker), (plan.decode, decode_worker)):
        said = {axis for cache, axis, _ in side.workers[number].holds if cache == read.cache}
        if missing := sorted({axis for axis, _ in read.holds} - said):
            text = f"worker {number} of {side.key!r} does not say what it holds of {missing} of {read.cache!r}"
            raise PlanFormatError(f"{text}: it cannot be checked")


def _want(read: Read, pair: GroupPair, prefill: TensorField, decode: TensorField) -> dict[str, Interval]:
    shapes = [(field.size, field.tokens_per_row, sorted(field.ranges)) for field in (prefill, decode)]
    name, said = f"{decode.tensor!r} of {read.cache!r}", dict(read.holds)
    if shapes[0] != shapes[1] or decode.tokens_per_row not in (0, pair.rows):
        raise PlanFormatError(f"{name} is (bytes, tokens a row, axes) {shapes[0]} and {shapes[1]}")
    want = {axis: _common(prefill.ranges[axis], decode.ranges[axis]) for axis in decode.ranges}
    for axis, common in want.items():
        if common != (takes := said.get(axis, decode.ranges[axis])):
            text = f"a read of {name} takes {takes} of axis {axis!r}, its workers have {common} in common"
            raise PlanFormatError(f"{text}: it cannot be checked")
    return want


def _common(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])


def _sample(
    plan: Plan, decode_worker: int, read: Read, pair: GroupPair, request: Request, sample: Sample
) -> SampledTokens:
    prefill = next(group for group in plan.prefill.groups if group.name == pair.prefill)
    decode = next(group for group in plan.decode.groups if group.name == pair.decode)
    shards = plan.prefill.workers[read.worker].shard, plan.decode.workers[decode_worker].shard
    tokens = _tokens({CONTEXT: request.tokens, **request.lengths}, decode)
    return SampledTokens(tokens, pair.needs, ((prefill, shards[0]), (decode, shards[1])), sample)


def add(sums: Sums, pool: Pool, share: TensorShare, asked: SampledTokens, tables: Tables) -> None:
    """Add the digests of a share of one tensor to those of its layers."""
    field = share.field
    for layer in share.layers:
        sums.setdefault((field.cache, layer), 0)
    places = _places(field, asked, tables)
    for moved in dict.fromkeys(sheet.moved for sheet in field.sheets):
        sheets = [sheet for sheet in field.sheets if sheet.moved == moved and sheet.layer in share.layers]
        for sheet, value in _values(pool, field, sheets, share.want, places):
            key = (field.cache, sheet.layer)
            sums[key] = (sums[key] + value * layer_key(sheet.layer)) & MASK


def _places(field: TensorField, asked: SampledTokens, tables: Tables) -> Places:
    """Return the kernel blocks, rows in them, and keys of the rows that are sampled."""
    if field.tokens_per_row:
        row = asked.rows(field.tokens_per_row)
        # If no tokens of a group are needed, its table may lack blocks.
        where = (
            rows.place(row, field.tokens_per_row, field.group, _table(tables, field.group)) if row.size else (row, row)
        )
        return *where, odd_keys(row, name_hash("token"))
    ones = np.ones(1 if asked.tokens[0] < asked.tokens[1] else 0, np.int64)
    return ones * rows.slot(field.group, _table(tables, field.group)), ones * 0, ones


def _values(
    pool: Pool, field: TensorField, sheets: list[LayerSheet], want: Mapping[str, Interval], places: Places
) -> Iterator[tuple[LayerSheet, int]]:
    """Yield sheets with their sums. The sheets differ only in their layer, so one table of keys serves all."""
    digits = cropped(field, sheets[0], want) if sheets and places[0].size else None
    if digits is None:
        return
    count, width = memory.words_of(field.size)
    keys = key_table(field, sheets[0], digits, want, count)
    for sheet in sheets:
        words = memory.TensorWords(sheet.plane, sheet.offset, field.rows, digits, count, width)
        yield sheet, memory.total(pool, words, places, keys)


def _table(tables: Tables, group: Group) -> Table:
    if group.name not in tables:
        raise BadRequestError(f"group {group.name!r} is missing: its blocks are needed for a checksum")
    return tables[group.name]


def _tokens(ranges: Mapping[str, Interval], group: Group) -> Interval:
    if group.length not in ranges:
        raise BadRequestError(f"length {group.length!r} of group {group.name!r} is missing: give its range of tokens")
    return ranges[group.length]


def _check_pool(plan: Plan, role: str, pool: Pool, workers: Mapping[str, int]) -> None:
    if role not in workers:
        raise BadRequestError(f"role {role!r} is neither prefill nor decode")
    side, worker = plan.prefill if role == "prefill" else plan.decode, workers[role]
    if pool.worker != worker or pool.side.digest != side.digest:
        text = f"the memory of worker {pool.worker} of {pool.side.key!r}"
        raise RegisterError(f"{text} is not that of worker {worker} of {side.key!r}")
