"""Intersect: pieces, runs and hops against every item on its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise, product
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.compiler.pair.intersect import AddressLoop, CommonRange, common, law, pieces, runs
from kvplan.compiler.placement.tree import AxisDigit, TensorPlacement

STEPS = st.integers(1, 1000)
SMALL = st.integers(1, 4)


@st.composite
def tiled(draw: st.DrawFn, items: int) -> tuple[AxisDigit, ...]:
    """An axis of at least so many items in tiles of any sizes, outermost first."""
    counts = draw(st.lists(SMALL, max_size=2))
    weights = [1, *accumulate(counts, mul)]
    return tuple(
        AxisDigit("head", weight, count, draw(STEPS))
        for weight, count in reversed([*zip(weights, [*counts, items], strict=True)])
    )


def address(digits: Sequence[AxisDigit], item: int) -> int:
    return sum(item // digit.weight % digit.count * digit.step for digit in digits)


def moved(at: tuple[int, int], loops: Sequence[AddressLoop]) -> list[tuple[int, int]]:
    turns = list(product(*(range(loop.count) for loop in loops)))
    return [
        (
            at[0] + sum(n * loop.prefill for n, loop in zip(turn, loops, strict=True)),
            at[1] + sum(n * loop.decode for n, loop in zip(turn, loops, strict=True)),
        )
        for turn in turns
    ]


@given(tiled(40), tiled(40), st.integers(0, 9), st.integers(0, 9), st.integers(0, 30), SMALL, SMALL)
def test_pieces_are_every_item_once(
    prefill: tuple[AxisDigit, ...],
    decode: tuple[AxisDigit, ...],
    first: int,
    other: int,
    count: int,
    step: int,
    other_step: int,
) -> None:
    steps = (1, 1) if count > 7 else (step, other_step)
    found = [
        places
        for p, d, loops in pieces(prefill, decode, CommonRange(first, other, count, steps))
        for places in moved((p, d), loops)
    ]
    expected = [(address(prefill, first + n * steps[0]), address(decode, other + n * steps[1])) for n in range(count)]
    assert sorted(found) == sorted(expected)


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_runs_are_every_layer_once(prefill: set[int], decode: set[int]) -> None:
    theirs, ours = tuple(sorted(prefill)), tuple(sorted(decode))
    layers = tuple(sorted(prefill & decode))
    found = runs(theirs, ours, layers)
    places = [(r.prefill + n * r.steps[0], r.decode + n * r.steps[1]) for r in found for n in range(r.count)]
    assert places == [(theirs.index(layer), ours.index(layer)) for layer in layers]


def test_runs_go_on_as_long_as_the_step_is_the_same() -> None:
    assert runs((0, 1, 2, 3), (0, 2), (0, 2)) == [CommonRange(0, 0, 2, (2, 1))]
    assert runs((0, 1, 3, 4), (0, 1, 2, 3, 4), (0, 1, 3, 4)) == [CommonRange(0, 0, 2), CommonRange(2, 3, 2)]


@given(tiled(12), tiled(12))
def test_hops_lead_to_every_row(prefill: tuple[AxisDigit, ...], decode: tuple[AxisDigit, ...]) -> None:
    step = law(TensorPlacement("k", 0, prefill), TensorPlacement("k", 0, decode), "head")
    for row in range(12):
        reached = [row * step.step[side] + sum(row // hop[0] * hop[1 + side] for hop in step.hops) for side in (0, 1)]
        assert reached == [address(prefill, row), address(decode, row)]


def test_a_common_range_counts_from_what_either_side_holds() -> None:
    assert common((2, 6), (4, 8)) == CommonRange(2, 0, 2)
    assert common((0, 2), (4, 8)).count == 0


def in_tiles(*weights: int) -> tuple[AxisDigit, ...]:
    """An axis of 48 items in tiles of so many, the outer ones first, with steps that nothing folds."""
    every = [*weights, 1]
    counts = [48 // every[0], *(outer // inner for outer, inner in pairwise(every))]
    return tuple(AxisDigit("head", w, n, 1000 * w + 7) for w, n in zip(every, counts, strict=True))


@pytest.mark.parametrize(
    ("prefill", "decode", "begin", "count", "expected"),
    [
        (in_tiles(), in_tiles(), (0, 0), 48, 1),
        (in_tiles(4), in_tiles(4), (0, 0), 8, 1),
        (in_tiles(4), in_tiles(2), (0, 0), 48, 1),
        (in_tiles(12, 4), in_tiles(12), (0, 0), 48, 1),
        (in_tiles(4), in_tiles(4), (4, 8), 40, 1),
        (in_tiles(4), in_tiles(4), (1, 1), 39, 2),
        (in_tiles(4), in_tiles(2), (2, 0), 46, 2),
        (in_tiles(4), in_tiles(4), (0, 2), 40, 2),
        (in_tiles(4), in_tiles(4), (1, 2), 12, 3),
        (in_tiles(4), in_tiles(6), (0, 0), 48, 4),
    ],
)
def test_whole_tiles_are_loops_and_what_never_begins_together_repeats(
    prefill: tuple[AxisDigit, ...], decode: tuple[AxisDigit, ...], begin: tuple[int, int], count: int, expected: int
) -> None:
    found = [*pieces(prefill, decode, CommonRange(*begin, count))]
    assert len(found) == expected
    assert sum(len(moved((p, d), loops)) for p, d, loops in found) == count
