"""What users would write themselves: a NIXL request for each span of two equal sides; and memcpy, the limit."""

from __future__ import annotations

from itertools import count
from tempfile import TemporaryDirectory

import numpy as np

from kvplan.bench.homogeneous import BYTES, MODEL, SIDE, request
from kvplan.bench.peer import SECONDS, met
from kvplan.bench.report import Row, faster, skipped, within
from kvplan.bench.sample import WARMUP, interleave
from kvplan.bench.stage import library, nixl_missing, write_plan

AREA = f"equal sides, {BYTES >> 20} MiB"


def measure(pairs: int) -> list[Row]:
    """kvplan's runtime, submit to done, in turns with each of them."""
    if why := nixl_missing():
        return [skipped(AREA, why)]
    with TemporaryDirectory() as folder:
        path, plan = write_plan(library(), folder, MODEL, SIDE, SIDE)
        (planes,) = plan.decode.workers[0].planes
        blocks = BYTES // (planes.page * len(planes.loops[0][1]))
        names = [f"request-{number}" for number in range(1 + 2 * (WARMUP + pairs))]
        with met(path, blocks, names) as pair:
            loop, left = pair.in_spans(planes.page), map("request-{}".format, count())

            def ours() -> object:
                return pair.decode.submit(request(plan, blocks, next(left)), SECONDS).wait()

            loop.read()
            source = pair.memory.copy()
            pair.memory[:] = 0
            ours()
            assert np.array_equal(pair.memory, source), "the runtime reads other bytes than NIXL span by span"
            spans = faster(AREA, f"{len(source) // planes.page:,} NIXL requests", interleave(ours, loop.read, pairs))
            copied = within(AREA, "memcpy", interleave(ours, lambda: np.copyto(pair.memory, source), pairs))
    return [spans, copied]
