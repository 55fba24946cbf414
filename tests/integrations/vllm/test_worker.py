"""The worker's half over real workers of the runtime: what a step orders is begun, and reported once it has ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integrations.vllm.pairs import TOKENS_ASKED, Pair, ids, order, tables
from tests.integrations.vllm.requests import TOKENS
from tests.runtime.helpers.both import engines
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import world

from kvplan.integrations.vllm import worker as halves
from kvplan.integrations.vllm.clearing import BlockClearing
from kvplan.integrations.vllm.holds import PrefillSide
from kvplan.integrations.vllm.loads import DecodeSide, LoadTimes, StepResults
from kvplan.integrations.vllm.measures import (
    BYTES,
    EXPIRED,
    FAILED,
    HELD,
    PENDING,
    QUARANTINED,
    SECONDS,
    added,
    empty,
    nothing,
)
from kvplan.integrations.vllm.metadata import GroupName, HoldOrder, LoadOrder, PromptChunk, StepOrders
from kvplan.integrations.vllm.worker import ConnectorWorker
from kvplan.runtime import DecodeWorker, Keys, Request, Transfer
from kvplan.runtime.errors import HandleError


@pytest.fixture(params=["pull", "push"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = world(Shape(2), Shape(1), mode=request.param, lease=5)
    yield Pair(made, LoadTimes(10, 5, 5))
    made.close()


def test_a_held_request_is_loaded_and_reported_once_on_each_side(pair: Pair) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    pair.hold(request)
    pair.load(order(pair.made, request))
    assert pair.loaded() == StepResults(received={"r-here"})
    check(pair.made, 0, request)
    assert pair.sent() == [{"r"}, {"r"}]
    assert pair.decode.ended(idle=False) == StepResults()
    assert [worker.ended(idle=False) for worker in pair.prefill] == [StepResults()] * 2


def test_steps_that_compute_nothing_rest_longer_until_one_computes_or_begins_something(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.hold(ask(pair.made, TOKENS_ASKED))
    rests = list[float]()
    monkeypatch.setattr(halves, "time", SimpleNamespace(sleep=rests.append))
    held = pair.prefill[0]
    for _ in range(4):
        held.ended(idle=True)
    held.ended(idle=False)
    held.ended(idle=True)
    held.ended(idle=True)
    held.hold(StepOrders(withdrawals=("nobody",)))
    held.ended(idle=True)
    assert rests == [0.001, 0.002, 0.004, 0.004, 0.001, 0.002, 0.001]


def test_a_load_may_be_ordered_before_prefill_hears_of_the_request(pair: Pair) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    pair.load(order(pair.made, request))
    time.sleep(0.05)
    assert pair.decode.ended(idle=True) == StepResults()
    pair.hold(request)
    assert pair.loaded().received == {"r-here"}
    check(pair.made, 0, request)


def test_a_local_hit_is_left_as_it_is(pair: Pair) -> None:
    whole = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, whole)
    pair.hold(whole)
    pair.load(replace(order(pair.made, whole), tokens=(16, 45)))
    assert pair.loaded().received == {"r-here"}
    check(pair.made, 0, replace(whole, tokens=(16, 45)))


def test_a_load_of_no_tokens_frees_prefill_s_blocks(pair: Pair) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    pair.hold(request)
    pair.load(replace(order(pair.made, request), tokens=(0, 0), blocks=()))
    assert pair.sent() == [{"r"}, {"r"}]
    assert pair.decode.ended(idle=False) == StepResults()


def test_what_nobody_holds_fails_and_is_reported_as_received_too(pair: Pair) -> None:
    side = DecodeSide(pair.made.decode[0], tables(pair.made.plan.decode), LoadTimes(10, 0.05, 5), pair.made.mode)
    pair.decode = ConnectorWorker(None, side)
    pair.load(order(pair.made, ask(pair.made, TOKENS_ASKED)))
    assert pair.loaded() == StepResults(received={"r-here"}, failed={"r-here"})


def test_who_does_not_know_the_prompt_loads_nothing(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody can name a request that is held."""
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    held = HoldOrder(request.id, request.tokens[1], ids(request.prefill), "digest")
    for worker in pair.prefill:
        worker.hold(StepOrders(holds=(held,)))
    wanted = order(pair.made, request)
    side = DecodeSide(pair.made.decode[0], tables(pair.made.plan.decode), LoadTimes(10, 0.05, 5), pair.made.mode)
    pair.decode = ConnectorWorker(None, side)
    for prompt in ("", "another"):
        pair.load(replace(wanted, remote=replace(wanted.remote, prompt=prompt)))
        assert pair.loaded() == StepResults(received={"r-here"}, failed={"r-here"})
    assert "is not held by prefill workers [" in caplog.text
    pair.load(replace(wanted, remote=replace(wanted.remote, prompt="digest")))
    assert pair.loaded() == StepResults(received={"r-here"})
    assert pair.sent() == [{"r"}, {"r"}]


