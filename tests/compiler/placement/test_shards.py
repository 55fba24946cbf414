"""Own: shares are disjoint and cover, copies are equal or disjoint, token shares meet where they share a token."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.compiler.placement.shards import meet, share


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["consecutive", "round_robin"]))
def test_shares_cover_every_item_and_are_equal_or_disjoint(items: int, workers: int, copies: str) -> None:
    held = [share(items, workers, i, copies) for i in range(workers)]
    assert {item for start, stop in held for item in range(start, stop)} == set(range(items))
    for (a, b), (c, d) in combinations(held, 2):
        assert (a, b) == (c, d) or b <= c or d <= a


def test_copies_go_consecutively_or_round() -> None:
    assert [share(2, 4, i)[0] for i in range(4)] == [0, 0, 1, 1]
    assert [share(2, 4, i, "round_robin")[0] for i in range(4)] == [0, 1, 0, 1]


def test_uneven_shares_are_proportional() -> None:
    assert [share(8, 3, i) for i in range(3)] == [(0, 2), (2, 5), (5, 8)]


@pytest.mark.parametrize("ways", [1, 2, 3, 4])
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_meet_agrees_with_counting(ways: int, chunk: int) -> None:
    for other in [(1, 1, 0), (2, 2, 1), (3, 1, 2), (2, 3, 0), (4, 2, 3)]:
        for turn in range(ways):
            mine = {t for t in range(600) if t // chunk % ways == turn}
            theirs = {t for t in range(600) if t // other[1] % other[0] == other[2]}
            assert meet((ways, chunk, turn), other) == bool(mine & theirs)
