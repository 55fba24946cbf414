"""The demo's memory and content on a plan made by hand: nothing shared that must not be, no two bytes alike by rule."""

from __future__ import annotations

import numpy as np

from kvplan.cli.demo_content import content
from kvplan.cli.demo_memory import allocate, deal
from kvplan.runtime.plan import Group, Planes, Worker

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


def test_no_id_is_dealt_twice_in_an_arena() -> None:
    tables = deal((TOKENS, STATE, OTHER), (40, 100), seed=3)
    assert (tables["tokens"].first, tables["tokens"].ids.size) == (1, 3)
    both = [*tables["tokens"].ids, *tables["state"].ids]
    assert len(set(both)) == len(both) == 4
    assert (tables["other"].first, tables["other"].ids.size) == (2, 5)


def test_groups_of_an_arena_lie_over_each_other_and_others_apart() -> None:
    tables = deal((TOKENS, STATE, OTHER), (0, 100), seed=3)
    memory = allocate(WORKER, (TOKENS, STATE, OTHER), tables, seed=1)
    start = {name: view.ctypes.data for name, view in memory.planes.items()}
    assert start["tokens.1"] == start["state.0"] != start["tokens.3"] == start["state.2"]
    assert not any(
        np.shares_memory(memory.planes["other.5"], memory.planes[name]) for name in start if name != "other.5"
    )
    assert memory.planes["tokens.1"].shape == (2 * len(memory.planes["state.0"]), 64)


def test_a_copy_has_the_same_bytes_in_other_memory() -> None:
    memory = allocate(WORKER, (TOKENS, STATE, OTHER), deal((TOKENS, STATE, OTHER), (0, 50), seed=3), seed=1)
    twin = memory.copy()
    memory.planes["state.0"][0, 0] ^= 1
    assert twin.planes["state.0"][0, 0] != memory.planes["state.0"][0, 0]
    assert np.array_equal(twin.planes["tokens.3"], memory.planes["tokens.3"])


def test_content_depends_on_every_coordinate() -> None:
    mesh = np.ix_(np.arange(40), np.arange(3), np.arange(20))
    values = content(9, mesh, 2)
    assert values.shape == (40, 3, 20, 2)
    for axis in range(4):
        assert (np.roll(values, 1, axis) == values).mean() < 0.05
    assert (content(10, mesh, 2) == values).mean() < 0.05


def test_content_does_not_depend_on_who_holds_it() -> None:
    whole = content(9, np.ix_(np.arange(40), np.arange(4)), 2)
    assert np.array_equal(whole[8:, 2:], content(9, np.ix_(np.arange(8, 40), np.arange(2, 4)), 2))
