"""Random pairs of sides through the runtime: what is simulated elsewhere moves here, over the memory transport."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.end_to_end.worlds import move, world
from tests.random_sides.draw import Case, case, twins
from tests.shares import later

from kvplan.compiler.api import compile_bound
from kvplan.runtime.transfer.demand import demand

SEEDS = range(1000, 1060)


@pytest.mark.parametrize("seed", [*SEEDS[:15], *later(SEEDS[15:])])
def test_every_byte(seed: int) -> None:
    check(case(seed), "push" if seed % 2 else "pull")


@pytest.mark.parametrize("seed", [*SEEDS[:10], *later(SEEDS[10:])])
def test_every_byte_between_equal_sides_whose_last_page_may_be_whole(seed: int) -> None:
    check(twins(case(seed)), "push" if seed % 2 else "pull")


def check(drawn: Case, mode: str) -> None:
    both = drawn.prefill, drawn.decode
    with world(compile_bound(*both).plan, both, [drawn.request], mode=mode) as made:
        move(made, drawn.request, "r")
        assert made.finished() <= {("r",)}, drawn.texts


def test_many_last_pages_are_whole() -> None:
    drawn = [twins(case(seed)) for seed in SEEDS[:30]]
    assert sum(whole_pages(one) for one in drawn) > 6


def whole_pages(drawn: Case) -> bool:
    """Whether anything more is moved because the last page may be whole."""
    plan = compile_bound(drawn.prefill, drawn.decode).plan
    both = [
        demand(plan, 0, one).runs.values() for one in (drawn.request, replace(drawn.request, whole_last_page=False))
    ]
    more, exact = [sum(int(runs.count.sum()) for runs in some) for some in both]
    assert more >= exact
    return more > exact


def test_most_of_them_move_something() -> None:
    ranges = [case(seed).request.tokens for seed in SEEDS]
    assert sum(first < end for first, end in ranges) > len(SEEDS) * 3 // 4
