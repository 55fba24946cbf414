"""Events and callbacks are other people's code, which may call any worker; nor do log handlers end anybody's thread."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.helpers.made import end_thread
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.plan.types import Plan
from kvplan.runtime import Identity, InMemory, Plain, PrefillWorker, Slot, Transfer, errors, views
from kvplan.runtime.plans.catalog import Pinned, Role


@pytest.fixture(params=["pull", "push"])
def made(request: pytest.FixtureRequest) -> World:
    return world(Shape(1), Shape(1), mode=request.param)


def calls(made: World) -> bool:
    """Call every worker: whether each carried it out."""
    for source in made.prefill:
        source.announce([one.address for one in made.prefill])
    for target in made.decode:
        with pytest.raises(errors.HandshakeError, match="'nobody' is not connected"):
            target.drop("nobody")
    return True


def test_foreign_code_may_call_every_worker(made: World) -> None:
    seen = list[bool]()
    request = ask(made, (0, 12))
    filled(made, request)

    class Event:
        def query(self) -> bool:
            seen.append(calls(made))
            return len(seen) > 2

    made.prefill[0].hold("r", request.prefill, after=Event())
    transfer = made.decode[0].submit(request, 10)
    transfer.on_end(lambda _: seen.append(calls(made)))
    transfer.wait()
    bad = made.decode[0].submit(request, 0.01)
    with pytest.raises(errors.KvplanError):
        bad.wait()
    made.decode[0].drop("prefill")
    made.decode[0].connect(made.prefill[0].address, 5, mode=made.mode)
    assert len(seen) >= 4
    assert all(seen)


def test_an_event_may_poll_a_worker_whose_callbacks_ask_this_one(made: World) -> None:
    """A relay: what arrives here is offered on after its transfer, which is an event."""
    relay = world(Shape(1), Shape(1))
    request = ask(made, (0, 12))
    filled(made, request)
    made.prefill[0].hold("r", request.prefill)
    transfer = made.decode[0].submit(request, 10)
    held = list[bool]()
    transfer.on_end(lambda _: held.append(calls(relay)))
    relay.prefill[0].hold("on", request.prefill, after=transfer)
    on = relay.decode[0].submit(ask(relay, (0, 12), name="on"), 10)
    on.wait()
    assert held == [True]


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
    assert ends == ["timed_out", "timed_out"]
    assert worker.unhealthy() == ()


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
    worker.run_once()
    assert late == [False] * len(waiting)
    assert [one.request.id for one in again] == [f"more-{one.request.id}" for one in waiting]


def test_what_ended_in_a_thread_is_told_in_it(made: World) -> None:
    """A thread that submits a request meanwhile runs no other callback: it may hold what the callback waits for."""
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
    worker.run_once()
    assert told == [threading.get_ident()] * 2


def test_what_ends_a_program_ends_it_where_the_caller_polls(made: World) -> None:
    made.prefill[0].hold("r", after=SimpleNamespace(query=lambda: False))
    transfer, told = made.decode[0].submit(ask(made, (0, 4)), 5), list[str]()
    transfer.on_end(leave(KeyboardInterrupt()))
    transfer.on_end(lambda transfer: told.append(transfer.state))
    with pytest.raises(KeyboardInterrupt):
        transfer.cancel()
    assert told == ["cancelled"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_noticed(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        # The newest: a test before may have left a worker of its own.
        *_, thread = (one for one in threading.enumerate() if one.name == "kvplan-prefill-0")
        end_thread(broken, thread)
        thread.join(10)
    with pytest.raises(errors.HandleError, match="has ended: close it"):
        made.prefill[0].hold("r")


ENDS = [asyncio.CancelledError(), GeneratorExit(), SystemExit(1), KeyboardInterrupt(), ValueError("wrong")]


class Raising:
    """An event of a task that was cancelled, and others that fail."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.asked = error, 0

    def query(self) -> bool:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("in_chunks", [False, True])
