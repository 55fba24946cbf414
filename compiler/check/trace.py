"""Trace every copy of one request by the plan's own functions and tables. docs/trace.md is its contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.request import Copy, check
from kvplan.compiler.check.stages import staged
from kvplan.compiler.errors import BadInput
from kvplan.plan import planes as names
from kvplan.plan import request as requests
from kvplan.plan.block_tables import Table, blocks
from kvplan.plan.errors import BadRequestError
from kvplan.plan.match import rule_of
from kvplan.plan.request import Request
from kvplan.plan.spans import pair_named
from kvplan.plan.types import Group, Plan, Read, Side

STAGED = ("unpack", "pack")


def copies(plan: Plan, request: Request, way: str = "direct") -> list[Copy]:
    """Return all copies, sorted by destination; none for an empty range (decode has all of it).

    Copies are end-to-end, even those through a stage if `way` is unpack or pack.
    Raises BadInput (Q…) if the request's tables do not fit the plan.
    """
    found = [
        copy
        for number, reads in enumerate(plan.reads)
        for read in reads
        for copy in _of_read(plan, number, read, request, way)
    ]
    planes = [{plane.name: i for i, plane in enumerate(names.planes(w))} for w in plan.decode.workers]
    return sorted(found, key=lambda c: (c.to_worker, planes[c.to_worker][c.to_plane], c.to_offset))


def ways(plan: Plan) -> tuple[str, ...]:
    """Return the ways that a plan's bytes can go: direct, and through each stage that a read of it has."""
    tables = [read.table for reads in plan.reads for read in reads]
    return "direct", *(way for way in STAGED if any(getattr(table, way) for table in tables))


def _of_read(plan: Plan, number: int, read: Read, request: Request, way: str) -> list[Copy]:
    source, reader = plan.prefill.workers[read.worker], plan.decode.workers[number]
    try:
        runs = requests.runs(rule_of(plan, pair_named(plan, read.groups)), request, (source.shard, reader.shard))
    except BadRequestError as error:
        raise BadInput("Q020", str(error), "give ids for every block position of the tokens") from None
    theirs, ours = names.planes(source), names.planes(reader)
    rows = staged(plan, number, read, runs, way)
    return [Copy(read.worker, theirs[p].name, po, number, ours[d].name, do, n) for p, po, d, do, n in rows]


def trace(plan: Plan, prefill: BoundSide, decode: BoundSide, request: Request) -> dict[str, Any]:
    """Return the JSON of one request: its copies, and every worker's planes with strides and pool sizes."""
    check(request, prefill, decode)
    return {
        "copies": [_copy(copy) for copy in copies(plan, request)],
        "prefill": _side(plan.prefill, request.prefill, prefill.blocks),
        "decode": _side(plan.decode, request.decode, decode.blocks),
    }


def _copy(copy: Copy) -> dict[str, Any]:
    return {
        "from": {"worker": copy.from_worker, "plane": copy.from_plane, "offset": copy.from_offset},
        "to": {"worker": copy.to_worker, "plane": copy.to_plane, "offset": copy.to_offset},
        "bytes": copy.bytes,
    }


def _side(side: Side, tables: Mapping[str, Table], blocks: int | None) -> dict[str, Any]:
    groups = {group.name: group for group in side.groups}
    pools = _pools(side, tables, blocks)
    workers = []
    for worker in side.workers:
        planes = {plane.name: _plane(plane, groups[plane.group], pools) for plane in names.planes(worker)}
        workers.append({"planes": planes})
    return {"workers": workers}


def _plane(plane: names.Plane, group: Group, pools: Mapping[int, int]) -> dict[str, Any]:
    return {
        "cache": plane.cache,
        "layer": plane.layer,
        "head": dict(plane.at).get("head"),
        "part": plane.part,
        "block_stride": plane.stride,
        "blocks": pools[group.arena] * group.ratio,
    }


def _pools(side: Side, tables: Mapping[str, Table], size: int | None) -> dict[int, int]:
    """Return the logical blocks of every arena: the side's `blocks`, or else just enough for the request's ids."""
    pools: dict[int, int] = {}
    for group in side.groups:
        need = 1 + max(_ids(tables[group.name]), default=0) if group.name in tables else 1
        if size is not None and need > size:
            raise BadInput("Q021", f"{group.name!r} has an id {need - 1}, its pool has {size} blocks", "raise blocks=")
        pools[group.arena] = size or max(need, pools.get(group.arena, 0))
    return pools


def _ids(table: Table) -> list[int]:
    ids = blocks(table).ids
    return [int(block) for block in ids[ids >= 0]]
