"""Events, callbacks and log handlers are other people's code: they run under no lock, and end nobody's thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Slot, Transfer, errors
from kvplan.runtime.polling import PollingThread


@pytest.fixture(params=["pull", "push"])
def made(request: pytest.FixtureRequest) -> Iterator[World]:
    found = world(Shape(1), Shape(1), mode=request.param)
    yield found
    found.close()


def locked(made: World) -> bool:
    """Whether the thread that asks holds a worker's lock."""
    return any(worker._lock._is_owned() for worker in (*made.prefill, *made.decode))  # type: ignore[attr-defined]


class Watching(logging.Handler):
    """Notes whether it is ever called under a lock."""

    def __init__(self, made: World) -> None:
        super().__init__()
        self.made, self.seen = made, list[bool]()

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(locked(self.made))


def test_no_foreign_code_runs_under_a_lock(made: World) -> None:
    seen, handler, logger = list[bool](), Watching(made), logging.getLogger("kvplan.runtime")
    request = ask(made, (0, 12))
    filled(made, request)

    class Event:
        def query(self) -> bool:
            seen.append(locked(made))
            return len(seen) > 2

    logger.addHandler(handler)
    try:
        made.prefill[0].hold("r", request.prefill, after=Event())
        transfer = made.decode[0].submit(request, 10)
        transfer.on_end(lambda _: seen.append(locked(made)))
        transfer.wait()
        bad = made.decode[0].submit(request, 0.01)
        with pytest.raises(errors.KvplanError):
            bad.wait()
        made.decode[0].drop("prefill")
        made.decode[0].connect(made.prefill[0].address, 5, mode=made.mode)
    finally:
        logger.removeHandler(handler)
    assert len(seen) >= 4
    assert len(handler.seen) >= 1
    assert not any([*seen, *handler.seen])


def test_an_event_may_poll_a_worker_whose_callbacks_ask_this_one(made: World) -> None:
    """A relay: what arrives here is offered on after its transfer, which is an event."""
    relay = world(Shape(1), Shape(1))
    request = ask(made, (0, 12))
    filled(made, request)
    made.prefill[0].hold("r", request.prefill)
    transfer = made.decode[0].submit(request, 10)
    held = list[bool]()
    transfer.on_end(lambda _: held.append(locked(relay)))
    relay.prefill[0].hold("on", request.prefill, after=transfer)
    on = relay.decode[0].submit(ask(relay, (0, 12), name="on"), 10)
    on.wait()
    assert held == [False]
    relay.close()


def leave(error: BaseException) -> Callable[[Transfer], None]:
    def callback(_: Transfer) -> None:
        raise error

    return callback


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt(), ValueError()])
def test_a_callback_ends_no_thread_of_the_runtime(made: World, error: BaseException) -> None:
    worker, never = made.decode[0], SimpleNamespace(query=lambda: False)
    worker.start()
    for name in ("a", "b"):
        made.prefill[0].hold(name, after=never)
    ends: list[Any] = []
    requests = ask(made, (0, 4), "edges", "a"), ask(made, (0, 4), "rising", "b")
    elsewhere = {**requests[1].decode, "state": Slot(9, 4)}
    one, other = (worker.submit(request, 0.2) for request in (requests[0], replace(requests[1], decode=elsewhere)))
    for callback in (leave(error), lambda transfer: ends.append(transfer.state)):
        one.on_end(callback)
    other.on_end(lambda transfer: ends.append(transfer.state))
    until(lambda: len(ends) == 2)
    assert ends == ["expired", "expired"]
    assert worker._thread is not None
    assert not worker._thread.dead


def test_a_callback_that_asks_for_more_is_not_called_within_another(made: World) -> None:
    """An engine has its own lock as it asks: callbacks within that would wait for it, or nest without end."""
    worker, lock, again, late = made.decode[0], threading.Lock(), list[Transfer](), list[bool]()

    def more(transfer: Transfer) -> None:
        late.append(not lock.acquire(blocking=False))
        again.append(worker.submit(ask(made, (0, 4), name=f"more-{transfer.request.id}"), 5, peer=Future()))
        lock.release()

    meeting = Future[Any]()
    waiting = [worker.submit(ask(made, (0, 4), name=f"r{number}"), 5, peer=meeting) for number in range(300)]
    for transfer in waiting:
        transfer.on_end(more)
    meeting.set_exception(errors.HandshakeError("nobody"))
    worker.poll()
    assert late == [False] * len(waiting)
    assert [one.request.id for one in again] == [f"more-{one.request.id}" for one in waiting]


def test_what_ended_in_a_thread_is_told_in_it(made: World) -> None:
    """Who asks for a request meanwhile is not called back for it: it may have what the callback waits for."""
    worker, meeting, told = made.decode[0], Future[Any](), list[int]()
    first, second = (worker.submit(ask(made, (0, 4), name=name), 5, peer=meeting) for name in "ab")

    def asks(_: Transfer) -> None:
        thread = threading.Thread(target=worker.submit, args=(ask(made, (0, 4), name="c"), 5, Future()))
        thread.start()
        thread.join()
        told.append(threading.get_ident())

    first.on_end(asks)
    second.on_end(lambda _: told.append(threading.get_ident()))
    meeting.set_exception(errors.HandshakeError("nobody"))
    worker.poll()
    assert told == [threading.get_ident()] * 2


def test_what_ends_a_program_ends_it_where_the_caller_polls(made: World) -> None:
    made.prefill[0].hold("r", after=SimpleNamespace(query=lambda: False))
    transfer, told = made.decode[0].submit(ask(made, (0, 4)), 5), list[str]()
    transfer.on_end(leave(KeyboardInterrupt()))
    transfer.on_end(lambda transfer: told.append(transfer.state))
    with pytest.raises(KeyboardInterrupt):
        transfer.cancel()
    assert told == ["cancelled"]


def test_a_thread_that_has_ended_is_noticed(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PollingThread, "dead", True)
    made.decode[0].start()
    assert made.decode[0].submit(ask(made, (0, 4)), 5).error is not None
    with pytest.raises(errors.HandleError, match="has ended: close it"):
        made.prefill[0].hold("r")
