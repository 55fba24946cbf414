"""Every two values of any two dimensions meet in a case whose bytes really move, over the memory transport."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from tests.end_to_end.asking import requests
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.dimensions import DIMENSIONS, Case, cases, clash
from tests.end_to_end.hardest import HARDEST
from tests.end_to_end.memory import EMPTY, allocate
from tests.end_to_end.pairwise import pairs
from tests.end_to_end.worlds import move, world
from tests.shares import later, with_rest

from kvplan.compiler.check.request import check
from kvplan.plan.request import Request

CASES = cases()
NOW = CASES[::4]


def test_every_two_values_meet() -> None:
    met = {pair for case in CASES for pair in combinations(case.values, 2)}
    assert not [pair for pair in pairs(DIMENSIONS, clash) if pair not in met]
    assert not [pair for pair in met if clash(*pair)]
    assert 60 <= len(CASES) <= 150


def moved(case: Case, asked: dict[str, Request]) -> None:
    """Requests of a case, one after the other."""
    both = sides(case)
    for request in asked.values():
        check(request, *both)
    with world(compiled(case), both, list(asked.values())) as made:
        for name, request in asked.items():
            move(made, request, name)
        assert made.finished() == {tuple(sorted(asked))}, str(case)


@with_rest("one")
@pytest.mark.parametrize(
    "case", [*NOW, *later(case for case in CASES if case not in NOW)], ids=lambda case: str(case.number)
)
def test_every_byte(case: Case, rest: bool) -> None:
    """One request of every fourth case, of another kind from case to case; the others in `make test-all`."""
    every = requests(case)
    # Not the whole hit, the last, of which little moves.
    first = list(every)[case.number % (len(every) - 1)]
    moved(case, {name: request for name, request in every.items() if (name != first) == rest})


@pytest.mark.parametrize("name", HARDEST)
def test_every_byte_of_the_hardest(name: str) -> None:
    moved(HARDEST[name], requests(HARDEST[name]))


@pytest.mark.parametrize("padding", ["fused row", "overlaid"])
def test_planes_lie_among_each_other_where_a_case_says_so(padding: str) -> None:
    """Planes whose ranges of memory intersect, of one group or of several."""
    found = [allocate(sides(case)[1], 0, 4, EMPTY) for case in CASES if case["decode padding"] == padding]
    spans = [sorted((v.ctypes.data, v.ctypes.data + v.strides[0] * 3) for v in m.planes.values()) for m in found]
    mixed = [any(end > begin for (_, end), (begin, _) in pairwise(one)) for one in spans]
    assert sum(mixed) > len(mixed) // 2
