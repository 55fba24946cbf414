"""Random pairs of sides through the runtime: what is simulated elsewhere moves here, over the memory transport."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.end_to_end.worlds import move, world
from tests.random_sides.draw import case
from tests.shares import later

from kvplan.compiler.api import compile_bound

SEEDS = range(1000, 1060)


@pytest.mark.parametrize("seed", [*SEEDS[:15], *later(SEEDS[15:])])
def test_every_byte(seed: int) -> None:
    drawn = case(seed)
    both, request = (drawn.prefill, drawn.decode), replace(drawn.request, owns_last_block=seed % 2 == 1)
    mode = "push" if seed % 4 > 1 else "pull"
    with world(compile_bound(*both).plan, both, [request], mode=mode) as made:
        move(made, request, "r")
        assert made.finished() <= {("r",)}, drawn.texts


def test_most_of_them_move_something() -> None:
    ranges = [case(seed).request.tokens for seed in SEEDS]
    assert sum(first < end for first, end in ranges) > len(SEEDS) * 3 // 4
