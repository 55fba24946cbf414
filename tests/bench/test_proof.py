"""The measurement of the proof: every step of a compilation is counted once; nothing here depends on the machine."""

from __future__ import annotations

import pytest

from kvplan.bench import proof
from kvplan.compiler import api


def test_every_step_of_a_compilation_is_timed_and_the_compiler_is_left_as_it_was() -> None:
    before = {name: getattr(api, name) for names in proof.STEPS.values() for name in names}
    times = proof.steps(proof.library(), "mla", "tp=2", "tp=1")
    assert times.keys() == {*proof.STEPS, "whole"}
    assert min(times.values()) > 0
    assert sum(times[step] for step in proof.STEPS) <= times["whole"]
    assert {name: getattr(api, name) for name in before} == before


@pytest.mark.parametrize(("prove", "rest", "met"), [(0.1, 0.3, True), (0.1, 0.1, False), (0.3, 0.9, False)])
def test_the_proof_has_its_share_and_the_compilation_a_second(prove: float, rest: float, met: bool) -> None:
    run = {**dict.fromkeys(proof.STEPS, 0.0), "route": rest, "prove": prove, "whole": prove + rest}
    row = proof._row("a pair", [run, run])
    assert row.met is met
    assert row.details["whole"] == pytest.approx(1000 * (prove + rest))
    assert row.value.startswith(f"{prove / (prove + rest):.2f} of ")
