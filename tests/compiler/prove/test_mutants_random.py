"""Random damage to plans of random kinds: refused by the proof, unless it copies the same bytes after all."""

from __future__ import annotations

from random import Random

import pytest
from tests.compiler.prove.mutants.copies import by_tokens, traced
from tests.compiler.prove.mutants.plans import anywhere
from tests.random_sides.draw import Case, drawn
from tests.shares import later

from kvplan.compiler.api import compile_bound
from kvplan.compiler.check.request import Copy
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.prove.prove import prove
from kvplan.plan.request import Request
from kvplan.plan.types import Plan

SEEDS, TRIES = 10, 8


@pytest.mark.parametrize("first", [0, *later(range(SEEDS, 150, SEEDS))])
def test_random_damage_is_refused_or_copies_the_same_bytes(first: int) -> None:
    verdicts = {seed: verdict(seed) for seed in range(first, first + SEEDS)}
    assert {seed: found for seed, found in verdicts.items() if found not in ("refused", "the same", "none")} == {}
    assert list(verdicts.values()).count("refused") > SEEDS * 2 // 3


def verdict(seed: int) -> str:
    """The verdict on one random mutant of one random plan."""
    random = Random(seed)
    made = drawn(random, seed)
    plan = compile_bound(made.prefill, made.decode).plan
    mutant = next(filter(None, (anywhere(random, plan) for _ in range(TRIES))), None)
    if mutant is None:
        return "none"
    request = long_request(made)
    right, moves = traced(plan, request), traced(mutant, request)
    if not refused(mutant, made):
        return "the same" if moves is not None and moves == right else "accepted"
    if moves is None or moves == right or by_tokens(mutant):
        return "refused"
    return "not seen" if seems_right(mutant, made, moves, request) else "refused"


def long_request(drawn: Case) -> Request:
    """From within the first blocks to well into the last of several, on every worker."""
    own = dict.fromkeys(drawn.request.lengths, (2, 60))
    return sample_request(drawn.prefill, drawn.decode, (1, 75), drawn.seed, own)


def refused(plan: Plan, drawn: Case) -> bool:
    try:
        prove(plan, placed(drawn.prefill), placed(drawn.decode))
    except ProofFailed:
        return True
    return False


def seems_right(plan: Plan, drawn: Case, moves: list[Copy], request: Request) -> bool:
    return simulate(plan, drawn.prefill, drawn.decode, moves, request).right
