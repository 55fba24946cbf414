"""The pages of a request in every plane of a side, by naive indexing, and the bytes that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.copy_list import Key
from kvplan.compiler.check.labels import Atlas, Labels, NeededTokens, TableBlocks, atlas, paged, table_of
from kvplan.compiler.check.oracle import OraclePlane, planes
from kvplan.plan.block_tables import Ring, Table
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks


@dataclass(frozen=True, slots=True)
class PlanePages:
    """A plane, and its blocks that the request names."""

    plane: OraclePlane
    pages: TableBlocks


def pages_of(side: BoundSide, tables: Mapping[str, Table]) -> dict[Key, PlanePages]:
    """Return every plane of every worker of a side, with the blocks of one request."""
    found: dict[Key, PlanePages] = {}
    for worker in side.workers:
        blocks = {group.name: paged(side, worker, group, table_of(tables, group)) for group in side.groups}
        for plane in planes(side, worker).values():
            found[worker.number, plane.name] = PlanePages(plane, blocks[plane.group.name])
    return found


def needed(decode: BoundSide, plane: OraclePlane, request: Request) -> NeededTokens:
    """Return the tokens of a plane that decode needs."""
    cache = next(cache for cache in decode.caches if cache.name == plane.cache)
    return NeededTokens(cache.needs, *request.range_of(cache))


def all_needed(need: NeededTokens, plane: OraclePlane, token: Labels) -> bool:
    """Whether every byte of a plane's pages with these tokens is needed; a row that is not full yet is not."""
    firsts = {n: token[:, ::n] for n in (field.tensor.tokens_per_row for field in plane.fields)}
    lasts = ((n, first[first >= 0] + n - 1) for n, first in firsts.items())
    return need.first < need.end and all(need.test(last, n).all() for n, last in lasts)


def labelled(prefill: BoundSide, decode: BoundSide, request: Request) -> Atlas:
    """Return labels for every byte that a table of the request has room for."""
    rooms = _room(prefill, request.prefill), _room(decode, request.decode)
    return atlas(decode, max(*rooms, *(end for _, end in request.ranges())))


def _room(side: BoundSide, tables: Mapping[str, Table]) -> int:
    """Return one past the last token that the side's tables have room for."""
    round_ = side.token_shards * side.interleave_tokens
    every = [(group, table_of(tables, group)) for group in side.groups]
    blocks = [(t.first + len(t.ids)) * g.tokens * side.token_shards + round_ for g, t in every if isinstance(t, Blocks)]
    return max((*blocks, *(table.at for _, table in every if isinstance(table, Ring))), default=0)
