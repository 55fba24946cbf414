"""What a request demands of a plan: its runs by pair and prefill shard, and the decode blocks that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvplan.runtime import geometry as shape
from kvplan.runtime import request as requests
from kvplan.runtime.plan import Ints, Plan, Runs
from kvplan.runtime.prepare import Source
from kvplan.runtime.request import Request
from kvplan.runtime.spans import pair_named


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
    wanted = sorted({(read.pair, plan.prefill.workers[read.worker].shard) for read in plan.reads[worker]})
    runs = {key: requests.runs(plan, pair_named(plan, key[0]), request, (key[1], mine)) for key in wanted}
    return Demand(runs, _written(plan, runs))


def pools(plan: Plan, sources: Mapping[int, Source]) -> dict[str, int]:
    """Logical prefill blocks by group that every source has."""
    found: dict[str, int] = {}
    for worker, source in sources.items():
        for group, blocks in shape.logical_blocks(source.prefill, plan.prefill, worker).items():
            found[group] = min(blocks, found.get(group, blocks))
    return found


def _written(plan: Plan, runs: Mapping[tuple[str, int], Runs]) -> dict[str, Ints]:
    ratio = {group.name: group.ratio for group in plan.decode.groups}
    found: dict[str, list[Ints]] = {}
    for (pair, _), one in runs.items():
        group = pair_named(plan, pair).decode
        found.setdefault(group, []).append(one.decode_block // ratio[group])
    return {group: np.unique(np.concatenate(ids)) for group, ids in found.items()}
