"""A draining worker takes nothing new, lets transfers in progress end, and says when nothing is left."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled, looked_at
from tests.runtime.helpers.steered import Clock, Flag
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Blocks, DecodeWorker, PrefillWorker, Request, Slot, Transfer, errors
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.protocol.phases import Phase


@pytest.fixture(params=["pull", "push"])
def pair(request: pytest.FixtureRequest, clock: Clock) -> World:
    return world(Shape(1), Shape(1), mode=request.param, clock=clock, d_clock=clock, lease=30)


def workers(pair: World) -> list[PrefillWorker | DecodeWorker]:
    return [*pair.prefill, *pair.decode]


def polled(pair: World) -> None:
    pair.poll()
    pair.decode[0].run_once()


def rounds(pair: World) -> None:
    """Poll both sides for a while in which nothing should end."""
    for _ in range(20):
        polled(pair)
        pair.decode[0].rest(0.001)


def test_any_thread_may_ask_whether_it_is_drained() -> None:
    """It is polled while the worker's own thread releases what is held."""
    interval = sys.getswitchinterval()
    made = world(Shape(1), Shape(1), start=True, lease=30)
    source, names = made.prefill[0], [f"r{number}" for number in range(2000)]
    for name in names:
        source.hold(name)
    source.drain(60)
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(1) as threads:
            ended = threads.submit(lambda: [source.withdraw(name) for name in names])
            until(source.drained)
            ended.result()
    finally:
        sys.setswitchinterval(interval)


def test_prefill_drains(pair: World) -> None:
    source, event, request = pair.prefill[0], Flag(), ask(pair, (0, 12), name="before")
    filled(pair, request)
    source.hold("before", request.prefill, after=event)
    source.open("fed", (0, 12))
    assert not source.drained()
    source.drain(60)
    for refused in (lambda: source.hold("new"), lambda: source.open("new", (0, 4))):
        with pytest.raises(errors.DrainingError, match="prefill worker 0 drains"):
            refused()
    source.offer("fed", (0, 12), ask(pair, (0, 12)).prefill, last=True)
    moved = pair.decode[0].submit(request, 50)
    rounds(pair)
    assert (moved.state, source.drained()) == ("running", False)
    event.done = True
    until(lambda: moved.ended, lambda: polled(pair))
    assert moved.state == "done"
    check(pair, 0, request)
    source.withdraw("fed")
    pair.poll()
    assert source.drained()
    assert {(one.request, one.why) for one in source.released()} == {("before", "finished"), ("fed", "withdrawn")}


@pytest.mark.parametrize("begin", [DecodeWorker.submit, DecodeWorker.open], ids=["whole", "chunks"])
@pytest.mark.parametrize("before", [True, False], ids=["asked before", "asked after"])
def test_a_worker_that_drains_refuses_what_it_never_held(pair: World, begin: Any, before: bool) -> None:
    """Nobody waits until a deadline for what will never be held; the clock stands still."""
    source, target, request = pair.prefill[0], pair.decode[0], ask(pair, (0, 12), name="never")
    source.hold("kept", ask(pair, (0, 12), name="kept").prefill, after=Flag())
    if not before:
        source.drain(60)
    asked = begin(target, request, 50)
    rounds(pair)
    source.drain(60)
    until(lambda: asked.ended, lambda: polled(pair))
    assert isinstance(asked.error, errors.WithdrawnError)
    assert "prefill worker 0 says: it drains and does not hold" in str(asked.error)
    assert [hold.withdrawn for hold in source.inspect().holds] == [False]
    assert source.inspect().readers[0].claims == ()


