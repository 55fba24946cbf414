"""Which rows must have arrived, and where they lie: by example, and against the functions that plans move them by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.random_sides.sides import cache, group, side, tensor

from kvplan.cli.demo.rows import RequestShare, arrived, held, slot, spot
from kvplan.compiler.bound import BoundCache
from kvplan.compiler.emit.match_functions import build
from kvplan.plan.types import CONTEXT, Blocks, Group, Needs

K = tensor("k", 1, token=0)
NONE = Blocks(0, np.array([], np.int64))


def one(kernel: int = 16, ring: int = 0, **needs: int) -> BoundCache:
    return replace(cache("layer { block { token { k } } }", K, kernel=kernel), ring=ring, needs=Needs(**needs))


def share(
    only: BoundCache, table: Blocks = NONE, tokens: tuple[int, int] = (0, 1), ratio: int = 1, turns: int = 1
) -> RequestShare:
    """Worker 0's share in one cache, in blocks of `ratio` kernel blocks; `turns` workers, 2 tokens each."""
    its = replace(group((only, (0,)), ratio=ratio), ring=only.ring)
    return RequestShare(side([only], [its], tp=turns, dcp=turns, chunk=2), 0, {"c": table}, {CONTEXT: tokens})


@pytest.mark.parametrize(
    ("tokens", "unit", "needs", "rows"),
    [
        ((3, 7), 1, {}, [3, 4, 5, 6]),
        ((0, 100), 1, {"keep": 3}, [97, 98, 99]),
        ((98, 100), 1, {"keep": 3}, [98, 99]),
        ((0, 100), 1, {"keep": 3, "sink": 2}, [0, 1, 97, 98, 99]),
        ((1, 100), 1, {"keep": 3, "sink": 2}, [1, 97, 98, 99]),
        ((0, 100), 1, {"chunk": 32}, [96, 97, 98, 99]),
        ((0, 96), 1, {"chunk": 32}, []),
        ((6, 30), 4, {}, [1, 2, 3, 4, 5, 6]),
        ((8, 31), 4, {}, [2, 3, 4, 5, 6]),
        ((0, 30), 4, {"keep": 7}, [5, 6]),
        ((0, 30), 4, {"keep": 6}, [6]),
        ((0, 30), 4, {"keep": 2}, []),
        ((2, 30), 4, {"keep": 6, "sink": 5}, [0, 1, 6]),
    ],
)
def test_what_must_have_arrived(tokens: tuple[int, int], unit: int, needs: Mapping[str, int], rows: list[int]) -> None:
    only = one(**needs)
    assert arrived(share(only, tokens=tokens), only, unit).tolist() == rows


def test_a_cache_that_is_skipped_must_not_arrive() -> None:
    only = one()
    skipped = replace(share(only, tokens=(0, 9)), skipped=frozenset("c"))
    assert arrived(skipped, only, 1).size == 0
    assert held(skipped, only, 1).size == 9


def test_a_cache_goes_by_the_length_that_it_names() -> None:
    only = replace(one(), length="frames")
    both = replace(share(only), asked={CONTEXT: (0, 9), "frames": (2, 5)})
    assert arrived(both, only, 1).tolist() == [2, 3, 4]


def test_a_ring_has_had_what_it_did_not_overwrite() -> None:
    assert held(share(one(), tokens=(5, 30)), one(), 1).tolist() == list(range(30))
    ring = one(kernel=4, ring=8)
    assert held(share(ring, tokens=(5, 30)), ring, 1).tolist() == list(range(22, 30))
    assert held(share(ring, tokens=(5, 30)), ring, 4).tolist() == [5, 6]


def test_rows_lie_in_kernel_blocks_of_blocks_that_are_there() -> None:
    """Blocks of two kernel blocks of 8 tokens, in rows of four; the one at position 2 is not there."""
    only = one(kernel=8)
    given = share(only, Blocks(1, np.array([7, -1, 3])), ratio=2)
    found = spot(given, given.side.groups[0], np.arange(16), 4)
    assert found.number.tolist() == [4, 5, 6, 7, 12, 13, 14, 15]
    assert found.block.tolist() == [14, 14, 15, 15, 6, 6, 7, 7]
    assert found.row.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]


def test_positions_of_a_ring_begin_again() -> None:
    only = one(kernel=4, ring=8)
    given = share(only, Blocks(0, np.array([5, 2])))
    found = spot(given, given.side.groups[0], np.arange(22, 30), 1)
    assert found.block.tolist() == [2, 2, 5, 5, 5, 5, 2, 2]
    assert found.row.tolist() == [2, 3, 0, 1, 2, 3, 0, 1]


def test_workers_that_take_turns_have_their_own_tokens() -> None:
    """Two workers take turns of 2 tokens; blocks of 4."""
    only = one(kernel=4)
    for number, tokens in ((0, [0, 1, 4, 5, 8, 9]), (1, [2, 3, 6, 7, 10, 11])):
        given = replace(share(only, Blocks(0, np.array([1, 0])), turns=2), number=number)
        found = spot(given, given.side.groups[0], np.arange(12), 1)
        assert found.number.tolist() == tokens
        assert found.block.tolist() == [1, 1, 1, 1, 0, 0]
        assert found.row.tolist() == [0, 1, 2, 3, 0, 1]


def test_a_state_lies_in_its_slot_whatever_the_range() -> None:
    state = cache("layer { block { s } }", tensor("s", 1))
    given = RequestShare(side([state]), 0, {"c": Blocks(0, np.array([6]))}, {CONTEXT: (70, 90)})
    found = slot(given, state, given.side.groups[0], arrived)
    assert (found.block.tolist(), found.row.tolist()) == ([6], [0])
    assert slot(replace(given, skipped=frozenset("c")), state, given.side.groups[0], arrived).block.size == 0


kept = st.one_of(
    st.just(Needs()),
    st.builds(Needs, keep=st.integers(1, 40), chunk=st.none(), sink=st.integers(0, 9)),
    st.builds(Needs, keep=st.none(), chunk=st.integers(1, 40), sink=st.integers(0, 9)),
)


@given(kept, st.sampled_from([1, 2, 4, 8]), st.integers(0, 90), st.integers(0, 90), st.sampled_from([0, 64, 96]))
def test_plans_move_the_rows_that_must_arrive(needs: Needs, unit: int, first: int, count: int, ring: int) -> None:
    """To the same places; in a ring, if what is needed fits."""
    end = first + count
    fits = needs.sink == 0 and min(needs.keep or 99, needs.chunk or 99) < 64 - unit
    ring = ring if fits else 0
    only = replace(one(kernel=16, ring=ring), needs=needs)
    paged = Blocks(0, np.arange(12)[::-1].copy() if not ring else np.arange(ring // 16)[::-1].copy())
    asked = share(only, paged, (first, end))
    want = spot(asked, asked.side.groups[0], arrived(asked, only, unit), unit)
    its = Group("c", "tokens", 16, 16, 1, 0, ring=ring)
    runs = build(its, its, needs, unit)(first, end, paged, paged, 0, 0)
    block = np.repeat(runs.decode_block, runs.count)
    row = [int(at) + i for at, n in zip(runs.decode_token, runs.count, strict=True) for i in range(n)]
    assert sorted(zip(block, row, strict=True)) == sorted(zip(want.block, want.row, strict=True))
