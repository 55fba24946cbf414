"""Machine files: what is read of them, and which one counts where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.dsl.library import load
from kvplan.dsl.schema.machine import CopyRate
from kvplan.dsl.text.diagnostics import DslError

TEXT = """\
kvplan: 1
machine: ours
title: A laptop
measured: {machine: a laptop, transport: TCP, memory: DRAM, date: 2026-11-22}
transfer_us: 10
slice_us: 2
descriptor_ns: 1500
wire: 1100
copies: [{together: 8, rate: 200}, {together: 4096, rate: 9000}]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "ours.yaml").write_text(TEXT)
    return tmp_path / "ours.yaml"


def test_units_are_microseconds_and_bytes_a_second(path: Path) -> None:
    found = load([path]).machine("ours")
    assert (found.transfer_us, found.slice_us, found.descriptor_us) == (10.0, 2.0, 1.5)
    assert (found.wire, found.copies) == (1.1e9, (CopyRate(8, 2e8), CopyRate(4096, 9e9)))
    assert found.says == "a laptop; TCP; DRAM; 2026-11-22"


def test_a_pause_costs_what_the_file_says_and_nothing_where_it_does_not(path: Path) -> None:
    assert load([path]).machine("ours").cold_us == 0
    path.write_text(TEXT + "cold_us: 900\n")
    assert load([path]).machine("ours").cold_us == 900


def test_the_default_machine_is_shipped_and_says_where_it_is_from(path: Path) -> None:
    library = load([path])
    default = library.machine(library.default_machine)
    assert library.shipped("machine", default.name)
    assert default.says


def test_two_default_machines_are_none(path: Path) -> None:
    path.write_text(TEXT + "default: true\n")
    with pytest.raises(DslError, match="K014"):
        _ = load([path]).default_machine


def test_a_machine_that_there_is_not(path: Path) -> None:
    with pytest.raises(DslError, match="K008"):
        load([path]).machine("theirs")
