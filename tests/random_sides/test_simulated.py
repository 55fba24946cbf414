"""Whatever is stored however on both sides: the plan, executed, gives what naive indexing of the caches gives."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis.strategies import sampled_from
from tests.random_sides.draw import Case, case, cases

from kvplan.compiler.api import compile_bound
from kvplan.compiler.check.request import check
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies

# So many are looked at for what random cases are like.
CASES = 12


@settings(max_examples=40)
@given(cases(), sampled_from(("direct", "unpack", "pack")))
def test_a_plan_gives_what_naive_indexing_gives(drawn: Case, way: str) -> None:
    note("\n".join([f"seed {drawn.seed}", *drawn.texts]))
    check(drawn.request, drawn.prefill, drawn.decode)
    plan = compile_bound(drawn.prefill, drawn.decode, {"elect": drawn.elect, "strategy": way}).plan
    report = simulate(plan, drawn.prefill, drawn.decode, copies(plan, drawn.request, way), drawn.request)
    assert report.right, report.text()


@pytest.mark.parametrize("way", ["unpack", "pack"])
def test_many_cases_go_by_way_of_a_stage(way: str) -> None:
    found = [case(seed) for seed in range(CASES)]
    plans = [compile_bound(c.prefill, c.decode, {"strategy": way}).plan for c in found]
    staged = [plan for plan in plans if any(getattr(read.table, way) for reads in plan.reads for read in reads)]
    assert len(staged) > len(found) // 4


def test_most_cases_move_something() -> None:
    found = [case(seed) for seed in range(CASES)]
    asked = [c for c in found if c.request.tokens[0] < c.request.tokens[1]]
    moved = [c for c in asked if copies(compile_bound(c.prefill, c.decode).plan, c.request)]
    assert len(moved) > len(found) * 3 // 4
