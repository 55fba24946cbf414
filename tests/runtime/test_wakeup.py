"""Workers that an event loop polls: by a descriptor of theirs, or attached to asyncio, with no loop of the caller's."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled
from tests.runtime.helpers.worlds import World, world
from tests.runtime.prefill.test_worker import Flag
from tests.slowness import Patience

from kvplan.runtime import DecodeWorker, PrefillWorker, Transfer, errors
from kvplan.runtime.ops.locks import WorkerLock
from kvplan.runtime.polling import PollingThread
from kvplan.runtime.wakeup import Bell

SECONDS = 20


@pytest.fixture(params=["pull", "push"])
def pair(request: pytest.FixtureRequest) -> Iterator[World]:
    made = world(Shape(2), Shape(1), mode=request.param)
    for worker in made.prefill:
        assert worker._thread is not None
        worker._thread.stop()
    yield made
    made.close()


def everybody(made: World) -> list[PrefillWorker | DecodeWorker]:
    return [*made.prefill, *made.decode]


def wakeups() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("kvplan-wakeup")]


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
                workers[descriptor].poll()
    assert transfer.state == "done"
    check(pair, 0, request)


def test_a_descriptor_is_quiet_between_polls_and_wakes_for_a_call(pair: World) -> None:
    """Readable at the latest after a time, but not all the time; a call of another thread makes it so."""
    worker = pair.prefill[0]
    descriptor = worker.fileno()
    assert select.select([descriptor], [], [], SECONDS)[0]
    worker.poll()
    rung = sum(bool(select.select([descriptor], [], [], 0)[0]) for _ in range(100))
    assert rung < 100
    pair.hold("r")
    assert select.select([descriptor], [], [], SECONDS)[0]


def test_asyncio_needs_no_polling_of_the_caller(pair: World) -> None:
    request, event = ask(pair, (0, 45)), Flag()
    filled(pair, request)

    async def serve() -> Transfer:
        for worker in everybody(pair):
            worker.attach()
        assert pair.decode[0].driven
        transfer = pair.decode[0].submit(request, SECONDS)
        for worker in pair.prefill:
            worker.hold("r", request.prefill, after=event)
        asyncio.get_running_loop().call_later(0.05, setattr, event, "done", True)
        await transfer
        done = asyncio.Event()
        again = pair.decode[0].submit(request, 0.2)
        again.on_end(lambda _: done.set())
        await asyncio.wait_for(done.wait(), SECONDS)
        for worker in everybody(pair):
            worker.detach()
        assert not pair.decode[0].driven
        return transfer

    assert asyncio.run(serve()).state == "done"
    assert wakeups() == []
    check(pair, 0, request)


def test_an_attached_worker_claims_while_nothing_is_awaited(pair: World) -> None:
    """What an event loop that only awaits transfers does not: heartbeats, deadlines, and word of lost peers."""
    engine = pair.decode[0]._engines.live["prefill"]

    async def serve() -> None:
        pair.decode[0].attach()
        before, patience = engine._heartbeats, Patience(SECONDS)
        engine._next = 0.0
        while engine._heartbeats == before and patience.lasts():
            await asyncio.sleep(0.01)
        assert engine._heartbeats > before
        pair.decode[0].detach()

    asyncio.run(serve())


def test_closing_ends_the_thread_and_the_descriptor(pair: World) -> None:
    async def serve() -> None:
        pair.decode[0].attach()
        pair.decode[0].close()

    for worker in pair.prefill:
        worker.fileno()
    asyncio.run(serve())
    for worker in pair.prefill:
        worker.close()
    assert wakeups() == []
    for each in everybody(pair):
        with pytest.raises(errors.HandleError, match="closed"):
            each.fileno()


def test_a_loop_that_is_closed_is_no_reason_to_leave_a_thread(pair: World) -> None:
    async def serve() -> None:
        pair.decode[0].attach()

    asyncio.run(serve())
    assert not pair.decode[0].driven
    pair.decode[0].close()
    assert wakeups() == []


def test_a_loop_that_stands_still_is_no_reason_to_leave_a_thread(pair: World) -> None:
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        pair.decode[0].attach()

    loop.run_until_complete(serve())
    pair.decode[0].close()
    assert wakeups() == []
    loop.close()


def test_a_loop_that_ends_before_it_lets_go_is_no_reason_to_leave_a_thread(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve() -> None:
        pair.decode[0].attach()
        # What another thread calls soon may never come.
        monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", lambda *_: None)
        detaching = threading.Thread(target=pair.decode[0].detach)
        detaching.start()
        detaching.join()
        assert wakeups() == []

    loop = asyncio.new_event_loop()
    loop.run_until_complete(serve())
    loop.close()


def test_a_worker_that_is_closed_is_no_failure_of_its_loop(pair: World, caplog: pytest.LogCaptureFixture) -> None:
    """The loop comes to a last round before it lets go."""
    worker = pair.prefill[0]

    async def serve() -> None:
        worker.attach()
        polling = worker._wakeup._loop
        assert polling is not None
        closing = threading.Thread(target=worker.close)
        closing.start()
        closing.join()
        polling._round()

    asyncio.run(serve())
    assert "poll failed" not in caplog.text


def test_nobody_attaches_outside_of_a_loop(pair: World) -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        pair.decode[0].attach()
    assert wakeups() == []


def test_who_comes_while_a_worker_is_closed_leaves_no_thread(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its threads' end and its own."""
    worker = pair.decode[0]
    usual, comes = worker._wakeup.close, iter([worker.start, worker.fileno])

    def close() -> None:
        usual()
        for come in comes:
            come()

    monkeypatch.setattr(worker._wakeup, "close", close)
    worker.close()
    assert [thread for thread in threading.enumerate() if thread.name == "kvplan-decode-0"] == wakeups() == []


