"""Cover: once is right; twice, missing and beyond are each named."""

import pytest

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
    ],
)
def test_damage_is_named(regions: list[CoordinateSet], code: str) -> None:
    with pytest.raises(ProofFailed, match=code):
        check_cover("here", "k", EXTENTS, regions)


def test_progression_counts_turns_and_refuses_repeats() -> None:
    assert progression(1, [(3, 2)]) == 0b101010
    with pytest.raises(ProofFailed, match="P011"):
        progression(0, [(2, 1), (2, 1)])
