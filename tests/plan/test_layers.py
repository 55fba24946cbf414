"""Layers in the batches in which they are offered."""

from __future__ import annotations

import pytest

from kvplan.plan.layers import BATCHES, batches


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, []),
        (1, [1]),
        (3, [1, 1, 1]),
        (8, [1] * 8),
        (20, [3, 3, 3, 3, 3, 3, 1, 1]),
        (32, [4] * 7 + [2, 1, 1]),
        (80, [10] * 7 + [5, 3, 1, 1]),
    ],
)
def test_the_last_eighth_is_halved_down_to_one_layer(count: int, sizes: list[int]) -> None:
    found = batches(range(count))
    assert [len(batch) for batch in found] == sizes
    assert [layer for batch in found for layer in batch] == list(range(count))


def test_batches_are_neighbours_of_layers_given_in_any_order() -> None:
    assert batches({9, 2, 5}) == [(2,), (5,), (9,)]
    assert all(len(batches(range(count))) <= BATCHES + 5 for count in range(200))
