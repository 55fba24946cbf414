"""Rings through the runtime: bytes that move, and requests that are refused before any does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache as once
from typing import Any

import numpy as np
import pytest
from tests.end_to_end.memory import EMPTY
from tests.end_to_end.worlds import World, move, runtime_request, world
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import ask, block_table, ring_table
from tests.runtime.helpers.requests import looked_at

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundSide
from kvplan.plan.types import Needs
from kvplan.runtime import Blocks, Plan, Ring, Slot, errors

TEXT = "layer { block { token { head { k[dim] } } } }"
NEEDS = Needs(keep=7)
# A ring of 12 tokens in 3 blocks on prefill; on decode two workers with a head each, and 8 tokens in a block.
REQUEST = ask((0, 30), {"c": ring_table((5, 2, 7), 30)}, {"c": ring_table((4,), 30)})


def sided(kernel: int, blocks: int, tp: int, name: str = "c") -> BoundSide:
    k = tensor("k", 1, {"head": "tp"}, head=2, token=0, dim=2)
    c = replace(cache(TEXT, k, name=name, layers=(0, 1), kernel=kernel), needs=NEEDS, ring=kernel * blocks)
    return side([c], [replace(group((c, (0, 1))), ring=kernel * blocks)], tp=tp)


@once
def sides() -> tuple[BoundSide, BoundSide]:
    return sided(4, 3, 1), sided(8, 1, 2)


@once
def plan() -> Plan:
    return compile_bound(*sides()).plan


@pytest.fixture
def made() -> Iterator[World]:
    with world(plan(), sides(), [REQUEST, replace(REQUEST, prefill={"c": ring_table((9, 8, 7), 40)})]) as found:
        yield found


@pytest.mark.parametrize("end", range(1, 31))
def test_every_end(made: World, end: int) -> None:
    """From the first token on, from the middle of what is needed, and of a ring that stands later."""
    for first in sorted({0, max(0, end - 3), end - 1, end}):
        for late in (0, 3, 5):
            move(made, replace(REQUEST, tokens=(first, end), prefill={"c": ring_table((5, 2, 7), end + late)},
                               decode={"c": ring_table((4,), end)}), f"{first}.{late}")  # fmt: skip


def held(made: World, name: str) -> None:
    for worker, _ in made.prefill:
        worker.hold(name)


def test_the_context_may_be_long(made: World) -> None:
    """Nothing as long as the range is made: what is needed of a ring is as long as the ring."""
    for end in (2**40 + 5, 2**62):
        asked = runtime_request(REQUEST, f"{end}")
        ids = asked.prefill["c"].ids, asked.decode["c"].ids  # type: ignore[union-attr]
        long = replace(asked, tokens=(0, end), prefill={"c": Ring(ids[0], end)}, decode={"c": Ring(ids[1], end)})
        held(made, f"{end}")
        assert all(reader.submit(long, 5).wait().state == "done" for reader, _ in made.decode)


def ring(*ids: int, at: Any = 30) -> Ring:
    return Ring(np.array(ids, np.int64), at)


BAD: dict[str, tuple[str, Any, str]] = {
    "blocks by position": ("prefill", Blocks(0, np.arange(8)), "holds a ring: give a Ring, not Blocks"),
    "a slot": ("decode", Slot(4, 30), "holds a ring: give a Ring, not Slot"),
    "nothing": ("decode", None, "give a Ring, not NoneType"),
    "too few": ("prefill", ring(5, 2), "give 3 ids, not 2"),
    "too many": ("decode", ring(4, 3), "a ring of 8 tokens in blocks of 8: give 1 ids, not 2"),
    "none": ("decode", ring(), "give 1 ids, not 0"),
    "a list of fractions": ("decode", Ring([4.0], 30), "one row of integers"),  # type: ignore[list-item]
    "two rows": ("decode", Ring(np.zeros((1, 1), np.int64), 30), "one row of integers"),
    "a fraction": ("decode", Ring(np.array([4.0]), 30), "one row of integers"),  # type: ignore[arg-type]
    "beyond the pool": ("decode", ring(10**6), "ids from 1000000"),
    "below -1": ("prefill", ring(5, -2, 7), "ids from -2"),
    "a block twice": ("prefill", ring(5, 2, 5), "block 5 is named twice"),
    "read before the end": ("prefill", ring(5, 2, 7, at=29), "stands after 29 tokens, the request ends at 30"),
    "written before the end": ("decode", ring(4, at=29), "stands after 29 tokens, the request ends at 30"),
    "written behind the end": ("decode", ring(4, at=31), "stands after 31 tokens, the request ends at 30"),
    "a word": ("decode", ring(4, at="30"), "its number of tokens is no whole number"),
    "true": ("decode", ring(4, at=True), "its number of tokens is no whole number"),
    "too large": ("prefill", ring(5, 2, 7, at=2**63), "no whole number below"),
    "gone on": ("prefill", ring(5, 2, 7, at=36), "stands after 36 and holds those from 24 on, asked for 23"),
    "gone on for long": ("prefill", ring(5, 2, 7, at=2**62), "asked for 23"),
    "a block that is not there": ("prefill", ring(5, 2, -1), "no block at position 2, where tokens are needed"),
    "no block at all": ("decode", ring(-1), "no block at position 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused_before_bytes_move(made: World, name: str) -> None:
    word, table, text = BAD[name]
    asked, tables = runtime_request(REQUEST, "r"), {"c": table}
    asked = replace(asked, prefill=tables) if word == "prefill" else replace(asked, decode=tables)
    for reader, memory in made.decode:
        done = looked_at(reader.submit(asked, 5))
        assert done.state == "failed"
        with pytest.raises(errors.BadRequestError, match=text):
            done.wait()
        assert all((allocation == EMPTY).all() for allocation in memory.allocations)
    move(made, REQUEST, "r")


def test_a_ring_where_there_is_none() -> None:
    plain = replace(sided(4, 1, 1), caches=tuple(replace(c, ring=0) for c in sided(4, 1, 1).caches))
    plain = replace(plain, groups=tuple(replace(g, ring=0) for g in plain.groups))
    request = ask((0, 9), {"c": block_table(0, (3, 1, 2))}, {"c": block_table(0, (3, 1, 2))})
    with world(compile_bound(plain, plain).plan, (plain, plain), [request]) as made:
        asked = replace(runtime_request(request, "r"), decode={"c": ring(3, 1, 2, at=9)})
        with pytest.raises(errors.BadRequestError, match="holds tokens: give Blocks, not Ring"):
            made.decode[0][0].submit(asked, 5).wait()


def test_a_block_belongs_to_one_ring() -> None:
    """Two groups over each other in one arena, one block in both."""
    one, other = sided(4, 2, 1), sided(4, 2, 1, "d")
    both = side([*one.caches, *other.caches], [*one.groups, *other.groups])
    tables = {"c": ring_table((0, 1), 9), "d": ring_table((2, 3), 9)}
    request = ask((0, 9), tables, tables)
    with world(compile_bound(both, both).plan, (both, both), [request]) as made:
        move(made, request, "r")
        asked = replace(runtime_request(request, "s"), decode={"c": ring(0, 1, at=9), "d": ring(1, 3, at=9)})
        with pytest.raises(errors.BadRequestError, match="block 1 is named twice"):
            made.decode[0][0].submit(asked, 5).wait()
