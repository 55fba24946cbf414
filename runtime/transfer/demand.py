"""Demand: the runs that a request needs by a plan, and the decode blocks that it writes. Meter: what was moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvplan.plan import request as requests
from kvplan.plan.block_tables import AnyBlock
from kvplan.plan.blocks import distinct
from kvplan.plan.last_page import reads_by, whole_from_by
from kvplan.plan.match import rule_of
from kvplan.plan.request import Request, RequestRules
from kvplan.plan.spans import pair_named
from kvplan.plan.types import Interval, Ints, Plan, Runs
from kvplan.runtime.machine import Facts


@dataclass(frozen=True, slots=True)
class Demand:
    """`runs` by (pair, prefill shard), empty for a whole hit; `written` are logical decode block ids by group."""

    runs: Mapping[tuple[str, int], Runs]
    written: Mapping[str, Ints]

    def of(self, shard: int) -> dict[str, Runs]:
        """Return the runs by pair for the prefill workers of one shard."""
        return {pair: runs for (pair, number), runs in self.runs.items() if number == shard}


NOTHING = Demand({}, {})


class DemandRules:
    """The rules that derive the demands of requests on a decode worker, looked up once per plan.

    `reads` and `rules` are by (pair, prefill shard).
    """

    def __init__(self, plan: Plan, worker: int) -> None:
        self._plan, self._shard = plan, plan.decode.workers[worker].shard
        self.reads = reads_by(plan, worker)
        self.rules = {key: rule_of(plan, pair_named(plan, key[0])) for key in self.reads}
        self._whole_from = whole_from_by(plan, self.reads)
        ratio = {group.name: group.ratio for group in plan.decode.groups}
        # The decode group of each pair, and its kernel blocks in a logical one.
        self._groups = {pair.name: (pair.decode, ratio[pair.decode]) for pair in plan.group_pairs}

    def demand(self, request: Request) -> Demand:
        """Return the demand of a checked request. Raises BadRequestError for tables that are too short."""
        if request.whole_hit:
            return NOTHING
        return self.demand_of({key: self.runs(key, request) for key in self.rules})

    def runs(self, key: tuple[str, int], request: Request, some: Sequence[Interval] | None = None) -> Runs:
        """Return the runs of a (pair, prefill shard), for `some` intervals of tokens or all that it needs.

        Raises BadRequestError for tables that are missing or too short.
        """
        return requests.runs(self.rules[key], request, (key[1], self._shard), some, self._whole_from[key])

    def demand_of(self, runs: Mapping[tuple[str, int], Runs]) -> Demand:
        """Return these runs with the logical decode blocks that they write."""
        blocks: dict[str, list[Ints]] = {}
        for (pair, _), of_pair in runs.items():
            group, ratio = self._groups[pair]
            kernel = of_pair.decode_block
            blocks.setdefault(group, []).append(kernel if ratio == 1 else kernel // ratio)
        every = {group: ids[0] if len(ids) == 1 else np.concatenate(ids) for group, ids in blocks.items()}
        return Demand(runs, {group: distinct(ids) for group, ids in every.items()})

    def foreseen(self, request: Request) -> Demand:
        """Return the demand of a checked request without its prefill tables: its runs have no prefill block ids.

        Raises BadRequestError for decode tables that are too short.
        """
        return self.demand(replace(request, prefill={pair.prefill: AnyBlock() for pair in self._plan.group_pairs}))


def demand(plan: Plan, worker: int, request: Request) -> Demand:
    """Return a checked request's demand on a decode worker. Raises BadRequestError for tables that are too short."""
    return DemandRules(plan, worker).demand(request)


@dataclass(frozen=True, slots=True, eq=False)
class PairRules(Facts):
    """The rules of a plan for one decode worker: how to check requests, and to derive what they demand.

    `prefill` and `decode` are the logical blocks by group that the workers of both sides have.
    """

    plan: Plan
    rules: RequestRules
    demands: DemandRules
    prefill: Mapping[str, int]
    decode: Mapping[str, int]

    @classmethod
    def of(cls, plan: Plan, worker: int, prefill: Mapping[str, int], decode: Mapping[str, int]) -> PairRules:
        """Return the rules of a plan for decode worker number `worker`."""
        return cls(plan, RequestRules(plan), DemandRules(plan, worker), prefill, decode)

    def checked(self, request: Request, *, fed: bool) -> Request:
        """Return the request, checked and copied. Raises BadRequestError."""
        return self.rules.check(request, self.prefill, self.decode, fed=fed)


@dataclass(slots=True)
class Meter:
    """The bytes and descriptors that were moved so far, counted by the side that moves them.

    `descriptors` are predicted; `posted` is what the transport counted, None if it does not count.
    """

    moved: int = 0
    descriptors: int = 0
    posted: int | None = 0

    def count_posted(self, count: int | None) -> None:
        """Add descriptors, None if the transport did not count them."""
        self.posted = None if count is None or self.posted is None else self.posted + count
