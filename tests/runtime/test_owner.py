"""A worker has one owner at a time, its own thread or a caller, as callers, callbacks and loops see it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.paths import ROOT
from tests.runtime.helpers.endings import PROGRAMS
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled, looked_at
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, answering, world
from tests.shares import later
from tests.slowness import Patience

from kvplan.runtime import DecodeWorker, PrefillWorker, Transfer, errors, owner
from kvplan.runtime.owner import Duties, Owner
from kvplan.runtime.wakeup import QUIET, Bell, rest

SECONDS = 20


def idle() -> tuple[list[int], float]:
    return [], QUIET


def made(step: object = bool) -> Owner:
    return Owner("worker 0", Duties(step, idle))  # type: ignore[arg-type]


@pytest.fixture
def threaded() -> Iterator[Owner]:
    found = made()
    found.start()
    yield found
    found.stop()


def threads(word: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(word)]


def test_without_a_thread_the_caller_carries_it_out_alone() -> None:
    found, inside, most = made(), [0], list[int]()

    def work() -> None:
        inside[0] += 1
        most.append(inside[0])
        time.sleep(1e-4)
        inside[0] -= 1

    callers = [threading.Thread(target=lambda: [found.call(work) for _ in range(50)]) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert (len(most), max(most)) == (200, 1)


def test_what_is_queued_in_the_last_moment_is_carried_out() -> None:
    """By who is at work, or by who asks: never by nobody."""
    found, done = made(), list[int]()
    callers = [
        threading.Thread(target=lambda number=number: [found.call(lambda: done.append(number)) for _ in range(500)])
        for number in range(3)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(SECONDS)
    assert len(done) == 1500


def test_two_owners_whose_callbacks_call_each_other_wait_for_neither() -> None:
    calls: list[Future[int]] = [Future(), Future()]
    workers: list[Owner] = []

    def after(number: int) -> None:
        if not calls[number].running() and not calls[number].done():
            calls[number].set_running_or_notify_cancel()
            calls[number].set_result(workers[1 - number].call(lambda: number))

    for number in range(2):
        workers.append(Owner(f"worker {number}", Duties(bool, idle, after=lambda number=number: after(number))))  # type: ignore[misc]
    for worker in workers:
        worker.start()
    assert [call.result(SECONDS) for call in calls] == [0, 1]
    for worker in workers:
        worker.stop()


def test_who_is_asked_within_a_step_may_not_call(threaded: Owner) -> None:
    with pytest.raises(errors.HandleError, match="within one of its own steps"):
        threaded.call(lambda: threaded.call(bool))


def test_a_call_that_nobody_carries_out_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, found = threading.Event(), made()
    found.start()
    monkeypatch.setattr(owner, "STUCK", 0.05)
    monkeypatch.setattr(owner, "LOOK", 0.05)
    found.ask(lambda: go_on.wait(SECONDS))
    with pytest.raises(errors.HandleError, match="did not carry a call out"):
        found.call(bool)
    go_on.set()
    monkeypatch.undo()
    found.stop()


def test_a_thread_that_is_stuck_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun, found = threading.Event(), threading.Event(), made()
    found.start()

    def hang() -> None:
        begun.set()
        go_on.wait(SECONDS)

    found.ask(hang)
    assert begun.wait(SECONDS)
    monkeypatch.setattr(owner, "STOP", 0.05)
    with pytest.raises(errors.HandleError, match="is stuck in a step"):
        found.stop()
    go_on.set()
    until(lambda: not threads("kvplan-worker 0"))


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), KeyboardInterrupt()])
def test_no_failure_ends_the_thread(error: BaseException) -> None:
    def step() -> bool:
        raise error

    found = made(step)
    found.start()
    assert found.call(lambda: 5) == 5
    assert found.thread.fault == ""
    found.stop()


@pytest.fixture(params=["pull", "push"])
def pair(request: pytest.FixtureRequest) -> World:
    return world(Shape(2), Shape(1), mode=request.param, start=False)


def everybody(made: World) -> list[PrefillWorker | DecodeWorker]:
    return [*made.prefill, *made.decode]


def test_a_loop_of_ones_own_waits_on_descriptors_and_nothing_else(pair: World) -> None:
    request, ended = ask(pair, (0, 45)), list[Transfer]()
    filled(pair, request)
    workers = {worker.fileno(): worker for worker in everybody(pair)}
    with select.epoll() as loop:
        for descriptor in workers:
            loop.register(descriptor, select.EPOLLIN)
        transfer = pair.decode[0].submit(request, SECONDS)
        transfer.on_end(ended.append)
        pair.hold("r")
        patience = Patience(SECONDS)
        while not ended and patience.lasts():
            for descriptor, _ in loop.poll(SECONDS):
                workers[descriptor].run_once()
    assert transfer.state == "done"
    check(pair, 0, request)


def test_a_descriptor_is_quiet_between_steps_and_wakes_for_a_call(pair: World) -> None:
    worker = pair.prefill[0]
    descriptor = worker.fileno()
    assert select.select([descriptor], [], [], SECONDS)[0]
    rung, patience = 0, Patience(1)
    while patience.lasts() and rung < 1000:
        if select.select([descriptor], [], [], 0.1)[0]:
            worker.run_once()
            rung += 1
    assert rung < 100, "a worker that has nothing to do is woken four times a second"
    pair.hold("r")
    assert select.select([descriptor], [], [], SECONDS)[0]


def test_closing_ends_threads_and_descriptors(pair: World) -> None:
    before = threads("kvplan-")
    for worker in pair.prefill:
        worker.fileno()
    for each in everybody(pair):
        each.close()
        with pytest.raises(errors.HandleError, match="closed"):
            each.fileno()
    assert threads("kvplan-") == before


def test_a_worker_is_driven_in_one_way(pair: World) -> None:
    pair.decode[0].start()
    with pytest.raises(errors.HandleError, match="thread of its own"):
        pair.decode[0].fileno()
    pair.prefill[0].fileno()
    with pytest.raises(errors.HandleError, match="start it once"):
        pair.decode[0].start()


def test_nobody_closes_a_bell_that_another_one_rings() -> None:
    """Its number may be another connection's by then, which would be sent a byte, or lose what came."""
    bell = Bell()

    def ring() -> None:
        for _ in range(1000):
            bell.ring()

    ringing = threading.Thread(target=ring)
    ringing.start()
    bell.close()
    ringing.join()
    bell.drain()
    assert bell.fileno() == -1