def test_a_cancelled_load_is_reported_and_prefill_told(pair: Pair) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    pair.load(order(pair.made, request))
    pair.decode.load(StepOrders(cancels=("r-here", "unknown")))
    assert pair.loaded() == StepResults(received={"r-here"}, failed={"r-here"})
    assert not pair.decode.measures()[FAILED], "a client that leaves is no fault"
    pair.hold(request)
    assert pair.sent() == [{"r"}, {"r"}]


def test_an_order_that_no_plan_fits_fails_alone(pair: Pair) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    good = order(pair.made, request)
    bad = replace(good, request="bad", remote=replace(good.remote, groups=(TOKENS, GroupName("strange"))))
    pair.load(bad)
    assert pair.loaded().failed == {"bad"}


def test_a_load_that_is_refused_is_reported_once(pair: Pair) -> None:
    pair.made.decode[0].drain(5)
    pair.load(order(pair.made, ask(pair.made, TOKENS_ASKED)))
    assert pair.decode.ended(idle=False) == StepResults(received={"r-here"}, failed={"r-here"})
    assert pair.decode.ended(idle=False) == StepResults()


def test_an_order_that_nobody_foresaw_ends_no_engine(pair: Pair) -> None:
    good = order(pair.made, ask(pair.made, TOKENS_ASKED))
    foreign = replace(good.remote, key="\ud800")
    pair.load(replace(good, request="key", remote=foreign))
    pair.load(replace(good, request="free", remote=foreign, blocks=()))
    pair.load(replace(good, request="groups", blocks=((1,),)))
    assert pair.decode.ended(idle=False) == StepResults(received={"key", "groups"}, failed={"key", "groups"})


def test_a_hold_that_nobody_foresaw_frees_its_blocks(pair: Pair) -> None:
    worker = pair.prefill[0]
    worker.hold(StepOrders(holds=(HoldOrder("r", 45, ((1,),)),)))
    assert worker.ended(idle=False).sent == {"r"}