def test_all_that_was_said_over_a_line_that_is_gone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little of it is taken at a time."""
    made = world(Shape(1), Shape(1))
    source, target, some = made.prefill[0], made.decode[0], range(3)
    requests = [Request(f"r{n}", (0, 4), _tables(n), _tables(n)) for n in some]
    for request in requests:
        source.hold(request.id, request.prefill)
    moved = [target.submit(request, 50) for request in requests]
    source.drain(60)
    while not all(one.poll() or one.parts[0].phase is Phase.TOLD for one in moved):
        target.run_once()
    until(source.drained)
    source.close()
    usual = ControlClient.receive
    monkeypatch.setattr(ControlClient, "receive", lambda line, most=1: usual(line, min(most, 1)))
    until(lambda: all(one.poll() for one in moved))
    assert [(one.state, one.error) for one in moved] == [("done", None)] * len(some)


def _tables(block: int) -> dict[str, Blocks | Slot]:
    return {"kv": Blocks(0, [block]), "state": Slot(block, 4)}


def test_what_prefill_holds_after_the_deadline_is_withdrawn(pair: World, clock: Clock) -> None:
    source, request = pair.prefill[0], ask(pair, (0, 12), name="late")
    source.hold("late", request.prefill, after=Flag())
    source.hold("unread")
    source.drain(20)
    waiting = pair.decode[0].submit(request, 500)
    rounds(pair)
    assert not waiting.ended
    clock.time += 21
    until(lambda: waiting.ended, lambda: polled(pair))
    assert isinstance(waiting.error, errors.WithdrawnError)
    until(source.drained, lambda: polled(pair))
    assert ("late", "withdrawn") in {(one.request, one.why) for one in source.released()}


def test_decode_drains(pair: World) -> None:
    target, event, request = pair.decode[0], Flag(), ask(pair, (0, 12), name="before")
    filled(pair, request)
    pair.prefill[0].hold("before", request.prefill, after=event)
    moved = target.submit(request, 50)
    assert not target.drained()
    target.drain(60)
    for begin in (target.submit, target.open):
        refused = looked_at(begin(ask(pair, (0, 12), name="new"), 50))
        assert (refused.state, type(refused.error), refused.untrusted) == ("failed", errors.DrainingError, {})
    with pytest.raises(errors.DrainingError, match="decode worker 0 drains"):
        target.connect(pair.prefill[0].address, 5)
    rounds(pair)
    assert (moved.state, target.drained()) == ("running", False)
    event.done = True
    until(lambda: moved.ended, lambda: polled(pair))
    assert moved.state == "done"
    check(pair, 0, request)
    assert target.drained()


def test_what_decode_has_under_way_at_the_deadline_fails(pair: World, clock: Clock) -> None:
    target, request = pair.decode[0], ask(pair, (0, 12))
    ended = list[Transfer]()
    pair.prefill[0].hold(request.id, request.prefill, after=Flag())
    waiting = target.submit(request, 500)
    waiting.on_end(ended.append)
    target.drain(10)
    rounds(pair)
    assert not waiting.ended
    clock.time += 11
    until(lambda: waiting.ended, lambda: polled(pair))
    assert isinstance(waiting.error, errors.DrainingError)
    assert waiting.untrusted
    assert ended == [waiting]
    until(target.drained, pair.poll, target.run_once)


def test_the_deadline_can_be_moved(pair: World, clock: Clock) -> None:
    source = pair.prefill[0]
    source.hold("r", after=Flag())
    source.drain(60)
    source.drain(3)
    clock.time += 4
    pair.poll()
    clock.time += 60
    pair.poll()
    assert [(one.request, one.why) for one in source.released()] == [("r", "withdrawn")]


def test_resuming_ends_it(pair: World) -> None:
    for worker in workers(pair):
        worker.drain(0)
        assert worker.drained()
        worker.suspend()
        with pytest.raises(errors.HandleError, match="suspended"):
            worker.drain(1)
        worker.resume(pair.pool(worker))
        assert not worker.drained()
    pair.prefill[0].hold("r")
    pair.decode[0].connect(pair.prefill[0].address, 5)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), None, True, "1"])
def test_a_timeout_that_is_none_begins_nothing(pair: World, timeout: Any) -> None:
    for worker in workers(pair):
        with pytest.raises(errors.BadRequestError, match="a timeout is a number of seconds"):
            worker.drain(timeout)
        assert not worker.drained()
    pair.prefill[0].hold("r")
