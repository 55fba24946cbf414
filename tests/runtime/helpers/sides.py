"""Digests of all that an engine has, for any reader: the shares of its workers add up, however it is laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import ALL, CONTEXT, Interval, Needs, Side
from kvplan.runtime.checksum.checksum import EVERY, Sums, TensorShare, add
from kvplan.runtime.checksum.elements import MASK, TensorField, fields
from kvplan.runtime.checksum.rows import Sample, SampledTokens
from kvplan.runtime.memory.register import Pool


def of_side(
    pool: Pool,
    tables: Tables,
    tokens: Interval,
    lengths: Mapping[str, Interval] | None = None,
    needs: Mapping[str, Needs] | None = None,
    sample: Sample = EVERY,
) -> Sums:
    """A worker's share of the digests of a request, over the groups in `tables`.

    The shares of all workers of an engine, `added` up, are those of any other engine with the same content: what
    several workers hold counts on the lowest of them. `needs` say by cache which tokens are there where not all are,
    `lengths` the ranges that are not the context's.
    """
    ranges, shard = {CONTEXT: tokens, **(lengths or {})}, pool.side.workers[pool.worker].shard
    sums = Sums()
    for share in _elected(pool.side, pool.worker):
        group = share.field.group
        if group.name in tables:
            need = (needs or {}).get(share.field.cache, ALL)
            asked = SampledTokens(ranges[group.length], need, ((group, shard),), sample)
            add(sums, pool, share, asked, tables)
    return sums


def added(*shares: Sums) -> Sums:
    """The sum of the shares of several workers."""
    sums = Sums()
    for share in shares:
        for key, value in share.items():
            sums[key] = (sums.get(key, 0) + value) & MASK
    return sums


def _elected(side: Side, worker: int) -> list[TensorShare]:
    """The shares whose lowest holder is this worker. Raises PlanFormatError if two workers hold half a share each."""
    shard = side.workers[worker].shard
    lower = [(field, side.workers[number].shard) for number in range(worker) for field in fields(side, number)]
    return [
        TensorShare(field, _left(field, [other for other, of in lower if _alike(other, field, of == shard)]), {})
        for field in fields(side, worker)
    ]


def _alike(one: TensorField, other: TensorField, same_shard: bool) -> bool:
    """Whether two fields are of one tensor, and of the same shard of its tokens."""
    return (one.cache, one.tensor) == (other.cache, other.tensor) and (other.group.shards == 1 or same_shard)


def _left(field: TensorField, lower: Sequence[TensorField]) -> frozenset[int]:
    """The layers that none of some fields of lower workers has."""
    left = field.layers
    for other in lower:
        apart = any(low >= high for low, high in (_common(other.ranges[a], field.ranges[a]) for a in field.ranges))
        if not apart and other.layers & left and other.ranges != field.ranges:
            text = f"held {dict(other.ranges)} and {dict(field.ranges)} by two workers"
            raise PlanFormatError(f"{field.tensor!r} of {field.cache!r} is {text}: it cannot be checked")
        left = left if apart else left - other.layers
    return left


def _common(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])
