"""Alternatives to kvplan: a user's own NIXL descriptor for each span of two equal sides; and memcpy, the limit."""

from __future__ import annotations

import numpy as np

from kvplan.bench.homogeneous import BYTES, MODEL, SIDE
from kvplan.bench.peer import blocks_of, met
from kvplan.bench.report import Row, faster, skipped, within
from kvplan.bench.sample import WARMUP, interleave
from kvplan.bench.stage import nixl_missing

AREA = f"equal sides, {BYTES >> 20} MiB"


def measure(pairs: int) -> list[Row]:
    """Measure kvplan's runtime, submit to done, in turns with each of them."""
    if why := nixl_missing():
        return [skipped(AREA, why)]
    with met(MODEL, SIDE, SIDE, blocks_of(BYTES), 1 + 2 * (WARMUP + pairs)) as pair:
        (planes,) = pair.plan.decode.workers[0].planes
        loop = pair.in_spans(planes.page_bytes)
        loop.read()
        source = pair.memory.copy()
        pair.memory[:] = 0
        pair.move()
        assert np.array_equal(pair.memory, source), "the runtime reads other bytes than NIXL span by span"
        spans = faster(
            AREA, f"{len(source) // planes.page_bytes:,} NIXL descriptors", interleave(pair.move, loop.read, pairs)
        )
        copied = within(AREA, "memcpy", interleave(pair.move, lambda: np.copyto(pair.memory, source), pairs))
    return [spans, copied]
