"""Locks of workers, where a signal's handler raises at any call, and what is logged under them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.runtime.helpers.signals import Signal, calls, free, interrupted

from kvplan.runtime.ops import locks, logs
from kvplan.runtime.ops.locks import Then, WorkerLock, if_free


class Handled(logging.Handler):
    """What a handler got, and whether its thread had a worker's lock then."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.got, self.locked, self._then = list[str](), False, then

    def emit(self, record: logging.LogRecord) -> None:
        self.got.append(record.getMessage())
        self.locked = self.locked or locks.taken()
        self._then()


@pytest.fixture
def handled() -> Iterator[Handled]:
    handler = Handled()
    logs.LOG.addHandler(handler)
    yield handler
    logs.LOG.removeHandler(handler)


def test_a_lock_is_free_wherever_a_signal_came_in_a_with() -> None:
    lock = WorkerLock()

    def work() -> None:
        with Then(len_of_nothing), lock, Then(len_of_nothing), lock:
            len_of_nothing()

    for number in range(calls(work)):
        interrupted(work, number)
        assert free(lock)


def _said_and_ended() -> None:
    logs.event(logs.WARNING, "kept")
    raise Signal


def len_of_nothing() -> None:
    len("")


def test_a_lock_that_is_tried_is_free_wherever_a_signal_came() -> None:
    lock = threading.Lock()

    def work() -> None:
        if_free(lock, len_of_nothing)

    for number in range(calls(work)):
        interrupted(work, number)
        assert free(lock)
    with lock:
        assert not if_free(lock, len_of_nothing)


def test_what_is_logged_under_a_lock_is_handled_in_order_by_whoever_is_next_outside(handled: Handled) -> None:
    outer, inner = WorkerLock(), WorkerLock()
    with outer:
        logs.event(logs.WARNING, "first")
        with inner:
            logs.event(logs.WARNING, "second")
        logs.hand_over()
        assert handled.got == []
    thread = threading.Thread(target=logs.event, args=(logs.WARNING, "third"))
    thread.start()
    thread.join()
    assert handled.got == ["first", "second", "third"]
    assert not handled.locked


def test_what_a_handler_logs_under_a_lock_is_not_waited_for(handled: Handled) -> None:
    lock = WorkerLock()

    def say() -> None:
        with lock:
            logs.event(logs.WARNING, "again")
        logs.hand_over()

    handled._then = say
    with lock:
        logs.event(logs.WARNING, "once")
    logs.hand_over()
    handled._then = len_of_nothing
    logs.hand_over()
    assert handled.got == ["once", "again"]


def test_a_signal_loses_nothing_that_was_logged_but_what_a_handler_was_just_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handlers of `logging` have locks of their own, which a signal leaves taken."""
    lock, handled = WorkerLock(), list[str]()
    monkeypatch.setattr(logs.LOG, "handle", lambda record: handled.append(record.getMessage()))

    def work() -> None:
        with lock:
            logs.event(logs.WARNING, "one")
        logs.hand_over()

    with pytest.raises(Signal), lock:
        _said_and_ended()
    assert handled == []
    assert free(lock)
    work()
    assert handled == ["kept", "one"]
    for number in range(calls(work)):
        interrupted(work, number)
        assert free(logs._TURN)
        logs.hand_over()
        assert not logs._KEPT
