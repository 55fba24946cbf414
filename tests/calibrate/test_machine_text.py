"""The file that a calibration becomes: read back, it says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.calibrate import machine_text as text
from kvplan.calibrate.fit import TransferRates
from kvplan.calibrate.measure import Calibration
from kvplan.dsl.library import load
from kvplan.dsl.schema.machine import CopyRate

FOUND = Calibration(TransferRates(1.1e-3, 2e-5, 9.27e-7, 1 / 6.28e9, 1.28e-3, 0.07), {8: 1.5e9, 4096: 9.25e9}, "pull")


@pytest.fixture(autouse=True)
def transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_transport", lambda: "nixl 1.5.1, UCX_TLS=^ib")


def test_figures_and_conditions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(text.machine_text("ours", FOUND, "DRAM", "kvplan calibrate: 3 rounds"))
    read = load([path]).machine("ours")
    assert (read.transfer_us, read.slice_us, read.descriptor_us, read.wire) == (1100, 20, 0.927, 6.28e9)
    assert read.cold_us == 1280
    assert read.copies == (CopyRate(8, 1.5e9), CopyRate(4096, 9.25e9))
    assert "UCX_TLS=^ib, two processes of one machine, read by decode; DRAM; " in read.says
    assert read.says.endswith("kvplan calibrate: 3 rounds; predicts its own times within 7 %")


def test_what_took_no_time_is_no_rate_without_end(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    free = Calibration(TransferRates(0, 0, 0, 0, 0, 0), {8: 0.1}, "push")
    path.write_text(text.machine_text("ours", free, "VRAM", "by hand"))
    read = load([path]).machine("ours")
    assert (read.wire, read.copies) == (1e15, (CopyRate(8, 1e6),))
