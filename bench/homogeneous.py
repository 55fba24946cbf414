"""A homogeneous pair, contiguous blocks, one reader, 256 MiB: against the same bytes as one merged NIXL request."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from kvplan.bench.peer import SECONDS, met, prefill_blocks
from kvplan.bench.report import Row, skipped, within
from kvplan.bench.sample import WARMUP, interleave
from kvplan.bench.stage import library, nixl_missing, write_plan

if TYPE_CHECKING:
    from kvplan.plan.types import Plan
    from kvplan.runtime import Request

AREA = "equal sides, one reader"
MODEL, SIDE, BYTES, MOST = "llama-3.1-8b", "tp=1", 256 << 20, 1.03


def measure(pairs: int) -> list[Row]:
    """Submit to done, everything that a caller of the runtime waits for, against make + post + poll + release."""
    if why := nixl_missing():
        return [skipped(AREA, why)]
    with TemporaryDirectory() as folder:
        path, plan = write_plan(library(), folder, MODEL, SIDE, SIDE)
        blocks = BYTES // sum(planes.page * len(planes.loops[0][1]) for planes in plan.decode.workers[0].planes)
        names = [f"request-{number}" for number in range(1 + WARMUP + pairs)]
        with met(path, blocks, names) as pair:
            left = iter(names)

            def ours() -> object:
                return pair.decode.submit(request(plan, blocks, next(left)), SECONDS).wait()

            pair.by_hand.read()
            expected = pair.memory.copy()
            pair.memory[:] = 0
            ours()
            assert np.array_equal(pair.memory, expected), "the runtime reads other bytes than NIXL by hand"
            row = within(AREA, f"{BYTES >> 20} MiB", interleave(ours, pair.by_hand.read, pairs, WARMUP), MOST)
            row.details["predicted"] = sum(pair.decode.predict(request(plan, blocks, "one more")).values())
    return [row]


def request(plan: Plan, blocks: int, name: str, first: int = 0) -> Request:
    """`blocks` blocks of decode from block `first` on, and as many tokens of prefill, in order."""
    from kvplan.runtime import Blocks, Request

    (group,) = plan.decode.groups
    there = prefill_blocks(plan, first), prefill_blocks(plan, first + blocks)
    prefill = {plan.prefill.groups[0].name: Blocks(0, np.arange(*there, dtype=np.int64))}
    decode = {group.name: Blocks(0, np.arange(first, first + blocks, dtype=np.int64))}
    return Request(name, (0, blocks * group.tokens), prefill, decode)
