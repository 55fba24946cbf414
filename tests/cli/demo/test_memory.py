"""The demo's memory and content on a plan made by hand: nothing shared that must not be, no two bytes alike by rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.random_sides.sides import cache, group, side, tensor

from kvplan.cli.demo.content import content
from kvplan.cli.demo.memory import allocate
from kvplan.cli.demo.requests import deal
from kvplan.plan.block_tables import blocks
from kvplan.plan.types import CONTEXT, Blocks, Group, Needs, Planes, Worker

K = tensor("k", 1, token=0)
PAGED, SLOTS = "layer { block { token { k } } }", "layer { block { k } }"
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


SIDE = side(
    (
        cache(PAGED, K, name="tokens", layers=(1, 3), kernel=16),
        cache(SLOTS, tensor("s", 1, x=100), name="state", layers=(0, 2)),
        cache(PAGED, K, name="other", layers=(5,), kernel=16),
    )
)
GROUPS = tuple(
    group((one, one.layers), ratio=ratio, arena=arena)
    for one, ratio, arena in zip(SIDE.caches, (2, 1, 1), (0, 0, 1), strict=True)
)
SIDE = replace(SIDE, groups=GROUPS)


def alone(tokens: tuple[int, int], early: bool = False, ring: int = 0, ways: int = 1, **needs: int) -> Blocks:
    """The table of a cache that is needed in part, in blocks of 16 tokens; workers take turns of 64."""
    one = replace(cache(PAGED, K, kernel=16), needs=Needs(**needs), ring=ring)
    only = replace(group((one, (0,))), ring=ring)
    return blocks(deal(side([one], [only], tp=ways, dcp=ways, chunk=64), {CONTEXT: tokens}, 3, early)["c"])


@pytest.mark.parametrize(
    ("tokens", "early", "needs", "there"),
    [
        ((0, 100), False, {"keep": 20}, [5, 6]),
        ((0, 100), True, {"keep": 20}, [4, 5, 6]),
        ((0, 100), False, {"keep": 20, "sink": 17}, [0, 1, 5, 6]),
        ((20, 100), False, {"keep": 20, "sink": 17}, [5, 6]),
        ((20, 120), True, {"chunk": 50, "sink": 17}, [5, 6, 7]),
        ((20, 100), False, {}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_blocks_that_nobody_needs_are_not_there(
    tokens: tuple[int, int], early: bool, needs: dict[str, int], there: list[int]
) -> None:
    table = alone(tokens, early, **needs)
    assert table.first == tokens[0] // 16
    assert (table.first + np.flatnonzero(table.ids >= 0)).tolist() == there
    assert len(set(table.ids.tolist()) - {-1}) == len(there)


def test_a_ring_has_all_its_blocks_wherever_the_range_is() -> None:
    table = alone((70, 71), ring=48, keep=20)
    assert (table.first, table.ids.size, table.ids.min() >= 0) == (0, 3, True)


def test_turns_longer_than_blocks_reach_as_far_as_the_longest_share() -> None:
    assert (alone((0, 40), ways=2).first, alone((0, 40), ways=2).ids.size) == (0, 3)
    assert (alone((70, 150), ways=2).first, alone((70, 150), ways=2).ids.size) == (0, 6)


def test_no_id_is_dealt_twice_in_an_arena() -> None:
    tables = {name: blocks(table) for name, table in deal(SIDE, {CONTEXT: (40, 100)}, seed=3).items()}
    assert (tables["tokens"].first, tables["tokens"].ids.size) == (1, 3)
    both = [*tables["tokens"].ids, *tables["state"].ids]
    assert len(set(both)) == len(both) == 4
    assert (tables["other"].first, tables["other"].ids.size) == (2, 5)


def test_groups_of_an_arena_lie_over_each_other_and_others_apart() -> None:
    tables = deal(SIDE, {CONTEXT: (0, 100)}, seed=3)
    memory = allocate(WORKER, (TOKENS, STATE, OTHER), tables, seed=1)
    start = {name: view.ctypes.data for name, view in memory.planes.items()}
    assert start["tokens.1"] == start["state.0"] != start["tokens.3"] == start["state.2"]
    assert not any(
        np.shares_memory(memory.planes["other.5"], memory.planes[name]) for name in start if name != "other.5"
    )
    assert memory.planes["tokens.1"].shape == (2 * len(memory.planes["state.0"]), 64)


def test_a_copy_has_the_same_bytes_in_other_memory() -> None:
    memory = allocate(WORKER, (TOKENS, STATE, OTHER), deal(SIDE, {CONTEXT: (0, 50)}, seed=3), seed=1)
    twin = memory.copy()
    memory.planes["state.0"][0, 0] ^= 1
    assert twin.planes["state.0"][0, 0] != memory.planes["state.0"][0, 0]
    assert np.array_equal(twin.planes["tokens.3"], memory.planes["tokens.3"])


def test_content_differs_from_place_to_place() -> None:
    values = content(np.arange(10_000))
    assert np.bincount(values, minlength=256).min() > 10
    for distance in (1, 2, 64, 128, 256, 4096):
        assert (np.roll(values, distance) == values).mean() < 0.05
