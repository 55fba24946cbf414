"""Workers that an event loop polls: by a descriptor of theirs, or attached to asyncio, with no loop of the caller's."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Iterator

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled
from tests.runtime.helpers.worlds import World, world
from tests.runtime.prefill.test_worker import Flag
from tests.slowness import Patience

from kvplan.runtime import DecodeWorker, PrefillWorker, Transfer, errors

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


def test_a_fault_of_a_look_wakes_who_waits(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = pair.decode[0]

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(worker._wakeup, "_look", broken)
    assert select.select([worker.fileno()], [], [], SECONDS)[0]
    worker.detach()
