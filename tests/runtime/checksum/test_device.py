"""Digests made with torch: the numbers that numpy finds, of memory that torch alone reads."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.end_to_end.asking import requests
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.hardest import HARDEST
from tests.end_to_end.memory import Bytes
from tests.runtime.helpers.checksums import ROLES, Engines, engines

from kvplan.plan.types import Ints
from kvplan.runtime.checksum import memory
from kvplan.runtime.checksum.elements import IndexDigit, odd_keys
from kvplan.runtime.checksum.memory import TensorWords
from kvplan.runtime.errors import RegisterError
from kvplan.runtime.memory.register import Pool

NAMES = ["unlike tiles of tokens, turns on one side", "records with scales apart, against records in one place"]


def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: device sums are checked where it is")


def on_device(both: Engines) -> Engines:
    """The same engines, their memory said to be on a device."""
    pools = {
        role: [
            replace(pool, geometry=replace(pool.geometry, mem_types=("VRAM",) * len(pool.geometry.regions)))
            for pool in both.pools[role]
        ]
        for role in ROLES
    }
    return replace(both, pools=pools)


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Memory of this process handed to torch as a device's is; the planes asked for."""
    asked: list[int] = []

    def tensor(pool: Pool, plane: int) -> Any:
        asked.append(plane)
        base, size = int(pool.geometry.base[plane]), int(pool.geometry.end[plane] - pool.geometry.base[plane])
        return torch().frombuffer((ctypes.c_uint8 * size).from_address(base), dtype=torch().uint8)

    monkeypatch.setattr(memory, "_device", tensor)
    return asked


@pytest.mark.parametrize("name", NAMES)
def test_torch_finds_the_same(name: str, lent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    torch()
    monkeypatch.setattr(memory, "DEVICE", 4096)
    case = HARDEST[name]
    here = engines(compiled(case), sides(case), requests(case)["cold"])
    there = on_device(here)
    for link in here.links():
        assert [here.read(*link, role) for role in ROLES] == [there.read(*link, role) for role in ROLES]
    assert here.side("decode") == there.side("decode")
    assert lent


def words_at(shift: int, width: int) -> tuple[Bytes, TensorWords, tuple[Ints, Ints, Ints], Ints, int]:
    """Bytes, words that begin `shift` bytes on in them, rows and a table, and what their sum must be."""
    random = np.random.default_rng(0)
    found = random.integers(0, 256, 6 * 96 + 1, np.uint8)
    words = TensorWords(0, shift, (IndexDigit("token", 1, 4, 24),), (IndexDigit("dim", 1, 3, 8),), 2, width)
    block, row, key, table = (
        random.integers(0, 6, 9),
        random.integers(0, 4, 9),
        odd_keys(np.arange(9), 1),
        odd_keys(np.arange(6), 2),
    )
    total = 0
    for number, (b, r) in enumerate(zip(block.tolist(), row.tolist(), strict=True)):
        for index in range(6):
            at = shift + b * 96 + r * 24 + index // 2 * 8 + index % 2 * width
            total += int(key[number]) * int(table[index]) * int.from_bytes(found[at : at + width].tobytes(), "little")
    return found, words, (block, row, key), table, total % 2**64


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("width", [1, 2])
def test_numpy_at_odd_addresses(shift: int, width: int) -> None:
    found, words, rows, table, total = words_at(shift, width)
    assert memory.on_host(found, (6, 96), words, rows, table) % 2**64 == total


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("width", [1, 2])
def test_torch_at_odd_addresses(shift: int, width: int) -> None:
    found, words, rows, table, total = words_at(shift, width)
    assert memory.on_device(torch().from_numpy(found), (6, 96), words, rows, table) % 2**64 == total


def test_without_torch_memory_of_a_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    case = HARDEST[NAMES[0]]
    there = on_device(engines(compiled(case), sides(case), requests(case)["single"]))
    with pytest.raises(RegisterError, match="torch, which is not installed"):
        there.side("decode")
