"""Cover: once is right; twice, missing and beyond are each named."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.prove.cover import CoordinateSet, check_cover, progression

EXTENTS = {"head": 4, "token": 2}


def region(heads: int, tokens: int = 0b11) -> CoordinateSet:
    return CoordinateSet("k", (("head", heads), ("token", tokens)))


def test_products_that_cover_once_pass() -> None:
    check_cover("here", "k", EXTENTS, [region(0b0101), region(0b1010, 0b01), region(0b1010, 0b10)])


@pytest.mark.parametrize(
    ("regions", "code"),
    [
        ([region(0b0111)], "P012"),
        ([region(0b1111), region(0b1000, 0b01)], "P011"),
        ([region(0b11111)], "P010"),
        ([CoordinateSet("k", (("head", 0b1111),))], "P010"),
        ([CoordinateSet("k", (("head", 0b1111), ("token", 0b11), ("dim", 1)))], "P010"),
        ([], "P012"),
    ],
)
def test_damage_is_named(regions: list[CoordinateSet], code: str) -> None:
    with pytest.raises(ProofFailed, match=code):
        check_cover("here", "k", EXTENTS, regions)


def test_progression_counts_turns_and_refuses_repeats() -> None:
    assert progression(1, [(3, 2)]) == 0b101010
    with pytest.raises(ProofFailed, match="P011"):
        progression(0, [(2, 1), (2, 1)])


@given(st.integers(0, 5), st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20)), max_size=3))
def test_a_progression_is_what_its_turns_say(start: int, turns: list[tuple[int, int]]) -> None:
    every = [start + sum(n * delta for n, (_, delta) in zip(at, turns, strict=True))
             for at in product(*(range(count) for count, _ in turns))]  # fmt: skip
    if len(set(every)) == len(every):
        assert progression(start, turns) == sum(1 << place for place in every)
    else:
        with pytest.raises(ProofFailed, match="P011"):
            progression(start, turns)
