"""Who polls: a thread that does not end when it is told to."""

from __future__ import annotations

import asyncio
import atexit
import os
import select
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask
from tests.runtime.helpers.worlds import world

from kvplan.runtime import polling
from kvplan.runtime.errors import HandleError
from kvplan.runtime.polling import PollingThread


class StuckPoll:
    """A poll that does not return until it is `freed`."""

    def __init__(self) -> None:
        self.began, self.freed = threading.Event(), threading.Event()

    def __call__(self) -> bool:
        self.began.set()
        self.freed.wait()
        return False


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckPoll]:
    monkeypatch.setattr(polling, "STOP", 0.01)
    poll = StuckPoll()
    yield poll
    poll.freed.set()


def test_a_thread_that_is_stuck_is_not_waited_for_for_ever(stuck: StuckPoll) -> None:
    thread = PollingThread(stuck, "stuck")
    stuck.began.wait()
    with pytest.raises(HandleError, match="stuck is stuck in a poll"):
        thread.stop()


def test_a_program_that_ends_waits_for_the_round_of_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is in a call of C++ while the interpreter ends aborts the process."""
    at_exit, woken, begun = list[Callable[[], object]](), threading.Event(), threading.Event()
    monkeypatch.setattr(atexit, "register", at_exit.append)

    def poll() -> bool:
        begun.set()
        return woken.wait()

    thread = PollingThread(poll, "polls", wake=woken.set)
    begun.wait()
    [end] = at_exit
    end()
    alive = thread._thread.is_alive()
    woken.set()
    assert not alive


def test_a_worker_gives_nothing_back_while_its_thread_is_stuck(
    stuck: StuckPoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the thread is in may be reading or writing the memory."""
    made = world(Shape(1), Shape(1))
    worker = made.decode[0]
    worker._thread = PollingThread(stuck, "stuck")
    stuck.began.wait()
    for _ in range(2):
        with pytest.raises(HandleError, match="stuck"):
            worker.close()
        assert not worker._closed
    stuck.freed.set()
    monkeypatch.setattr(polling, "STOP", 10.0)
    made.close()


def refused(*_: object) -> None:
    raise ValueError("filedescriptor out of range in select()")


def test_a_descriptor_beyond_the_size_of_select_ends_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    # So that no thousand descriptors have to be opened.
    monkeypatch.setattr(polling, "SELECTABLE", 0)
    monkeypatch.setattr(select, "select", refused)
    monkeypatch.setattr(time, "sleep", slept.append)
    reader, writer = os.pipe()
    os.write(writer, b"x")
    polling.rest([reader], 60)
    assert slept == []
    for end in (reader, writer):
        os.close(end)
    polling.rest([reader], 60)
    assert slept == [polling.LONGEST]


def test_the_end_of_what_a_closed_loop_has_awaited_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    made = world(Shape(1), Shape(1))
    loop = asyncio.new_event_loop()
    made.decode[0].start()
    transfer = made.decode[0].submit(ask(made, (0, 4)), 20)

    async def look() -> None:
        asyncio.create_task(until_ended())  # noqa: RUF006
        await asyncio.sleep(0)

    async def until_ended() -> None:
        await polling.ended(transfer)

    loop.run_until_complete(look())
    [task] = asyncio.all_tasks(loop)
    loop.close()
    transfer.cancel()
    assert "callback failed" not in caplog.text
    # It is told of at its end otherwise.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    made.close()