def test_an_end_that_nobody_foresaw_gives_its_prompt_up_at_once(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the blocks that were offered before would wait for the lease."""
    for worker in pair.prefill:
        worker.hold(StepOrders(chunks=(PromptChunk("r#p", (0, 20), 45, ids(ask(pair.made, (0, 20)).prefill)),)))
        worker.hold(StepOrders(holds=(HoldOrder("r", 45, ((1,),), "p"),)))
    assert pair.sent() == [{"r"}, {"r"}]
    assert "why=withdrawn" in caplog.text


def cleared_side(pair: Pair, clearing: BlockClearing) -> None:
    """The pair's decode engine has blocks cleared from now on."""
    side = DecodeSide(pair.made.decode[0], tables(pair.made.plan.decode), LoadTimes(10, 5, 5), pair.made.mode, clearing)
    pair.decode = ConnectorWorker(None, side)


@pytest.mark.parametrize("clears", [False, True])
def test_a_load_may_write_its_last_page_whole_unless_it_was_cleared(
    pair: Pair, clears: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that vLLM expects to be zero stay zero."""
    asked, submit = list[Request](), DecodeWorker.submit

    def noted(self: DecodeWorker, request: Request, *arguments: Any, **named: Any) -> Transfer:
        asked.append(request)
        return submit(self, request, *arguments, **named)

    monkeypatch.setattr(DecodeWorker, "submit", noted)
    if clears:
        cleared_side(pair, BlockClearing({}, {}, 1))
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    pair.hold(request)
    pair.load(order(pair.made, request))
    assert pair.loaded().received == {"r-here"}
    assert [one.whole_last_page for one in asked] == [not clears]


def test_blocks_are_cleared_before_anything_is_loaded_into_them(pair: Pair) -> None:
    cleared: list[LoadOrder] = []

    class Clearing(BlockClearing):
        def clear(self, order: LoadOrder) -> None:
            assert not pair.made.decode[0].running()
            cleared.append(order)

    cleared_side(pair, Clearing({}, {}, 1))
    request = ask(pair.made, TOKENS_ASKED)
    wanted = order(pair.made, request)
    filled(pair.made, request)
    pair.hold(request)
    pair.load(wanted)
    assert pair.loaded() == StepResults(received={"r-here"})
    pair.load(replace(wanted, request="free", blocks=()))
    assert cleared == [wanted]


def test_an_engine_that_was_lost_is_met_again(pair: Pair) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    for turn in range(2):
        named = replace(request, id=f"r{turn}")
        filled(pair.made, named)
        pair.hold(named)
        pair.load(order(pair.made, named))
        assert pair.loaded() == StepResults(received={f"r{turn}-here"})
        pair.made.decode[0].drop("prefill")


def test_an_engine_that_is_not_there_fails_its_own_loads(pair: Pair) -> None:
    request, there = ask(pair.made, TOKENS_ASKED), pair.decode
    order_ = order(pair.made, request)
    side = DecodeSide(pair.made.decode[0], tables(pair.made.plan.decode), LoadTimes(10, 5, 0.2), pair.made.mode)
    pair.decode = ConnectorWorker(None, side)
    pair.load(replace(order_, remote=replace(order_.remote, engine="gone", port=1)))
    assert pair.loaded().failed == {"r-here"}
    pair.decode = there
    filled(pair.made, request)
    pair.hold(request)
    pair.load(order_)
    assert pair.loaded() == StepResults(received={"r-here"})


def test_blocks_are_not_reported_while_they_may_be_written(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    free = False
    monkeypatch.setattr(pair.made.decode[0], "settled", lambda transfer: free)
    pair.load(order(pair.made, ask(pair.made, TOKENS_ASKED)))
    pair.decode.load(StepOrders(cancels=("r-here",)))
    for _ in range(20):
        assert pair.decode.ended(idle=True) == StepResults()
    free = True
    assert pair.loaded().failed == {"r-here"}


def test_a_load_that_has_failed_before_its_client_leaves_is_counted(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = False
    monkeypatch.setattr(pair.made.decode[0], "settled", lambda transfer: free)
    pair.load(order(pair.made, ask(pair.made, TOKENS_ASKED)))
    pair.made.decode[0].drain(0)
    until(lambda: not pair.made.decode[0].running())
    assert pair.decode.ended(idle=True) == StepResults()
    pair.decode.load(StepOrders(cancels=("r-here",)))
    free = True
    assert pair.loaded().failed == {"r-here"}
    assert pair.decode.measures()[FAILED] == [1.0]


def test_loads_that_fail_together_are_not_compared_with_each_other(pair: Pair) -> None:
    """A lost engine fails all its loads at once, while a step waits: each is checked once."""

    class Order(LoadOrder):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

    good = order(pair.made, ask(pair.made, TOKENS_ASKED))
    orders = tuple(
        Order(name, good.tokens, good.blocks, replace(good.remote, request=f"{name}-there")) for name in "abc"
    )
    pair.decode.load(StepOrders(loads=orders))
    pair.decode.load(StepOrders(cancels=("a", "b", "c")))
    failed: set[str] = set()
    while failed != {"a", "b", "c"}:
        failed |= pair.loaded().failed


def test_what_nobody_fetches_is_freed_by_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    made = world(Shape(2), Shape(1), lease=0.1)
    pair = Pair(made, LoadTimes(10, 5, 5))
    pair.hold(ask(made, TOKENS_ASKED))
    assert pair.sent() == [{"r"}, {"r"}]
    assert "blocks freed early" in caplog.text
    assert pair.prefill[0].measures()[EXPIRED] == [1.0]
    made.close()


def test_what_prefill_gives_up_has_not_expired(caplog: pytest.LogCaptureFixture) -> None:
    """A longer lease would not help."""
    made = world(Shape(2), Shape(1))
    pair = Pair(made, LoadTimes(10, 5, 5))
    pair.hold(ask(made, TOKENS_ASKED))
    for worker in made.prefill:
        worker.withdraw(worker.inspect().holds[0].request)
    assert pair.sent() == [{"r"}, {"r"}]
    assert "why=withdrawn" in caplog.text
    assert not pair.prefill[0].measures()[EXPIRED]
    made.close()


def test_what_is_kept_for_a_turn_that_does_not_come_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    made = world(Shape(2), Shape(1), lease=0.1)
    pair = Pair(made, LoadTimes(10, 5, 5))
    request = ask(made, TOKENS_ASKED)
    kept = HoldOrder(request.id, request.tokens[1], ids(request.prefill), next_turn=True)
    for worker in pair.prefill:
        worker.hold(StepOrders(holds=(kept,)))
    assert pair.sent() == [{"r"}, {"r"}]
    assert "blocks freed early" not in caplog.text
    assert not pair.prefill[0].measures()[EXPIRED]
    made.close()


def test_two_sides_of_one_worker_sleep_wake_and_end_together() -> None:
    with engines() as made:
        a = made.engine("a", "a1", (Shape(1), Shape(1)))
        prefill, decode = a.prefill[0], a.decode[0]
        both = ConnectorWorker(
            PrefillSide(prefill, tables(a.plans[0].prefill)),
            DecodeSide(decode, tables(a.plans[0].prefill), LoadTimes(10, 5, 5), "pull"),
            prefill.endpoint.pool,
        )
        for _ in range(2):
            both.suspend()
            assert "suspended" in " ".join(decode.unready())
            both.resume()
            assert "suspended" not in " ".join(prefill.unready())
        both.close()
        assert "closed" in " ".join(decode.unhealthy())


def test_loads_are_measured_once(pair: Pair) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    pair.hold(request)
    pair.load(order(pair.made, request))
    pair.load(replace(order(pair.made, request), request="bad", blocks=((1,), ())))
    ended = pair.loaded().received
    assert ended | (pair.loaded().received if len(ended) == 1 else set()) == {"r-here", "bad"}
    measures = pair.decode.measures()
    assert (len(measures[SECONDS]), measures[FAILED]) == (1, [1.0])
    assert measures[BYTES][0] > 0
    assert empty(pair.decode.measures())


def test_held_requests_are_counted_until_their_blocks_are_free(pair: Pair) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    pair.hold(request)
    told = nothing()
    for worker in pair.prefill:
        added(told, worker.measures())
        assert worker.measured, "vLLM adds up what workers tell in a step"
    assert told[HELD] == [2]
    pair.load(order(pair.made, request))
    pair.loaded()
    pair.sent()
    told = nothing()
    for worker in pair.prefill:
        added(told, worker.measures())
        assert not worker.measured
    assert (told[HELD], empty(told)) == ([0], True), "the log adds to what is empty"


def test_a_worker_tells_at_first_that_it_keeps_nothing(pair: Pair) -> None:
    """A new engine behind an old frontend."""
    assert pair.decode.measured
    assert [pair.decode.measures()[name] for name in (HELD, PENDING, QUARANTINED)] == [[0], [0], [0]]
    assert not pair.decode.measured


def test_loads_that_wait_are_counted(pair: Pair) -> None:
    pair.load(order(pair.made, ask(pair.made, TOKENS_ASKED)))
    assert (pair.decode.measured, pair.decode.measures()[PENDING]) == (True, [1])
    pair.decode.load(StepOrders(cancels=("r-here",)))
    pair.loaded()
    assert (pair.decode.measured, pair.decode.measures()[PENDING]) == (True, [0])


def test_the_debug_log_has_what_is_held(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    pair.hold(request)
    pair.load(order(pair.made, request))
    pair.loaded()
    pair.sent()
    lines = [line.partition(" request=")[::2] for line in caplog.messages]
    assert [line for line in lines if line[0] == "request held"] == [("request held", "r# tokens=45")] * 2
    assert [line for line in lines if line[0] == "request freed"] == [("request freed", "r# why=finished")] * 2


def test_failed_loads_are_counted_until_nothing_can_be_written(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    free = False
    monkeypatch.setattr(pair.made.decode[0], "settled", lambda transfer: free)
    pair.load(order(pair.made, ask(pair.made, TOKENS_ASKED)))
    pair.decode.load(StepOrders(cancels=("r-here",)))
    until(lambda: pair.decode.ended(idle=True) == StepResults() and pair.decode.measures()[QUARANTINED] == [1])
    free = True
    pair.loaded()
    assert pair.decode.measures()[QUARANTINED] == [0]


def test_a_hold_that_is_refused_frees_its_blocks(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    for worker in pair.made.prefill:
        worker.drain(5)
    pair.hold(request)
    assert [worker.ended(idle=False).sent for worker in pair.prefill] == [{"r"}, {"r"}]
    assert [worker.ended(idle=False).sent for worker in pair.prefill] == [set(), set()]
    assert "R051" in caplog.text or "drains" in caplog.text


def test_a_refused_hold_is_logged_by_the_name_that_decode_s_error_has(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    for worker in pair.made.prefill:
        worker.drain(5)
    held = HoldOrder("cmpl-2", 45, ids(ask(pair.made, TOKENS_ASKED).prefill), "abcd", shared="ID")
    pair.prefill[0].hold(StepOrders(holds=(held,)))
    assert "hold refused request=ID#abcd " in caplog.text


def test_a_load_that_fails_is_logged_by_prefill_s_name_too(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    good = order(pair.made, ask(pair.made, TOKENS_ASKED))
    pair.load(replace(good, request="bad", blocks=((1,),)))
    assert pair.loaded().failed == {"bad"}
    pair.load(replace(good, remote=replace(good.remote, prompt="abcd", engine="other")))
    assert pair.loaded().failed == {"r-here"}
    assert "load refused request=bad held=r# error=" in caplog.text
    assert "load failed request=r-here held=r#abcd error=" in caplog.text


def test_prefill_that_cannot_be_told_is_logged(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """The meeting fails after the release was submitted."""
    caplog.set_level("INFO")
    wanted = order(pair.made, ask(pair.made, TOKENS_ASKED))
    pair.load(replace(wanted, remote=replace(wanted.remote, engine="other"), tokens=(0, 0), blocks=()))
    until(lambda: "prefill not told" in caplog.text)
    (line,) = [line for line in caplog.messages if "prefill not told" in line]
    assert line.startswith("prefill not told request=r-here held=r# error=")


def test_prefill_that_holds_nothing_need_not_be_told(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    side = DecodeSide(pair.made.decode[0], tables(pair.made.plan.decode), LoadTimes(10, 0.05, 5), pair.made.mode)
    pair.decode = ConnectorWorker(None, side)
    pair.load(order(pair.made, ask(pair.made, TOKENS_ASKED)))
    assert pair.loaded().failed == {"r-here"}
    until(lambda: not pair.made.decode[0].running())
    assert "load failed" in caplog.text
    assert "prefill not told" not in caplog.text


def test_an_engine_of_another_name_fails_the_load(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    pair.hold(request)
    wanted = order(pair.made, request)
    pair.load(replace(wanted, request="other", remote=replace(wanted.remote, engine="other")))
    assert pair.loaded() == StepResults(received={"other"}, failed={"other"})
    assert "not 'other'" in caplog.text


def test_a_key_that_a_request_names_must_be_a_peer_s(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("decode", "prefill", "stranger"):
        Keys.make(tmp_path, name)
    worker = pair.made.decode[0]
    worker.keys = Keys.load(tmp_path / "decode.key_secret", tmp_path / "prefill.key")
    side = DecodeSide(worker, tables(pair.made.plan.decode), LoadTimes(10, 5, 0.3), pair.made.mode)
    pair.decode = ConnectorWorker(None, side)
    wanted = order(pair.made, ask(pair.made, TOKENS_ASKED))
    strange = Keys.load(tmp_path / "stranger.key_secret", tmp_path / "prefill.key").public.decode()
    pair.load(replace(wanted, remote=replace(wanted.remote, key=strange)))
    assert pair.loaded().failed == {"r-here"}
    assert "none of a peer's" in caplog.text


def test_memory_is_given_back_while_the_engine_sleeps(pair: Pair) -> None:
    request, made = ask(pair.made, TOKENS_ASKED), pair.made
    workers = [
        *(
            ConnectorWorker(PrefillSide(worker, tables(made.plan.prefill)), None, worker.endpoint.pool)
            for worker in made.prefill
        ),
        ConnectorWorker(None, pair.decode._decode, made.decode[0].endpoint.pool),
    ]
    pair.prefill, pair.decode = workers[:-1], workers[-1]
    for turn in ("before", "after"):
        named = replace(request, id=turn)
        filled(made, named)
        pair.hold(named)
        pair.load(order(made, named))
        assert pair.loaded() == StepResults(received={f"{turn}-here"})
        assert pair.sent() == [{turn}, {turn}]
        for worker in workers * 2:
            worker.suspend()
        with pytest.raises(HandleError, match="suspended"):
            made.prefill[0].hold("x")
        for worker in workers * 2:
            worker.resume()


def test_memory_of_a_side_in_use_is_kept_by_both(pair: Pair) -> None:
    request, made = ask(pair.made, TOKENS_ASKED), pair.made
    worker = made.prefill[0]
    both = ConnectorWorker(PrefillSide(worker, tables(made.plan.prefill)), pair.decode._decode, worker.endpoint.pool)
    pair.load(order(made, request))
    with pytest.raises(HandleError, match=r"requests (are in progress|wait)"):
        both.suspend()
    worker.hold("still awake")


class Event:
    """A device's, which has come to it, or has not, or has an error of its own."""

    def __init__(self) -> None:
        self.passed, self.broken = False, False

    def query(self) -> bool:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self.passed


@pytest.fixture
def marked(pair: Pair) -> Event:
    """Both sides wait for a device."""
    event = Event()
    assert pair.decode._decode is not None
    pair.decode._decode._mark = lambda: event
    for worker in pair.prefill:
        assert worker._prefill is not None
        worker._prefill._mark = lambda: event
    return event


def step(pair: Pair, load: LoadOrder) -> None:
    """A step of the decode engine that orders a load."""
    orders = StepOrders(loads=(load,))
    pair.decode.hold(orders)
    pair.decode.load(orders)


def test_what_is_held_is_read_once_the_device_has_come_to_it(pair: Pair, marked: Event) -> None:
    request = ask(pair.made, TOKENS_ASKED)
    pair.hold(request)
    pair.load(order(pair.made, request))
    for _ in range(20):
        assert pair.decode.ended(idle=True) == StepResults()
    filled(pair.made, request)
    marked.passed = True
    assert pair.loaded() == StepResults(received={"r-here"})
    check(pair.made, 0, request)


def test_a_load_begins_once_the_device_has_come_to_it(pair: Pair, marked: Event) -> None:
    """Earlier work of the device may still write to the blocks."""
    request = ask(pair.made, TOKENS_ASKED)
    filled(pair.made, request)
    marked.passed = True
    pair.hold(request)
    until(lambda: not any(worker.inspect().unannounced for worker in pair.made.prefill))
    marked.passed = False
    step(pair, wanted := order(pair.made, request))
    assert pair.decode.busy
    assert pair.decode.ended(idle=False) == StepResults()
    assert pair.made.decode[0].running() == 0
    marked.passed = True
    assert pair.loaded() == StepResults(received={wanted.request})
    check(pair.made, 0, request)


@pytest.mark.parametrize("broken", [True, False])
def test_a_load_that_waits_for_the_device_ends_with_it_or_when_it_is_cancelled(
    pair: Pair, marked: Event, broken: bool
) -> None:
    step(pair, wanted := order(pair.made, ask(pair.made, TOKENS_ASKED)))
    marked.broken = broken
    if not broken:
        pair.decode.load(StepOrders(cancels=(wanted.request,)))
    assert pair.loaded() == StepResults(received={wanted.request}, failed={wanted.request})
    assert not pair.decode.busy
    assert len(pair.decode.measures()[FAILED]) == broken


def test_both_sides_are_closed_though_one_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    made, closed = world(Shape(1), Shape(1)), []

    def broken() -> None:
        raise RuntimeError("cannot join thread")

    prefill = PrefillSide(made.prefill[0], tables(made.plan.prefill))
    decode = DecodeSide(made.decode[0], tables(made.plan.decode), LoadTimes(10, 5, 5), made.mode)
    with monkeypatch.context() as patch:
        patch.setattr(decode.worker, "close", broken)
        patch.setattr(prefill.worker, "close", lambda: closed.append("prefill"))
        with pytest.raises(RuntimeError, match="cannot join"):
            ConnectorWorker(prefill, decode).close()
    assert closed == ["prefill"]
    made.close()


def test_addresses_are_announced() -> None:
    made = world(Shape(2), Shape(1))
    pair = Pair(made, LoadTimes(10, 5, 5))
    pair.prefill[0].hold(StepOrders(addresses=("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")))
    assert made.prefill[0].endpoint.addresses == ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
    made.close()


def test_an_early_load_that_failed_and_was_given_up_is_not_begun_again(pair: Pair) -> None:
    """Prefill gives the prompt up, and the client its request, before the engine asks what has ended."""
    asked = order(pair.made, ask(pair.made, TOKENS_ASKED))
    pair.load(replace(asked, remote=replace(asked.remote, groups=(), blocks=(), prompt="p")))
    side = pair.decode._decode
    assert side is not None
    until(lambda: pair.made.decode[0].running())
    for worker in pair.prefill:
        worker.hold(StepOrders(withdrawals=("r#p",)))
    until(lambda: side._ended)
    pair.decode.load(StepOrders(cancels=("r-here",)))
    assert pair.loaded().failed == {"r-here"}
    assert (side._cancelled, side._loads) == (set(), {})