def test_a_descriptor_beyond_the_size_of_select_ends_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.wakeup.SELECTABLE", 0)
    bell = Bell()
    bell.listen()
    bell.ring()
    begun = time.monotonic()
    rest([bell.fileno()], SECONDS)
    assert time.monotonic() - begun < SECONDS / 2
    bell.close()
    rest([0x7FFF], 1e-3)


@pytest.mark.parametrize("start", [False, True])
def test_a_callback_may_wait_for_another_transfer(pair: World, start: bool) -> None:
    worker, ended = pair.decode[0], list[str]()
    other = worker.submit(ask(pair, (0, 4), name="other"), 1)
    first = looked_at(worker.submit(replace(ask(pair, (0, 4), name="first"), decode={}), 1))
    assert first.ended

    def waits(_: Transfer) -> None:
        with pytest.raises(errors.DeadlineError):
            other.wait()
        ended.append(other.state)

    apart = replace(ask(pair, (0, 4), name="apart"), tokens=(4, 4), prefill={}, decode={})
    asked = worker.submit(apart, 0.2)
    asked.on_end(waits)
    if start:
        worker.start()
    with pytest.raises(errors.DeadlineError):
        asked.wait()
    until(lambda: ended, pair.poll)
    assert ended == ["timed_out"]


def test_what_is_waited_for_within_a_batch_is_asked_for(pair: World) -> None:
    request = ask(pair, (0, 45))
    filled(pair, request)
    pair.hold("r")
    with answering(*pair.prefill), pair.decode[0].together():
        assert pair.decode[0].submit(request, SECONDS).wait().state == "done"
    check(pair, 0, request)


def test_each_release_is_reported_once_whoever_asks(pair: World) -> None:
    worker, names = pair.prefill[0], [f"r{number}" for number in range(2000)]
    reported, over = list[str](), threading.Event()

    def take() -> None:
        while not over.is_set():
            reported.extend(one.request for one in worker.released())

    takers = [threading.Thread(target=take) for _ in range(3)]
    for taker in takers:
        taker.start()
    for name in names:
        worker.hold(name)
        worker.withdraw(name)
    until(lambda: len(reported) >= len(names))
    over.set()
    for taker in takers:
        taker.join()
    assert sorted(reported) == sorted(names)


def test_a_hold_that_an_event_makes_in_a_step_stays(pair: World) -> None:
    """The name was released in the same step."""
    worker = pair.prefill[0]
    worker.hold("r")
    worker.withdraw("r")

    class Event:
        def query(self) -> bool:
            if [one for one in worker.released() if one.request == "r"]:
                worker.hold("r", ask(pair, (0, 4)).prefill)
            return False

    worker.hold("other", after=Event())
    for _ in range(3):
        worker.run_once()
    with pytest.raises(errors.HandleError, match="is held"):
        worker.hold("r", ask(pair, (0, 4)).prefill)


def test_a_worker_of_another_process_does_nothing(pair: World) -> None:
    """The child of `os.fork` has such a worker."""
    worker = pair.decode[0]
    child = os.fork()
    if not child:
        with ends_here():
            assert "is of another process" in worker.unhealthy()[0]
            for call in (worker.start, worker.fileno, lambda: worker.drain(1), lambda: worker.connect("tcp://a:1", 1)):
                with pytest.raises(errors.HandleError):
                    call()
            with pytest.raises(errors.HandleError):
                worker.submit(ask(pair, (0, 12)), 1)
            assert worker.running() == 0
            worker.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def ends_here() -> Iterator[None]:
    """This process ends with what is done within: with 0, or with 1 if it fails."""
    code = 1
    try:
        yield
        code = 0
    finally:
        os._exit(code)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("transport", ["nixl", *later(["memory"])])
def test_however_a_process_ends_or_forks_it_ends_well(name: str, transport: str) -> None:
    """These programs aborted (134), or hung, before there was one owner."""
    if transport == "nixl":
        pytest.importorskip("nixl")
    program = [sys.executable, "-m", PROGRAMS[name].__module__, name, transport]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "ended"), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