def test_an_event_that_raises_withdraws_its_request_and_no_other(
    made: World, error: BaseException, in_chunks: bool
) -> None:
    """It happened: a relay's task was cancelled, and healthy requests of others timed out (R043)."""
    good, bad, event = ask(made, (0, 12)), ask(made, (0, 4), "edges", "bad"), Raising(error)
    filled(made, good)
    source, worker = made.prefill[0], made.decode[0]
    if in_chunks:
        source.open("bad", (0, 4))
        source.offer("bad", (0, 4), after=event, last=True)
    else:
        source.hold("bad", after=event)
    source.hold("r", good.prefill)
    elsewhere = replace(bad, decode={**bad.decode, "state": Slot(9, 4)})
    ended = worker.submit(elsewhere, 20), worker.submit(good, 20)
    until(lambda: all(one.ended for one in ended), worker.run_once)
    assert isinstance(ended[0].error, errors.WithdrawnError | errors.LeaseError)
    assert ended[1].error is None
    assert event.asked == 1
    assert source.unhealthy() == ()


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_a_caller_that_polls_sees_only_what_ends_its_program(made: World, error: BaseException) -> None:
    """And only after the round: leases of other requests end in the same poll."""
    source = PrefillWorker(
        made.plan, 0, views(made.plan.prefill, 0, made.prefill_memory[0]), InMemory(made.hub, "alone"),
        identity=Identity("alone"), keys=Plain(), lease=0.01, start=False,
    )  # fmt: skip
    source.hold("other")
    time.sleep(0.05)
    source.run_once()
    source.hold("bad", after=Raising(error))
    ends = pytest.raises(type(error)) if isinstance(error, SystemExit | KeyboardInterrupt) else nullcontext()
    with ends:
        source.run_once()
    released = {(one.request, one.why) for one in source.released()}
    assert ("bad", "withdrawn") in released
    source.run_once()
    source.close()


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), ValueError("wrong")], ids=lambda error: type(error).__name__
)
def test_a_log_handler_that_raises_harms_nobody(
    made: World, error: BaseException, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # NIXL turns it off for the whole process when it is imported.
    monkeypatch.setattr(logging, "raiseExceptions", True)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise error

    handler, logger, request = Handler(), logging.getLogger("kvplan.runtime"), ask(made, (0, 12))
    filled(made, request)
    logger.addHandler(handler)
    try:
        made.prefill[0].hold("bad", after=Raising(ValueError()))
        made.prefill[0].hold("r", request.prefill)
        transfer = made.decode[0].submit(request, 20)
        until(lambda: transfer.ended, made.decode[0].run_once)
        made.decode[0].submit(replace(request, id="late"), 0.0)
        made.decode[0].run_once()
        made.decode[0].drop("prefill")
    finally:
        logger.removeHandler(handler)
    assert transfer.error is None
    assert type(error).__name__ in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), ValueError("wrong")], ids=lambda error: type(error).__name__
)
def test_a_callback_that_fails_is_logged_and_not_raised_at_a_caller(made: World, error: BaseException) -> None:
    made.prefill[0].hold("r", after=SimpleNamespace(query=lambda: False))
    transfer, told = made.decode[0].submit(ask(made, (0, 4)), 5), list[str]()
    transfer.on_end(leave(error))
    transfer.on_end(lambda transfer: told.append(transfer.state))
    transfer.cancel()
    assert told == ["cancelled"]


class FailingSource:
    """A source of plans of the caller's that fails when a peer asks for a plan."""

    def __init__(self, made: World, error: BaseException) -> None:
        self.made, self.error = made, error

    def models(self, role: Role, side: str) -> frozenset[tuple[str, str]]:
        return frozenset({(self.made.plan.model, self.made.plan.model_digest)})

    def find(self, model: str, model_digest: str, prefill: Pinned, decode: Pinned) -> Plan:
        raise self.error


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), ValueError("wrong")], ids=lambda error: type(error).__name__
)
def test_a_plan_source_that_fails_refuses_a_peer_and_serves_others(made: World, error: BaseException) -> None:
    source = PrefillWorker(
        FailingSource(made, error), 0, views(made.plan.prefill, 0, made.prefill_memory[0]),
        InMemory(made.hub, "failing"), identity=Identity("failing"), keys=Plain(), lease=0.1,
    )  # fmt: skip
    source.announce([source.address])
    source.hold("other")
    with pytest.raises(
        errors.HandshakeError, match=f"the plan source of the prefill engine failed: {type(error).__name__}"
    ):
        made.decode[0].connect(source.address, 20)
    found = list[str]()
    until(lambda: found, lambda: found.extend(one.why for one in source.released()))
    assert found == ["expired"]
    source.close()
