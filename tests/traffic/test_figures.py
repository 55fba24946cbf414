"""Figures: percentiles, parts that add up, shares, and which pair is best and why."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from tests.traffic.pairs import PAIR, decode, prefill

from kvplan.dsl.schema.fleet import Rails
from kvplan.traffic.arrivals import Arrival
from kvplan.traffic.figures import CandidateFigures, Percentiles, best_of, bound, figures_of, why
from kvplan.traffic.simulate import simulated

ARRIVALS = [Arrival(2000.0 * number, 1024, 10) for number in range(20)]


@pytest.fixture(scope="module")
def figures() -> CandidateFigures:
    pair = decode(prefill(rails=Rails(2, 1e9), tokens_per_s=800_000), us_per_token=100)
    return figures_of("one", simulated(pair, ARRIVALS))


def test_parts_add_up_to_the_time_to_the_first_token(figures: CandidateFigures) -> None:
    assert (figures.requests, figures.done, figures.lost) == (20, 20, 0)
    assert figures.first_token.p50 <= figures.first_token.p90 <= figures.first_token.p99
    # All are equal: each is computed for 1.28 ms, moved for 2.158 and waits for nobody.
    assert astuple(figures.parts) == pytest.approx((0, 1.28, 0, 2.158, 0.1), abs=0.02)
    assert sum(astuple(figures.parts)) == pytest.approx(figures.first_token.p50, abs=0.05)


def test_shares_are_of_the_busiest_and_of_the_time_from_first_to_last(figures: CandidateFigures) -> None:
    span = 19 * 2000 + 1280 + 2158 + 1000
    assert figures.per_second == pytest.approx(20 / span * 1e6, rel=0.01)
    assert figures.busy.compute == pytest.approx(20 * 1280 / span, rel=0.01)
    assert figures.busy.rails == pytest.approx(20 * 1024 / 2 / span, rel=0.01)
    assert figures.busy.cores == 0
    assert 0 < figures.prefill_blocks < figures.decode_blocks < 0.05
    assert bound(figures) == f"prefill computes {100 * figures.busy.compute:.0f} % of the time"


def test_nothing_that_arrives_has_no_figures() -> None:
    nothing = figures_of("none", simulated(PAIR, ()))
    assert (nothing.requests, nothing.done, nothing.per_second != nothing.per_second) == (0, 0, True)
    assert best_of([nothing]) is None


def like(figures: CandidateFigures, name: str, p90: float, p50: float = 1.0, expired: int = 0) -> CandidateFigures:
    return replace(figures, name=name, first_token=Percentiles(p50, p90, 9.0), expired=expired)


def test_best_is_who_loses_least_then_who_is_fastest_then_who_comes_first(figures: CandidateFigures) -> None:
    fast, slow = like(figures, "fast", 2.0), like(figures, "slow", 3.0)
    lossy, equal = like(figures, "lossy", 1.0, expired=1), like(figures, "equal", 1.99)
    middle = like(figures, "middle", 2.0, p50=0.5)
    assert best_of([slow, fast, lossy]) is fast
    assert best_of([fast, equal]) is fast
    assert best_of([fast, middle]) is middle
    assert best_of([lossy]) is lossy
    assert best_of([]) is None


def test_why_names_the_next_one_and_what_tells_them_apart(figures: CandidateFigures) -> None:
    fast = like(figures, "fast", 2.0)
    slow = replace(like(figures, "slow", 4.0), parts=replace(figures.parts, transfer=figures.parts.transfer + 7))
    assert why(fast, [slow, fast]) == (
        "p90 to the first token is 50 % less than with slow: moving takes 7.0 ms less in the mean"
    )
    assert "loses 0 of 20 requests, lossy 3" in why(fast, [fast, like(figures, "lossy", 1.0, expired=3)])
    assert why(fast, [fast, like(figures, "equal", 2.01)]) == "equal is as fast within a hundredth"
    assert why(fast, [fast]) == "there is no other one"
    assert why(fast, [fast, replace(slow, done=0)]) == "no other one answers anything"
