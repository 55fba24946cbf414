"""A timed transfer reports the descriptors that prefill posted."""

from pathlib import Path
from time import perf_counter

import pytest
from tests.demo.test_demo import needs_nixl

from kvplan.calibrate.pairs import compiled
from kvplan.calibrate.transfers import SLICES, connected
from kvplan.runtime.transport import nixl


@needs_nixl
def test_descriptors_are_counted_of_what_prefill_posts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Host memory then behaves like a GPU's, which only RDMA can read.
    monkeypatch.setattr(nixl, "fabrics", lambda _="DRAM": frozenset())
    pairs = compiled(tmp_path, 1 << 16)
    with connected(pairs, "DRAM", 1, perf_counter) as cases:
        assert {case.peer.mode for case in cases} == {"push"}
        counts = {case.sort.name: case.run(0).descriptors for case in cases}
    assert (counts["pair-0"], counts["block"], counts["slices"]) == (1, 1, SLICES)
    assert counts["pair-1"] > SLICES
