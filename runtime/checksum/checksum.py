"""Checksums of cache memory that do not depend on its layout: sharding, paging, order and padding leave them alone.

The digest of a layer of a cache is the sum modulo 2^64, over all its elements, of key(layer) * key(token) *
key(tensor, index on every axis, word) * word, words being the 16 (or 8) bits that an element is made of, and keys odd
numbers mixed from coordinates. Shares of several workers add up. A single word that differs is always seen. Any other
difference is missed with odds below 2^-40 per layer, were the keys drawn by chance; keys are known to all, so that
this finds faults, not forgeries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kvplan.plan.block_tables import Table, Tables
from kvplan.plan.errors import BadRequestError
from kvplan.plan.request import Request
from kvplan.plan.types import ALL, CONTEXT, Group, Interval, Ints, Needs, Pair, Plan, Read
from kvplan.runtime.checksum import keys, memory, rows
from kvplan.runtime.checksum import shares as hold
from kvplan.runtime.checksum.rows import Sample, SampledTokens
from kvplan.runtime.checksum.sums import added, check, first_unlike
from kvplan.runtime.errors import RegisterError
from kvplan.runtime.memory.coordinates import LayerSheet, TensorField
from kvplan.runtime.memory.register import Pool

__all__ = ["EVERY", "Sample", "SampledTokens", "Sums", "added", "check", "first_unlike", "of_read", "of_side"]

Sums = dict[tuple[str, int], int]
Places = tuple[Ints, Ints, Ints]


EVERY = Sample()


def of_read(
    plan: Plan,
    prefill_worker: int,
    decode_worker: int,
    role: str,
    pool: Pool,
    request: Request,
    sample: Sample = EVERY,
) -> Sums:
    """Digests by (cache, layer) of what a decode worker reads from a prefill worker, of the memory of one of them.

    `pool` and the tables are those of `role`. Equal on both roles after a right transfer. Raises PlanFormatError where
    the plan does not say what coordinates something has, BadRequestError for tables that are missing or do not hold
    what is needed, RegisterError where `pool` is another worker's.
    """
    _check_pool(plan, role, pool, {"prefill": prefill_worker, "decode": decode_worker})
    tables: Tables = getattr(request, role)
    met, sums = hold.link(plan, prefill_worker, decode_worker), Sums()
    for read in (read for read in plan.reads[decode_worker] if read.worker == prefill_worker):
        pair = next(pair for pair in plan.pairs if pair.name == read.pair)
        asked = _asked(plan, decode_worker, read, pair, request, sample)
        for share in hold.of_pair(met, read, pair, role == "prefill"):
            _add(sums, pool, share, asked, _table(tables, share.field.group))
    return sums


def of_side(
    pool: Pool,
    tables: Tables,
    tokens: Interval,
    lengths: Mapping[str, Interval] | None = None,
    needs: Mapping[str, Needs] | None = None,
    sample: Sample = EVERY,
) -> Sums:
    """A worker's share of the digests of a request by (cache, layer), over the groups in `tables`.

    The shares of all workers of an engine, `added` up, are those of any other engine with the same content: what
    several workers hold counts on the lowest of them. `needs` say by cache which tokens are there where not all are,
    `lengths` the ranges that are not the context's. Raises as `of_read` does.
    """
    spans, shard = {CONTEXT: tokens, **(lengths or {})}, pool.side.workers[pool.worker].shard
    sums: Sums = {}
    for share in hold.elected(pool.side, pool.worker):
        group = share.field.group
        if group.name in tables:
            need = (needs or {}).get(share.field.cache, ALL)
            asked = SampledTokens(_range(spans, group), need, ((group, shard),), sample)
            _add(sums, pool, share, asked, tables[group.name])
    return sums


def _asked(plan: Plan, decode_worker: int, read: Read, pair: Pair, request: Request, sample: Sample) -> SampledTokens:
    theirs = next(group for group in plan.prefill.groups if group.name == pair.prefill)
    ours = next(group for group in plan.decode.groups if group.name == pair.decode)
    turns = (theirs, plan.prefill.workers[read.worker].shard), (ours, plan.decode.workers[decode_worker].shard)
    return SampledTokens(_range({CONTEXT: request.tokens, **request.lengths}, ours), pair.needs, turns, sample)


def _add(sums: Sums, pool: Pool, share: hold.TensorShare, asked: SampledTokens, table: Table) -> None:
    """Add the digests of a share of one tensor to those of its layers."""
    field = share.field
    for layer in share.layers:
        sums.setdefault((field.cache, layer), 0)
    found = _places(field, asked, table)
    for moved in dict.fromkeys(sheet.moved for sheet in field.sheets):
        sheets = [sheet for sheet in field.sheets if sheet.moved == moved and sheet.layer in share.layers]
        for sheet, value in _values(pool, field, sheets, share.want, found):
            key = (field.cache, sheet.layer)
            sums[key] = (sums[key] + value * keys.of_layer(sheet.layer)) & keys.MASK


def _places(field: TensorField, asked: SampledTokens, table: Table) -> Places:
    """Kernel blocks, rows in them, and the keys of the rows that are asked for."""
    if field.tokens_per_row:
        row = asked.rows(field.tokens_per_row)
        return *rows.place(row, field.tokens_per_row, field.group, table), keys.odd(row, keys.named("token"))
    one = np.ones(1 if asked.tokens[0] < asked.tokens[1] else 0, np.int64)
    return one * rows.slot(field.group, table), one * 0, one


def _values(
    pool: Pool, field: TensorField, sheets: list[LayerSheet], want: Mapping[str, Interval], places: Places
) -> Iterator[tuple[LayerSheet, int]]:
    """The sums of sheets that differ in nothing but their layer, whose keys are made once."""
    digits = keys.cropped(field, sheets[0], want) if sheets and places[0].size else None
    if digits is None:
        return
    count, width = memory.words_of(field.size)
    table = keys.table(field, sheets[0], digits, want, count)
    for sheet in sheets:
        words = memory.TensorWords(sheet.plane, sheet.offset, field.rows, digits, count, width)
        yield sheet, memory.total(pool, words, places, table)


def _table(tables: Tables, group: Group) -> Table:
    if group.name not in tables:
        raise BadRequestError(f"group {group.name!r} is missing: its blocks are needed for a checksum")
    return tables[group.name]


def _range(spans: Mapping[str, Interval], group: Group) -> Interval:
    if group.length not in spans:
        raise BadRequestError(f"length {group.length!r} of group {group.name!r} is missing: give its range of tokens")
    return spans[group.length]


def _check_pool(plan: Plan, role: str, pool: Pool, workers: Mapping[str, int]) -> None:
    if role not in workers:
        raise BadRequestError(f"role {role!r} is neither prefill nor decode")
    side, worker = plan.prefill if role == "prefill" else plan.decode, workers[role]
    if pool.worker != worker or pool.side.digest != side.digest:
        said = f"the memory of worker {pool.worker} of {pool.side.key!r}"
        raise RegisterError(f"{said} is not that of worker {worker} of {side.key!r}")
