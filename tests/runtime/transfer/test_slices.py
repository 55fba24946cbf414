"""Slices: no larger than asked, nothing lost or doubled, and neighbours kept together."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.random_sides.draw import case
from tests.runtime.helpers import plans
from tests.runtime.helpers.ends import asked, ends
from tests.runtime.helpers.plans import ROW, Shape
from tests.runtime.transfer.test_gather import BLOCKS, link

from kvplan.compiler.api import compile_bound
from kvplan.plan import request as requests
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.types import Runs
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.demand import demand
from kvplan.runtime.transfer.gather import IndexScratch, gather

PAGE = 2 * 2 * 4 * ROW


def matched(p: list[int], d: list[int], tokens: tuple[int, int]) -> dict[str, Runs]:
    return {"kv": plans.matched(tokens, p, d)}


def every(runs: Runs) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(column.tolist() for column in runs), strict=True))


PERMUTED = st.permutations(range(BLOCKS)).flatmap(lambda p: st.tuples(st.just(p), st.permutations(range(BLOCKS))))


@given(PERMUTED, st.integers(0, 20), st.integers(21, 4 * BLOCKS), st.integers(1, 8 * PAGE), st.booleans())
def test_slices_are_small_and_whole(
    sides: tuple[list[int], list[int]], first: int, end: int, most: int, push: bool
) -> None:
    one = link(Shape(1), Shape(1), push=push)
    runs = matched(*sides, (first, end))
    pieces, sizes = zip(*slices.cut(one, runs, most), strict=True)
    assert sum((every(piece["kv"]) for piece in pieces), Counter()) == every(runs["kv"])
    assert [*sizes] == [slices.size(one, piece) for piece in pieces]
    assert sum(sizes) == slices.size(one, runs) == (end - first) * 2 * 2 * ROW
    assert all(0 < size <= most or len(piece["kv"].count) == 1 for size, piece in zip(sizes, pieces, strict=True))
    # No two that follow each other would have fitted into one.
    heads = [slices.size(one, {"kv": Runs(*(column[:1] for column in piece["kv"]))}) for piece in pieces]
    assert all(size + head > most for size, head in zip(sizes, heads[1:], strict=False))
    assert [gather(one, piece, IndexScratch()).bytes for piece in pieces] == [*sizes]


def test_what_fits_is_the_very_same_arrays() -> None:
    one = link(Shape(1), Shape(1))
    runs = matched([5, 3], [2, 9], (0, 8))
    ((piece, size),) = slices.cut(one, runs, 2 * PAGE)
    assert piece["kv"] is runs["kv"]
    assert size == slices.size(one, runs)
    assert slices.cut(one, {"kv": NO_RUNS}, 1) == []


@pytest.mark.parametrize("order", ["rising", "falling", "mixed"])
def test_neighbours_stay_together(order: str) -> None:
    """Blocks that would be one request are one request in every slice, whatever order the tables have."""
    ids = {"rising": list(range(24)), "falling": list(range(23, -1, -1)), "mixed": [*range(0, 24, 2), *range(1, 24, 2)]}
    one = link(Shape(1), Shape(1))
    pieces = slices.cut(one, matched(ids[order], ids[order], (0, 96)), 6 * PAGE)
    # Two layers, each a plane of its own.
    assert [gather(one, piece, IndexScratch()).descriptors for piece, _ in pieces] == [2] * 4


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 2000))
def test_sizes_of_any_plan_are_what_is_posted(seed: int, most: int) -> None:
    drawn = case(seed)
    sides = drawn.prefill, drawn.decode
    made = compile_bound(*sides, {"elect": drawn.elect}).plan
    checked = requests.check(made, asked(drawn.request), {}, {})
    world = ends(made, sides, drawn.request)
    for worker, reads in enumerate(made.reads):
        wanted = demand(made, worker, checked)
        for theirs in sorted({read.worker for read in reads} if wanted.runs else ()):
            one = world.link(theirs, worker, push=False)
            runs = wanted.of(made.prefill.workers[theirs].shard)
            pieces = slices.cut(one, runs, most)
            assert slices.size(one, runs) == gather(one, runs, world.scratch).bytes
            assert sum(size for _, size in pieces) == slices.size(one, runs)
            for pair in {entry.pair.name for entry in one.entries}:
                assert sum((every(piece[pair]) for piece, _ in pieces), Counter()) == every(runs[pair])
