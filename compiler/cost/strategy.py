"""Choose a strategy: a read's bytes go straight to their place or through a stage, whichever costs less.

With `unpack` prefill pages move as they lie, and decode copies them into place. With `pack` prefill first copies
into the order of the decode pages. If a table has both, the side that posts owns the stage (plan/stage.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial

import numpy as np

from kvplan.compiler.cost.cost import (
    TOKENS,
    EndsOf,
    PlanCost,
    StagedMoves,
    TableEnds,
    ends_of,
    merged,
    sample,
    table_cost,
    ways,
)
from kvplan.compiler.cost.profile import copy_us, wire_us
from kvplan.compiler.cost.ranges import DECODE, PREFILL, filled, touched
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.spans import page_rows
from kvplan.plan.stage import image, moved_bytes
from kvplan.plan.types import Nest, PageRange, Plan, Read, Table

# A stage takes memory and processor time, so it must save at least this part of the direct time.
WORTH = 0.2
# Rows of a usual run of tokens if pages differ.
RUN = 16


@dataclass(frozen=True, slots=True)
class StrategyCost:
    """The cost of a read by one strategy, per request or state: descriptors and bytes on the wire, microseconds."""

    descriptors: int
    bytes: int
    us: float


def staged(plan: Plan, strategy: str, profile: MachineProfile) -> Plan:
    """Add page ranges to staged reads: to all that can be staged, or with `auto` to those that gain by it."""
    with_stages = cache(partial(_with_stages, strategy=strategy, profile=profile))
    ends = ends_of(plan)
    reads = tuple(
        tuple(replace(read, table=with_stages(read.table, ends(worker, read))) for read in each)
        for worker, each in enumerate(plan.reads)
    )
    return replace(plan, reads=reads)


def costs(table: Table, ends: TableEnds, profile: MachineProfile) -> dict[str, StrategyCost]:
    """Return the cost of a read by strategy: `direct` always, `unpack` and `pack` if its table has ranges for them."""
    descriptors, size = table_cost(table, ends)
    found = {"direct": StrategyCost(descriptors, size, wire_us(profile, descriptors, size))}
    if size:
        ways = {"unpack": (table.unpack, PREFILL), "pack": (table.pack, DECODE)}
        copied = _copied_us(table, size, profile)
        found |= {
            name: _staged_cost(ends, ranges, side, copied, profile) for name, (ranges, side) in ways.items() if ranges
        }
    return found


def pulled(table: Table, ends: TableEnds) -> tuple[int, int]:
    """Return (descriptors, bytes on the wire) of one read by pull, staged if its table is."""
    if table.unpack:
        return _staged_moves(ends, table.unpack, PREFILL)
    return _staged_moves(ends, table.pack, DECODE) if table.pack else table_cost(table, ends)


def with_strategies(facts: PlanCost, plan: Plan, profile: MachineProfile, tokens: int = TOKENS) -> PlanCost:
    """Return the facts of a plan with the costs of its stages beside the direct ones."""
    by_pair = [grouped((read.groups, read) for read in reads) for reads in plan.reads]
    ends = ends_of(plan, tokens)
    moves = [
        replace(move, workers=(worker,), staged=_moves(worker, by_pair[worker][move.groups], ends, profile))
        for move in facts.moves
        for worker in move.workers
    ]
    strategy = f"{dict(plan.options)['strategy']} on {profile.name}: {ways(plan)}"
    return replace(facts, moves=merged(moves), strategy=strategy)


def _moves(worker: int, reads: list[Read], ends: EndsOf, profile: MachineProfile) -> tuple[StagedMoves, ...]:
    """Return the cost of each strategy for all reads of a pair; some of these may go direct."""
    every = [costs(read.table, ends(worker, read), profile) for read in reads]
    direct = sum(cost["direct"].us for cost in every)
    found = []
    for name in ("unpack", "pack"):
        ways = [by_strategy(cost, name) for cost in every]
        if any(name in cost for cost in every):
            descriptors, size = sum(way.descriptors for way in ways), sum(way.bytes for way in ways)
            found.append(StagedMoves(name, descriptors, size, sum(way.us for way in ways), direct))
    return tuple(found)


def by_strategy(cost: Mapping[str, StrategyCost], name: str) -> StrategyCost:
    """Return a read's cost by the strategy `name`; if it lacks that one, by the other stage, or else direct."""
    return next(cost[way] for way in (name, "unpack", "pack", "direct") if way in cost)


def _with_stages(table: Table, ends: TableEnds, strategy: str, profile: MachineProfile) -> Table:
    every = _with_ranges(table, ends)
    wanted = ("unpack", "pack") if strategy == "auto" else (strategy,)
    cost = costs(every, ends, profile)
    pays = {name for name in wanted if name in cost and (strategy != "auto" or _wins(cost[name], cost["direct"]))}
    if pays == {"unpack", "pack"} and _wins(cost["pack"], cost["unpack"]):
        # Decode needs some heads of whole prefill pages: prefill packs those.
        pays = {"pack"}
    return replace(every, unpack=every.unpack if "unpack" in pays else (), pack=every.pack if "pack" in pays else ())


def _wins(one: StrategyCost, other: StrategyCost) -> bool:
    return one.us < (1 - WORTH) * other.us


def _with_ranges(table: Table, ends: TableEnds) -> Table:
    """Add both stages' ranges to a table; none to `pack` if its ranges would contain bytes of other reads."""
    rows = page_rows(ends.decode, ends.rows)
    into = touched(table, DECODE, rows)
    into = into if filled(table, into, DECODE, rows) else ()
    return replace(table, unpack=touched(table, PREFILL, page_rows(ends.prefill, ends.rows)), pack=into)


def _staged_cost(
    ends: TableEnds, ranges: tuple[PageRange, ...], side: int, copied: float, profile: MachineProfile
) -> StrategyCost:
    """Return the cost of a staged read: the wire's part and the copy's."""
    descriptors, size = _staged_moves(ends, ranges, side)
    return StrategyCost(descriptors, size, wire_us(profile, descriptors, size) + copied)


@lru_cache(maxsize=1024)
def _staged_moves(ends: TableEnds, ranges: tuple[PageRange, ...], side: int) -> tuple[int, int]:
    """Return (descriptors, bytes): a descriptor for each image row of each touched page; no two blocks are adjacent."""
    whole = image(ranges)
    runs, planes = sample(ends), (ends.prefill_planes, ends.decode_planes)[side]
    pages = np.unique((runs.prefill_block, runs.decode_block)[side])
    # Kernel blocks of one logical block are adjacent, so rows that are whole pages join.
    dense = int((np.array(planes)[whole.plane, 0] == whole.bytes).sum())
    chains = len(pages) - int((np.diff(pages) == 1).sum())
    return dense * chains + (len(whole.bytes) - dense) * len(pages), len(pages) * whole.size


def _copied_us(table: Table, size: int, profile: MachineProfile) -> float:
    """Return the time of copying `size` bytes by a table's nests, each with its share and its contiguous bytes."""
    nests = table.per_page or table.per_token
    moved = [moved_bytes(nest) for nest in nests]
    parts = (size * part // sum(moved) for part in moved)
    return sum(copy_us(profile, part, _together(nest)) for part, nest in zip(parts, nests, strict=True))


def _together(nest: Nest) -> int:
    """Return the contiguous bytes of a nest on both sides; a usual run's bytes if rows of tokens are consecutive."""
    return nest.bytes * (RUN if nest.token_step == (nest.bytes, nest.bytes) else 1)
