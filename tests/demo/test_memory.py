"""The demo's memory and content on a plan made by hand: nothing shared that must not be, no two bytes equal by rule."""

from __future__ import annotations

import numpy as np

from kvplan.demo.content import content
from kvplan.demo.memory import allocate
from kvplan.plan.block_tables import Slot, Tables
from kvplan.plan.types import Blocks, Group, Planes, Side, Worker

TOKENS = Group("tokens", "tokens", 32, 16, 2, 0)
STATE = Group("state", "state", 0, 0, 1, 0)
OTHER = Group("other", "tokens", 16, 16, 1, 1)
WORKER = Worker(
    (
        Planes("tokens", "tokens", None, 0, (("layer", (1, 3), 1),), 64, 64, ()),
        Planes("state", "state", None, 2, (("layer", (0, 2), 1),), 100, 128, ()),
        Planes("other", "other", None, 4, (("layer", (5,), 1),), 8, 8, ()),
    )
)
SIDE = Side("", "", (TOKENS, STATE, OTHER), (WORKER,))
TABLES: Tables = {
    "tokens": Blocks(1, np.array([3, -1, 0])),
    "state": Slot(2, 100),
    "other": Blocks(0, np.arange(5)[::-1]),
}


def test_groups_of_an_arena_lie_over_each_other_and_others_apart() -> None:
    memory = allocate(SIDE, 0, TABLES, seed=1)
    start = {name: view.ctypes.data for name, view in memory.planes.items()}
    assert start["tokens.1"] == start["state.0"] != start["tokens.3"] == start["state.2"]
    assert not any(
        np.shares_memory(memory.planes["other.5"], memory.planes[name]) for name in start if name != "other.5"
    )
    assert memory.planes["tokens.1"].shape == (2 * len(memory.planes["state.0"]), 64)


def test_a_seed_has_the_same_bytes_each_time_in_other_memory() -> None:
    memory, twin = (allocate(SIDE, 0, TABLES, seed=1) for _ in range(2))
    assert all(np.array_equal(*both) for both in zip(memory.arenas, twin.arenas, strict=True))
    memory.planes["state.0"][0, 0] ^= 1
    assert twin.planes["state.0"][0, 0] != memory.planes["state.0"][0, 0]


def test_content_differs_from_place_to_place() -> None:
    values = content(np.arange(10_000))
    assert np.bincount(values, minlength=256).min() > 10
    for distance in (1, 2, 64, 128, 256, 4096):
        assert (np.roll(values, distance) == values).mean() < 0.05
