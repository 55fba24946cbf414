"""The GPU benchmark, run in host memory with the same processes, requests and copies."""

import numpy as np
import pytest
from tests.demo.test_demo import needs_nixl

from kvplan.bench import bare, gpu
from kvplan.calibrate.memories import HostMemory
from kvplan.runtime.errors import ChecksumError
from kvplan.runtime.staging.views import HostCopies
from kvplan.runtime.transport import nixl


@pytest.mark.full
@needs_nixl
@pytest.mark.parametrize("mode", ["pull", "push"])
def test_all_of_it_runs_in_the_memory_of_the_host(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mode == "push":  # Host memory then behaves like a GPU's, which only RDMA can read.
        monkeypatch.setattr(nixl, "fabrics", lambda _="DRAM": frozenset())
    found = gpu.rows("DRAM", 2, 1 << 20)
    moved = [row for row in found if row.area == gpu.AREA]
    assert all(row.name.startswith(mode) for row in moved[:-2])
    assert moved[-2].name == f"{gpu.OTHER[mode]}, unpacked, against {mode}"
    assert [row.area for row in found] == [bare.AREA] * 5 + [gpu.AREA] * 7
    assert all(row.spread and row.pairs == 2 for row in found)


@pytest.mark.full
@needs_nixl
def test_wrong_bytes_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCopies, "make", lambda *_, **__: None)
    with pytest.raises(ChecksumError):
        gpu.rows("DRAM", 2, 1 << 20)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "nixl_missing", lambda: "")
    monkeypatch.setattr(gpu, "_no_gpu", lambda: "no VRAM can be measured here")
    (row,) = gpu.measure(2)
    assert (row.name, row.value) == ("not measured", "no VRAM can be measured here")


def test_noise_is_the_same_each_time_and_no_constant() -> None:
    first, second = (HostMemory().noise(1 << 12) for _ in range(2))
    assert np.array_equal(first, second)
    assert len(np.unique(first)) == 256
