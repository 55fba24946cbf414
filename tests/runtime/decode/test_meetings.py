"""Engines that are met beside everything else, and requests that wait until theirs is."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled, looked_at
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world
from tests.slowness import slowness

from kvplan.runtime import DecodeWorker, Limits, Peer, Transfer, errors
from kvplan.runtime.decode.driver import DecodeDriver
from kvplan.runtime.decode.meetings import GIVEN_UP, MEETINGS, Meetings
from kvplan.runtime.protocol.quarantine import BlockLedger

SECONDS = 20


@pytest.fixture
def apart() -> Iterator[World]:
    """Both engines, not connected."""
    made = world(Shape(2), Shape(1), d_limits=Limits(requests=3))
    made.decode[0].drop("prefill")
    yield made
    made.close()


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody listens at this address and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"


def meetings() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kvplan-meeting"]


def wanted(kind: str, meeting: Future[Peer]) -> Any:
    return {"meeting": meeting, "name": "prefill", "nobody": None}[kind]


@pytest.mark.parametrize("kind", ["meeting", "name", "nobody"])
@pytest.mark.parametrize("mode", ["pull", "push"])
def test_requests_wait_until_their_engine_is_met(apart: World, mode: str, kind: str) -> None:
    worker, request = apart.decode[0], ask(apart, (0, 45))
    filled(apart, request)
    apart.hold("r")
    meeting = worker.connect_soon(apart.prefill[0].address, SECONDS, mode=mode)
    transfer = worker.submit(request, SECONDS, peer=wanted(kind, meeting))
    assert (transfer.state, worker.running()) == ("running", 1)
    assert transfer.wait().state == "done"
    assert meeting.result(SECONDS).mode == mode
    check(apart, 0, request)


def test_the_wait_for_a_hold_begins_when_the_engine_is_met(apart: World) -> None:
    worker, request, wait = apart.decode[0], ask(apart, (0, 45)), slowness()
    filled(apart, request)
    meeting = Future[Peer]()
    transfer = worker.submit(request, SECONDS, peer=meeting, wait=wait)
    peer = worker.connect(apart.prefill[0].address, SECONDS)
    worker.start()
    time.sleep(1.2 * wait)
    meeting.set_result(peer)
    until(lambda: transfer.attempt > 0)
    time.sleep(0.2 * wait)
    apart.hold("r")
    assert transfer.wait().state == "done"


def test_one_that_says_nothing_holds_up_no_other(apart: World, silent: str) -> None:
    worker, request = apart.decode[0], ask(apart, (0, 45))
    lost = worker.connect_soon(silent, SECONDS)
    meeting = worker.connect_soon(apart.prefill[0].address, SECONDS)
    assert worker.connect_soon(silent, SECONDS) is lost
    apart.hold("r")
    assert worker.submit(request, SECONDS, peer=meeting).wait().state == "done"
    assert not lost.done()


@pytest.mark.parametrize("kind", ["meeting", "name", "nobody"])
def test_who_cannot_be_met_fails_what_waits(apart: World, silent: str, kind: str) -> None:
    worker = apart.decode[0]
    meeting = worker.connect_soon(silent, 0.3)
    transfer = worker.submit(ask(apart, (0, 45)), SECONDS, peer=wanted(kind, meeting))
    with pytest.raises(errors.HandshakeError, match="did not answer before the deadline"):
        transfer.wait()
    assert isinstance(meeting.exception(), errors.HandshakeError)
    assert worker.running() == 0


def test_any_failure_of_a_meeting_is_typed(apart: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("kvplan.runtime.decode.connecting.meet", broken)
    meeting = apart.decode[0].connect_soon(apart.prefill[0].address, SECONDS)
    transfer = apart.decode[0].submit(ask(apart, (0, 45)), SECONDS, peer=meeting)
    with pytest.raises(errors.HandshakeError, match="ZeroDivisionError: by zero"):
        transfer.wait()


def test_a_deadline_and_a_cancellation_end_what_waits(apart: World, silent: str) -> None:
    worker, ended = apart.decode[0], list[Transfer]()
    worker.connect_soon(silent, SECONDS)
    late, given_up = (worker.submit(ask(apart, (0, 45), name=name), 0.2) for name in "ab")
    for transfer in (late, given_up):
        transfer.on_end(ended.append)
    given_up.cancel()
    with pytest.raises(errors.DeadlineError, match="is still being met"):
        late.wait()
    assert given_up.state == "cancelled"
    assert ended == [given_up, late]
    assert worker.running() == 0


@pytest.mark.parametrize("own", ["cancelled", "no peer"])
def test_a_future_of_a_callers_own_fails_its_request_alone(apart: World, silent: str, own: str) -> None:
    worker, mine = apart.decode[0], Future[Any]()
    worker.connect_soon(silent, SECONDS)
    first, bad, last = (
        worker.submit(ask(apart, (0, 45), name=name), SECONDS, peer=peer)
        for name, peer in (("a", None), ("b", mine), ("c", None))
    )
    if own == "no peer":
        mine.set_result("prefill")
    assert mine.cancel() == (own == "cancelled")
    with pytest.raises(errors.HandshakeError, match="submit with what `connect_soon` returns"):
        bad.wait()
    assert [first.state, last.state, worker.running()] == ["running", "running", 2]


def test_a_fault_ends_one_request_and_the_others_still_wait(apart: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, mine = apart.decode[0], Future[Any]()
    peer = worker.connect_soon(apart.prefill[0].address, SECONDS).result(SECONDS)
    apart.hold("b")
    hit, other = (worker.submit(ask(apart, (0, 45), name=name), SECONDS, peer=mine) for name in "ab")
    worker.run_once()

    def broken(*_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(DecodeDriver, "start", broken)
    mine.set_result(peer)
    with pytest.raises(ZeroDivisionError):
        worker.run_once()
    assert isinstance(hit.error, errors.TransferError)
    assert other.wait().state == "done"


def test_a_fault_before_a_request_is_claimed_takes_no_blocks(apart: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, mine = apart.decode[0], Future[Any]()
    peer = worker.connect_soon(apart.prefill[0].address, SECONDS).result(SECONDS)
    hit = looked_at(worker.submit(ask(apart, (0, 45)), SECONDS, peer=mine))

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(BlockLedger, "take", broken)
    mine.set_result(peer)
    with pytest.raises(ZeroDivisionError):
        worker.run_once()
    assert (hit.state, hit.untrusted) == ("failed", {})


@pytest.mark.parametrize("peer", [["x"], 5])
def test_a_peer_is_a_name_or_a_meeting(apart: World, peer: Any) -> None:
    failed = looked_at(apart.decode[0].submit(ask(apart, (0, 45)), SECONDS, peer=peer))
    assert isinstance(failed.error, errors.BadRequestError)


@pytest.mark.parametrize("odd", [{"address": ["a"]}, {"key": [1]}, {"name": ["x"]}])
def test_odd_words_of_who_is_met_are_typed_errors(apart: World, odd: dict[str, Any]) -> None:
    with pytest.raises(errors.HandshakeError):
        apart.decode[0].connect_soon(**{"address": "tcp://127.0.0.1:1", "timeout": 0.1, **odd})


def test_as_many_wait_as_may_be_under_way(apart: World, silent: str) -> None:
    worker = apart.decode[0]
    worker.connect_soon(silent, SECONDS)
    waiting = [worker.submit(ask(apart, (0, 45), name=str(number)), SECONDS) for number in range(4)]
    worker.run_once()
    assert [transfer.state for transfer in waiting] == ["running"] * 3 + ["failed"]
    assert isinstance(waiting[-1].error, errors.LimitedError)
    with pytest.raises(errors.HandleError, match="3 requests wait"):
        worker.suspend()


def test_closing_ends_meetings_and_what_waits(apart: World, silent: str) -> None:
    worker: DecodeWorker = apart.decode[0]
    meeting = worker.connect_soon(silent, SECONDS)
    transfer = worker.submit(ask(apart, (0, 45)), SECONDS)
    assert meetings()
    worker.close()
    assert meetings() == []
    assert isinstance(transfer.error, errors.TransferError)
    assert isinstance(meeting.exception(), errors.HandshakeError)


def test_without_a_meeting_nothing_waits(apart: World) -> None:
    failed = looked_at(apart.decode[0].submit(ask(apart, (0, 45)), SECONDS))
    assert isinstance(failed.error, errors.HandshakeError)
    with pytest.raises(errors.HandshakeError, match="use auto, pull or push"):
        apart.decode[0].connect_soon("tcp://127.0.0.1:1", SECONDS, mode="relay")


def test_draining_ends_what_waits_at_its_deadline(apart: World, silent: str) -> None:
    worker = apart.decode[0]
    worker.connect_soon(silent, SECONDS)
    transfer = worker.submit(ask(apart, (0, 45)), SECONDS)
    worker.drain(0.2)
    assert not worker.drained()
    with pytest.raises(errors.DrainingError, match="before the worker had to drain"):
        transfer.wait()
    assert worker.drained()
    with pytest.raises(errors.DrainingError, match="takes nothing new"):
        worker.connect_soon(silent, SECONDS)


def test_an_engine_of_another_name_is_not_connected(apart: World) -> None:
    worker, address = apart.decode[0], apart.prefill[0].address
    with pytest.raises(errors.HandshakeError, match=r"engine 'prefill' answers at .*, not 'other'"):
        worker.connect_soon(address, SECONDS, name="other").result(SECONDS)
    assert worker.peers() == ()
    assert worker.connect_soon(address, SECONDS, name="prefill").result(SECONDS).name == "prefill"


def test_no_more_engines_are_met_at_once_than_there_are_threads_for() -> None:
    meetings, over = Meetings(), threading.Event()

    def meet(ends: Callable[[], float]) -> Peer:
        over.wait(SECONDS)
        raise errors.HandshakeError("nobody")

    begun = [meetings.begin(number, 0.0, 1.0, meet) for number in range(MEETINGS)]
    with pytest.raises(errors.LimitedError, match="64 prefill engines are being met"):
        meetings.begin(MEETINGS, 0.0, 1.0, meet)
    assert meetings.begin(0, 0.0, 1.0, meet) is begun[0]
    over.set()
    assert all(meeting.exception(SECONDS) for meeting in begun)
    meetings.begin(MEETINGS, 0.0, 1.0, meet)


def test_a_meeting_lasts_as_long_as_the_last_one_waits() -> None:
    meetings, asked, over, told = Meetings(), threading.Event(), threading.Event(), list[Callable[[], float]]()

    def meet(ends: Callable[[], float]) -> Peer:
        told.append(ends)
        asked.set()
        over.wait(SECONDS)
        raise errors.HandshakeError("nobody")

    begun, latest = [], []
    for ends in (1.0, 5.0, 2.0):
        begun.append(meetings.begin("a", 0.0, ends, meet))
        assert asked.wait(SECONDS)
        latest.append(told[0]())
    (thread,) = meetings.close()
    assert [*latest, told[0]()] == [1.0, 5.0, 5.0, GIVEN_UP]
    over.set()
    thread.join()
    assert begun[0] is begun[1] is begun[2]
    assert len(told) == 1


def test_a_meeting_whose_time_is_over_is_joined_by_nobody() -> None:
    meetings, over = Meetings(), threading.Event()

    def meet(ends: Callable[[], float]) -> Peer:
        over.wait(SECONDS)
        raise errors.HandshakeError(f"nobody until {ends():g}")

    first, second = (meetings.begin("a", now, now + 1.0, meet) for now in (0.0, 1.0))
    assert len(meetings.under_way()) == 2
    over.set()
    assert [str(meeting.exception(SECONDS)) for meeting in (first, second)] == ["nobody until 1", "nobody until 2"]


def test_who_awaits_a_meeting_waits_no_longer_for_others(apart: World, silent: str) -> None:
    worker = apart.decode[0]
    longer = worker.connect_soon(silent, SECONDS)
    with pytest.raises(errors.HandshakeError, match=r"was not met within 0\.1 s; it may still be, for others"):
        asyncio.run(worker.meet(silent, 0.1))
    assert not longer.done()


def test_a_meeting_whose_thread_does_not_start_is_none(apart: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, address = apart.decode[0], apart.prefill[0].address

    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError, match="new thread"):
            worker.connect_soon(address, SECONDS)
    assert worker.connect_soon(address, SECONDS).result(SECONDS).name == "prefill"
