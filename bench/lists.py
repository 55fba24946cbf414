"""From an engine's lists of block ids to posted indices: all of a request's cost on decode before NIXL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvplan.bench.report import Row
from kvplan.bench.sample import clock
from kvplan.bench.stage import here, plan_of
from kvplan.plan.block_tables import Slot
from kvplan.plan.blocks import Blocks

if TYPE_CHECKING:
    from kvplan.plan.types import Group, Plan

AREA = "block lists to posted ids"
# Model, prefill, decode, tokens.
CASES = (
    ("llama-3.3-70b", "tp=8", "tp=8", 32768),
    ("llama-3.3-70b", "tp=8", "tp=4", 32768),
    ("nemotron-3-nano-30b", "tp=4", "tp=1", 8192),
)


def measure(pairs: int) -> list[Row]:
    """Measure blocks in random order; requests whose shape was seen before, and others."""
    return [row for model, p, d, tokens in CASES for row in _case(f"{model} {p} -> {d}", model, p, d, tokens, pairs)]


def _case(name: str, model: str, prefill: str, decode: str, tokens: int, pairs: int) -> list[Row]:
    from kvplan.plan.match import forget_shapes

    plan = plan_of(model, prefill, decode)
    prepare = preparer(plan, draw(plan, tokens))
    prepare()
    again = [clock(prepare) for _ in range(pairs)]
    first = []
    for _ in range(pairs):
        forget_shapes()
        first.append(clock(prepare))
    return [_row(f"{name}, shape known", again), _row(f"{name}, shape new", first)]


def _row(name: str, times: Sequence[float]) -> Row:
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75)) * 1e6
    return Row(AREA, name, f"{middle:.0f} us", spread=f"{low:.0f}..{high:.0f}", pairs=len(times), details={"s": times})


@dataclass(frozen=True, slots=True)
class BlockLists:
    """Block ids by group of a request of `tokens` tokens, a state's single slot; pools are of `pool` blocks."""

    tokens: int
    pool: int
    prefill: Mapping[str, list[int]]
    decode: Mapping[str, list[int]]


def draw(plan: Plan, tokens: int) -> BlockLists:
    """Return block ids in random order; slots are at the end of the pool."""
    sides, random = (plan.prefill, plan.decode), np.random.default_rng(5)
    pool = 2 * max(-(-tokens // group.tokens) for side in sides for group in side.groups if group.tokens) + 16
    return BlockLists(tokens, pool, *(_ids(side.groups, pool, tokens, random) for side in sides))


def preparer(plan: Plan, lists: BlockLists) -> Callable[[], int]:
    """Return a function that turns lists into indices and addresses, for all sources of worker 0, and counts them."""
    from kvplan.plan.request import RequestRules
    from kvplan.runtime import Request
    from kvplan.runtime.transfer import slices
    from kvplan.runtime.transfer.demand import DemandRules
    from kvplan.runtime.transfer.gather import IndexScratch, gather

    workers = sorted({read.worker for read in plan.reads[0]})
    links = [here(plan, lists.pool, worker) for worker in workers]
    shards = [plan.prefill.workers[worker].shard for worker in workers]
    sides, tokens = ((plan.prefill, lists.prefill), (plan.decode, lists.decode)), lists.tokens
    pools = [{group.name: lists.pool for group in side.groups} for side, _ in sides]
    rules, demands, scratch = RequestRules(plan), DemandRules(plan, 0), IndexScratch()

    def prepare() -> int:
        remote, local = (_tables(side.groups, ids, tokens) for side, ids in sides)
        request = rules.check(Request("r", (0, tokens), remote, local), *pools)
        wanted, posted = demands.demand(request), 0
        for link, shard in zip(links, shards, strict=True):
            for runs, _ in slices.cut(link, wanted.of(shard), 1 << 40):
                posted += gather(link, runs, scratch).descriptors
        return posted

    return prepare


def _ids(groups: Sequence[Group], pool: int, tokens: int, random: np.random.Generator) -> dict[str, list[int]]:
    slots = {group.name: [pool - 1 - number] for number, group in enumerate(_states(groups))}
    counts = {group.name: -(-tokens // group.tokens) for group in groups if group.tokens}
    blocks = {name: random.permutation(pool - 8)[:count].tolist() for name, count in counts.items()}
    return {group.name: (slots | blocks)[group.name] for group in groups if group.name in slots | blocks}


def _states(groups: Sequence[Group]) -> list[Group]:
    """Return the groups that have a slot in place of blocks."""
    return [group for group in groups if group.store == "state"]


def _tables(groups: Sequence[Group], ids: Mapping[str, list[int]], tokens: int) -> dict[str, Blocks | Slot]:
    slots: dict[str, Blocks | Slot] = {group.name: Slot(ids[group.name][0], tokens) for group in _states(groups)}
    return slots | {group.name: Blocks(0, ids[group.name]) for group in groups if group.tokens}
