"""A homogeneous pair, contiguous blocks, one reader, 256 MiB: against the same bytes as one merged NIXL descriptor."""

from __future__ import annotations

import numpy as np

from kvplan.bench.peer import blocks_of, met, request
from kvplan.bench.report import Row, within
from kvplan.bench.sample import WARMUP, interleave

AREA = "equal sides, one reader"
MODEL, SIDE, BYTES, MOST = "llama-3.1-8b", "tp=1", 256 << 20, 1.03


def measure(pairs: int) -> list[Row]:
    """Compare submit to done, all that a caller of the runtime waits for, with make + post + poll + release."""
    with met(MODEL, SIDE, SIDE, blocks_of(BYTES), 1 + WARMUP + pairs) as pair:
        pair.by_hand.read()
        expected = pair.memory.copy()
        pair.memory[:] = 0
        pair.move()
        assert np.array_equal(pair.memory, expected), "the runtime reads other bytes than NIXL by hand"
        row = within(AREA, f"{BYTES >> 20} MiB", interleave(pair.move, pair.by_hand.read, pairs, WARMUP), MOST)
        predicted = pair.decode.predict(request(pair.plan, pair.blocks, "one more"))
        row.details["predicted"] = sum(predicted.values())
    return [row]
