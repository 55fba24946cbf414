"""What a request demands of a plan: its runs by pair and prefill shard, and the decode blocks that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kvplan.plan import request as requests
from kvplan.plan.block_tables import AnyBlock
from kvplan.plan.request import Request
from kvplan.plan.spans import pair_named
from kvplan.plan.types import Ints, Plan, Runs
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Demand:
    """`runs` by (pair, prefill shard), empty for a whole hit; `written` are logical decode block ids by group."""

    runs: Mapping[tuple[str, int], Runs]
    written: Mapping[str, Ints]

    def of(self, shard: int) -> dict[str, Runs]:
        """The runs by pair for the prefill workers of one shard."""
        return {pair: runs for (pair, number), runs in self.runs.items() if number == shard}


def demand(plan: Plan, worker: int, request: Request) -> Demand:
    """The demand of a checked request on a decode worker. Raises BadRequestError for tables that are too short."""
    if all(first == end for first, end in (request.tokens, *request.lengths.values())):
        return Demand({}, {})
    mine = plan.decode.workers[worker].shard
    runs = {key: requests.runs(plan, pair_named(plan, key[0]), request, (key[1], mine)) for key in keys(plan, worker)}
    return Demand(runs, written_by(plan, runs))


def keys(plan: Plan, worker: int) -> list[tuple[str, int]]:
    """The (pair, prefill shard) from which a decode worker reads."""
    return sorted({(read.pair, plan.prefill.workers[read.worker].shard) for read in plan.reads[worker]})


def written(plan: Plan, worker: int, request: Request) -> dict[str, Ints]:
    """The logical decode blocks by group that a checked request writes, whatever the prefill tables will be.

    Raises BadRequestError for decode tables that are too short.
    """
    return dict(foreseen(plan, worker, request).written)


def foreseen(plan: Plan, worker: int, request: Request) -> Demand:
    """The demand of a checked request as far as it does not depend on the prefill tables: their block ids are none.

    Raises BadRequestError for decode tables that are too short.
    """
    if all(first == end for first, end in (request.tokens, *request.lengths.values())):
        return Demand({}, {})
    mine = plan.decode.workers[worker].shard
    pairs = {name: pair_named(plan, name) for name, _ in keys(plan, worker)}
    asked = replace(request, prefill={pair.prefill: AnyBlock() for pair in pairs.values()})
    runs = {key: requests.runs(plan, pairs[key[0]], asked, (key[1], mine)) for key in keys(plan, worker)}
    return Demand(runs, written_by(plan, runs))


def pools(plan: Plan, prefill: Mapping[int, Geometry]) -> dict[str, int]:
    """Logical prefill blocks by group that every worker has, from the geometry of each by its number."""
    found: dict[str, int] = {}
    for worker, geometry in prefill.items():
        for group, blocks in shape.logical_blocks(geometry, plan.prefill, worker).items():
            found[group] = min(blocks, found.get(group, blocks))
    return found


def written_by(plan: Plan, runs: Mapping[tuple[str, int], Runs]) -> dict[str, Ints]:
    """The logical decode blocks by group that runs by (pair, prefill shard) write."""
    ratio = {group.name: group.ratio for group in plan.decode.groups}
    found: dict[str, list[Ints]] = {}
    for (pair, _), one in runs.items():
        group = pair_named(plan, pair).decode
        found.setdefault(group, []).append(one.decode_block // ratio[group])
    return {group: np.unique(np.concatenate(ids)) for group, ids in found.items()}
