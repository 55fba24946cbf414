"""From block ids to posted indices: the runtime's gather against spelling out every descriptor's index in int64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kvplan.bench.report import Row, faster
from kvplan.bench.sample import clock, interleave
from kvplan.bench.stage import here, plan_of

if TYPE_CHECKING:
    from kvplan.plan.types import Plan, Runs

AREA = "block ids to indices"
MODEL, LAYERS, BLOCKS, TOKENS = "llama-3.3-70b", 80, 2048, 16
CASES = (("equal sides", "tp=1", "tp=1"), ("quarter pages", "tp=4", "tp=1"))


def measure(pairs: int) -> list[Row]:
    """Measure: at least 4 times faster for 80 planes x 2048 blocks in random order; also conversion and pairing."""
    return [row for name, p, d in CASES for row in _case(name, plan_of(MODEL, p, d), pairs)]


def _case(name: str, plan: Plan, pairs: int) -> list[Row]:
    from kvplan.plan.match import rule_of
    from kvplan.plan.types import Blocks
    from kvplan.runtime.transfer.gather import IndexScratch, gather

    pair = plan.group_pairs[0]
    link = here(plan, blocks=2 * BLOCKS)
    random = np.random.default_rng(5)
    lists = [random.permutation(2 * BLOCKS)[:BLOCKS].tolist() for _ in range(2)]
    ids = [np.array(one, np.int32) for one in lists]
    there, mine = (Blocks(0, one.astype(np.int64)) for one in ids)
    match = partial(rule_of(plan, pair).runs, (0, BLOCKS * TOKENS), there, mine)
    runs: Mapping[str, Runs] = {pair.name: match()}
    scratch, offsets = IndexScratch(), np.arange(LAYERS, dtype=np.int64) * 2 * BLOCKS
    wide = there.ids, mine.ids

    def ours() -> object:
        return gather(link, runs, scratch)

    def theirs() -> object:
        return [(offsets[:, None] + blocks[None, :]).ravel() for blocks in wide]

    row = faster(AREA, f"{name}, shuffled", interleave(ours, theirs, pairs), 4.0)
    row.details["descriptors"] = gather(link, runs, scratch).descriptors
    convert = min(clock(lambda: [np.array(one, np.int32) for one in lists]) for _ in range(pairs))
    paired = min(clock(match) for _ in range(pairs))
    return [row, _beside(f"{name}: lists to int32", convert), _beside(f"{name}: pairing", paired)]


def _beside(name: str, seconds: float) -> Row:
    return Row(AREA, name, f"{1e6 * seconds:.0f} us", details={"seconds": seconds})