class ClosedBehind(WorkerLock):  # type: ignore[misc]  # final in its stub alone
    """The lock of a worker that somebody closes as soon as it is released."""

    def __init__(self, close: Callable[[], None]) -> None:
        super().__init__()
        self._close: Callable[[], None] | None = close

    def __exit__(self, *why: Any) -> None:
        super().__exit__(*why)
        close, self._close = self._close, None
        if close is not None:
            close()


@pytest.mark.parametrize("ask", ["fileno", "attach"])
def test_who_is_asked_for_a_descriptor_while_it_is_closed_leaves_no_thread(pair: World, ask: str) -> None:
    worker = pair.decode[0]

    async def serve() -> None:
        worker._lock = ClosedBehind(worker.close)
        getattr(worker, ask)()

    asyncio.run(serve())
    assert wakeups() == []


def test_two_who_close_a_worker_end_its_thread_once(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has done it between two looks."""
    worker, looks = pair.decode[0], iter([PollingThread(lambda: False, "polls")])
    found = property(lambda _: next(looks, None), lambda _self, _thread: None)
    with monkeypatch.context() as patched:
        patched.setattr(DecodeWorker, "_thread", found, raising=False)
        worker._end_thread()


def test_nobody_closes_a_bell_that_another_one_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another connection's by then, which would be sent a byte, or lose what came."""
    bell, got = Bell(), list[bool]()

    def meddle() -> None:
        if taken := bell._lock.acquire(blocking=False):
            bell._lock.release()
        got.append(taken)

    class End:
        def meddled(self, *_: object) -> int:
            thread = threading.Thread(target=meddle)
            thread.start()
            thread.join()
            return 0

        send = recv = close = meddled

    monkeypatch.setattr(bell, "_heard", End())
    monkeypatch.setattr(bell, "_rung", End())
    bell.ring()
    bell.drain()
    bell.close()
    assert got == [False] * 4


def test_a_fault_of_a_look_wakes_who_waits(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = pair.decode[0]

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(worker._wakeup, "_look", broken)
    assert select.select([worker.fileno()], [], [], SECONDS)[0]
    worker.detach()
