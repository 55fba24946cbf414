"""Whatever is stored however on both sides: the plan, executed, gives what naive indexing of the caches gives."""

from __future__ import annotations

from hypothesis import given, note, settings

from kvplan.compiler.api import compile_bound
from kvplan.compiler.request import check
from kvplan.compiler.simulate import simulate
from kvplan.compiler.trace import copies
from tests.property.draw import Case, cases


@settings(max_examples=100)
@given(cases())
def test_a_plan_gives_what_naive_indexing_gives(case: Case) -> None:
    note("\n".join([f"seed {case.seed}", *case.texts]))
    check(case.request, case.prefill, case.decode)
    plan = compile_bound(case.prefill, case.decode).plan
    report = simulate(plan, case.prefill, case.decode, copies(plan, case.request), case.request)
    assert report.right, report.text()
    assert report.bytes or not case.decode.caches
