"""Simulated fleets: what is given back, what one request takes, queues, limits, leases, prefixes, cards and cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traffic.pairs import BYTES, PAIR, decode, prefill

from kvplan.compiler.api import compile_pair
from kvplan.compiler.cost.profile import COLD_AFTER
from kvplan.compiler.cost.times import times_us
from kvplan.dsl.library import load
from kvplan.dsl.schema.fleet import Rails
from kvplan.runtime.transfer.limits import Limits
from kvplan.traffic.arrivals import Arrival
from kvplan.traffic.loads import loads_of
from kvplan.traffic.runs import RequestEnd, RequestTimes, SimulatedPair, SimulatedRun
from kvplan.traffic.simulate import SimulatedFleet, simulated

TOKENS = 1024
# The times of one request of TOKENS tokens by itself: a transfer, a slice, its descriptors, its bytes.
ALONE = 100 + 10 + TOKENS + TOKENS
# A pair whose transfers take 800 us more where there was none for a while.
COLD = replace(PAIR, profile=replace(PAIR.profile, cold_us=800.0))
HASHES = st.sampled_from([(), (1,), (1, 2, 3), (4, 2, 3)])
ARRIVALS = st.lists(
    st.builds(Arrival, st.integers(0, 20_000), st.integers(1, 3000), st.integers(0, 30), HASHES), max_size=25
).map(lambda arrivals: sorted(arrivals, key=lambda arrival: arrival.at))
RAILS = st.none() | st.builds(Rails, st.integers(1, 3), st.sampled_from([2e8, 1e9, 5e9]))


@st.composite
def pairs(draw: st.DrawFn) -> SimulatedPair:
    """Fleets that are short of whatever there may be too little of."""
    figures: dict[str, st.SearchStrategy[Any]] = {
        "engines": st.integers(1, 3),
        "cache_tokens": st.sampled_from([1024, 4096, 65536]),
        "rails": RAILS,
    }
    ours, theirs = ({name: draw(of) for name, of in figures.items()} for _ in range(2))
    pair = decode(prefill(PAIR, **ours, lease_s=1), **theirs, sequences=draw(st.integers(1, 4)))
    return replace(
        pair,
        mode=draw(st.sampled_from(["pull", "push"])),
        pieces=draw(st.sampled_from([1, 4])),
        router=draw(st.sampled_from(["round_robin", "least_loaded", "most_free_blocks"])),
        limits=Limits(2_000_000, 4_000_000, draw(st.sampled_from([100_000, 2_000_000])), draw(st.integers(1, 5))),
        cores=draw(st.none() | st.sampled_from([1.0, 2.0])),
    )


def only(run: SimulatedRun) -> RequestTimes:
    (request,) = run.requests
    return request


def moved(request: RequestTimes) -> float:
    return request.moved - request.submitted


@settings(max_examples=200, deadline=None)
@given(pairs(), ARRIVALS)
def test_every_request_ends_once_and_gives_everything_back(pair: SimulatedPair, arrivals: Sequence[Arrival]) -> None:
    fleet = SimulatedFleet(pair)
    run = fleet.run(arrivals)
    assert [request.arrived for request in run.requests] == [arrival.at for arrival in arrivals]
    for engine in (*fleet.prefills, *fleet.decodes):
        assert (engine.held, engine.load, engine.pool.in_use, engine.turns.count) == (0, 0, 0, 0)
        assert engine.pool.most <= engine.pool.capacity
    for request in run.requests:
        times = [request.arrived, request.began, request.computed, request.submitted, request.moved, request.first]
        assert request.end is not RequestEnd.DONE or times == sorted(times)


@settings(max_examples=100, deadline=None)
@given(pairs(), ARRIVALS)
def test_no_card_and_no_core_does_more_than_it_can(pair: SimulatedPair, arrivals: Sequence[Arrival]) -> None:
    run = simulated(pair, arrivals)
    done = [request for request in run.requests if request.end is RequestEnd.DONE]
    span = max(request.moved for request in done) - run.requests[0].arrived if done else 0.0
    assert all(use.bytes <= use.rails * span * (1 + 1e-9) for use in (*run.prefill, *run.decode))
    assert run.working <= run.cores * span * (1 + 1e-9)
    if all(engine.rails is not None for engine in (pair.prefill, pair.decode)):
        most = sum(BYTES * arrivals[n].input for n, r in enumerate(run.requests) if r.end is RequestEnd.DONE)
        sums = [sum(use.bytes for use in side) for side in (run.prefill, run.decode)]
        assert sums[0] == pytest.approx(sums[1], rel=1e-6, abs=1)
        assert sums[0] <= most * (1 + 1e-6) + 1


@settings(max_examples=50, deadline=None)
@given(pairs(), ARRIVALS)
def test_the_same_input_gives_the_same_run(pair: SimulatedPair, arrivals: Sequence[Arrival]) -> None:
    assert repr(simulated(pair, arrivals)) == repr(simulated(pair, arrivals))


@settings(max_examples=100, deadline=None)
@given(ARRIVALS, st.integers(1, 3), st.sampled_from([1e8, 1e9]))
def test_with_more_cards_one_pair_is_never_done_later(arrivals: Sequence[Arrival], count: int, rate: float) -> None:
    few, more = (decode(prefill(rails=Rails(n, rate)), rails=Rails(n, rate)) for n in (count, count + 1))
    last = [max((request.moved for request in simulated(p, arrivals).requests), default=0.0) for p in (few, more)]
    assert last[1] <= last[0] * (1 + 1e-9)


def test_nothing_that_arrives_is_no_request() -> None:
    assert simulated(PAIR, ()).requests == ()


def test_one_request_takes_what_it_is_made_of() -> None:
    request = only(simulated(PAIR, [Arrival(50.0, TOKENS, 3)]))
    assert (request.began, request.computed, request.submitted) == (50, 50 + TOKENS, 50 + TOKENS)
    assert moved(request) == pytest.approx(ALONE)
    assert (request.first - request.moved, request.answered - request.moved) == pytest.approx((1000, 3000))


@pytest.mark.parametrize("rails", [None, Rails(1, 1e12)], ids=["copied", "cards"])
@pytest.mark.parametrize(
    ("model", "prefill_side", "decode_side", "strategy"),
    [
        ("llama-3.1-8b", "tp=1", "tp=1", "direct"),
        ("llama-3.1-8b", "tp=4", "tp=2,order=nhd", "auto"),
        ("nemotron-3-nano-30b", "tp=4", "tp=1", "direct"),
        ("gpt-oss-20b", "tp=1", "tp=2", "direct"),
    ],
)
def test_one_request_of_1024_tokens_takes_what_the_cost_model_predicts(
    model: str, prefill_side: str, decode_side: str, strategy: str, rails: Rails | None
) -> None:
    library = load()
    profile = library.machine(library.default_machine)
    made = compile_pair(library, model, prefill_side, decode_side, {"strategy": strategy})
    pair = replace(PAIR, loads=loads_of(made.plan, profile, "pull"), profile=profile)
    pair = decode(prefill(pair, rails=rails), rails=rails)
    predicted = times_us(made.facts.moves, "unpack" if strategy == "auto" else "direct", profile)
    cold = max(predicted.values()) + profile.cold_us
    assert moved(only(simulated(pair, [Arrival(0.0, TOKENS, 1)]))) == pytest.approx(cold, rel=1e-9)


def test_a_transfer_whose_engines_had_none_for_a_while_is_cold() -> None:
    after = 1e6 * COLD_AFTER
    # The second one is asked for half of that after the first has moved, the last one long after.
    second = TOKENS + ALONE + 800 + after / 2
    arrivals = [Arrival(at - TOKENS, TOKENS, 1) for at in (TOKENS, second, second + 3 * after)]
    times = simulated(COLD, arrivals).requests
    assert [moved(request) - ALONE for request in times] == pytest.approx([800, 400, 800])


@pytest.mark.parametrize("engines", [1, 2])
def test_a_transfer_is_warm_where_either_of_its_engines_has_another(engines: int) -> None:
    end = TOKENS + ALONE + 800
    # It is asked for before the first is over, and posted after that.
    arrivals = [Arrival(0.0, TOKENS, 1), Arrival(end - 50 - TOKENS, TOKENS, 1)]
    first, second = simulated(prefill(COLD, engines=engines), arrivals).requests
    assert (first.moved, moved(second)) == pytest.approx((end, ALONE))


def test_what_is_asked_for_while_an_engine_is_cold_waits_until_it_is_warm() -> None:
    first, second = simulated(COLD, [Arrival(0.0, TOKENS, 1), Arrival(1.0, 16, 1)]).requests
    # Then both are posted at once, as one transfer.
    assert first.moved == second.moved == pytest.approx(TOKENS + 800 + ALONE + 2 * 16)


def test_a_slow_card_bounds_a_transfer() -> None:
    pair = prefill(rails=Rails(1, 1e8))
    # A tenth of the profile's rate: ten times the time for the bytes.
    assert moved(only(simulated(pair, [Arrival(0.0, TOKENS, 1)]))) == pytest.approx(100 + 10 + TOKENS + 10 * TOKENS)


def test_cards_are_shared_alike() -> None:
    pair = decode(prefill(engines=1, rails=Rails(1, 1e9), tokens_per_s=1 << 40), engines=2)
    run = simulated(pair, [Arrival(0.0, TOKENS, 1)] * 2)
    # Both are posted at once by two engines, and each has half of the one card.
    assert [moved(request) for request in run.requests] == pytest.approx([100 + 10 + TOKENS + 2 * TOKENS] * 2, abs=1)


def test_cores_are_shared_by_all_that_work() -> None:
    pair = replace(decode(prefill(tokens_per_s=1 << 40), engines=2), cores=1.0)
    run = simulated(pair, [Arrival(0.0, TOKENS, 1)] * 2)
    assert [moved(request) for request in run.requests] == pytest.approx([100 + 2 * (ALONE - 100)] * 2, abs=1)
    assert run.working == pytest.approx(2 * (ALONE - 100), rel=1e-6)


def test_a_thread_posts_one_after_the_other() -> None:
    run = simulated(prefill(tokens_per_s=1 << 40), [Arrival(0.0, 8 * TOKENS, 1)] * 2)
    work = 10 + 2 * 8 * TOKENS
    assert [moved(request) for request in run.requests] == pytest.approx([100 + work, 100 + 2 * work], abs=1)


def test_small_slices_are_posted_together() -> None:
    run = simulated(prefill(tokens_per_s=1 << 40), [Arrival(0.0, TOKENS, 1)] + [Arrival(1.0, 16, 1)] * 2)
    # They wait while the first one is posted, and then take one slice's time together.
    assert [request.moved for request in run.requests[1:]] == pytest.approx([ALONE + 10 + 2 * 32] * 2, abs=1)


def test_layers_that_move_while_others_are_computed_end_sooner() -> None:
    whole = only(simulated(PAIR, [Arrival(0.0, TOKENS, 1)]))
    pieces = only(simulated(replace(PAIR, pieces=8), [Arrival(0.0, TOKENS, 1)]))
    assert pieces.computed == whole.computed
    assert pieces.moved < whole.moved


def test_prefill_computes_one_after_the_other_and_routers_share_that_out() -> None:
    arrivals = [Arrival(0.0, TOKENS, 1)] * 2
    assert [r.computed for r in simulated(PAIR, arrivals).requests] == [TOKENS, 2 * TOKENS]
    for router in ("round_robin", "least_loaded", "most_free_blocks"):
        # A router sees that an engine's blocks are taken when the engine computes.
        later = [arrivals[0], replace(arrivals[1], at=1.0)]
        run = simulated(replace(prefill(engines=2), router=router), later)
        assert [request.computed for request in run.requests] == [TOKENS, 1 + TOKENS]


def test_what_can_never_fit_is_refused() -> None:
    assert only(simulated(prefill(cache_tokens=TOKENS - 1), [Arrival(0.0, TOKENS, 1)])).end is RequestEnd.REFUSED
    assert only(simulated(decode(cache_tokens=TOKENS), [Arrival(0.0, TOKENS, 1)])).end is RequestEnd.REFUSED
    assert only(simulated(decode(cache_tokens=TOKENS), [Arrival(0.0, TOKENS - 16, 16)])).end is RequestEnd.DONE


def test_prefill_takes_no_more_requests_than_it_may_hold() -> None:
    pair = replace(decode(sequences=1, us_per_token=1_000_000), limits=Limits(requests=2))
    run = simulated(pair, [Arrival(0.0, 16, 100)] * 4)
    # The first one is with decode and its blocks are free again; two wait.
    assert Counter(r.end for r in run.requests)[RequestEnd.REFUSED] >= 1
    assert run.requests[0].end is RequestEnd.DONE


def test_who_is_not_claimed_for_a_lease_is_lost_and_its_blocks_are_free() -> None:
    pair = decode(prefill(lease_s=2, cache_tokens=2048), sequences=1, us_per_token=1_000_000)
    run = simulated(pair, [Arrival(0.0, TOKENS, 5), Arrival(1.0, TOKENS, 1), Arrival(6e6, 2048, 1)])
    assert [request.end for request in run.requests] == [RequestEnd.DONE, RequestEnd.EXPIRED, RequestEnd.DONE]


def test_admission_waits_for_blocks() -> None:
    run = simulated(decode(cache_tokens=TOKENS + 16), [Arrival(0.0, TOKENS, 16)] * 2)
    first, second = run.requests
    assert second.submitted == pytest.approx(first.answered)


def test_a_prefix_that_was_computed_is_neither_computed_nor_moved_again() -> None:
    known = tuple(range(4))
    first = Arrival(0.0, 2048, 1, known)
    run = simulated(PAIR, [first, Arrival(1e6, 2048 + 512, 1, (*known, 9)), Arrival(2e6, 2048, 1, (7, *known[1:]))])
    assert [r.computed - r.began for r in run.requests] == [2048, 512, 2048]
    assert moved(run.requests[1]) == pytest.approx(100 + 10 + 2 * 512)
    assert moved(run.requests[2]) == pytest.approx(100 + 10 + 2 * 2048)


def test_a_prefix_whose_blocks_were_needed_is_computed_again() -> None:
    pair = prefill(cache_tokens=2048)
    run = simulated(pair, [Arrival(0.0, 1024, 1, (1, 2)), Arrival(1e6, 2048, 1, ()), Arrival(2e6, 1024, 1, (1, 2))])
    assert run.requests[2].computed - run.requests[2].began == 1024
