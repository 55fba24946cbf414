"""Python's lock: how often a decode worker gives it up for a request.

Beside a thread that computes each time may cost 5 ms, until that thread is made to give it back.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import zmq
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Transfer

# Calls of the runtime, beside the transport's, that release the interpreter lock.
CALLS: tuple[tuple[Any, str], ...] = (
    (zmq.Socket, "send"),
    (zmq.Socket, "recv"),
    (zmq.Socket, "poll"),
    (zmq, "zmq_poll"),
    (socket.socket, "send"),
    (socket.socket, "recv"),
    (select, "select"),
    (time, "sleep"),
)


@dataclass
class Given:
    """How often this thread gave the lock up, by what, while it was `counted`."""

    calls: Counter[str] = field(default_factory=Counter)
    counting: bool = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.counting = True
        try:
            yield
        finally:
            self.counting = False

    def watch(self, patch: pytest.MonkeyPatch, holder: Any, name: str) -> None:
        real, here = getattr(holder, name), threading.get_ident()

        def call(*given: Any, **named: Any) -> Any:
            if self.counting and threading.get_ident() == here:
                self.calls[f"{holder.__name__}.{name}"] += 1
            return real(*given, **named)

        patch.setattr(holder, name, call)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    found = Given()
    for holder, name in CALLS:
        found.watch(monkeypatch, holder, name)
    return found


@pytest.fixture
def pair() -> World:
    return world(Shape(1), Shape(1), start=False)


def moved(pair: World, given: Given, begin: Callable[[], list[Transfer]]) -> None:
    """Have requests moved, counting what decode does alone."""
    (source,), (target,) = pair.prefill, pair.decode
    with given.counted():
        transfers = begin()
        target.run_once()

    def turn() -> None:
        source.run_once()
        with given.counted():
            target.run_once()

    until(lambda: all(one.ended for one in transfers), turn)
    assert {one.state for one in transfers} == {"done"}


def test_a_request_gives_the_lock_up_to_speak_and_to_hear_and_for_nothing_else(pair: World, given: Given) -> None:
    for number in range(3):
        request = ask(pair, (0, 12), name=f"r{number}")
        filled(pair, request)
        pair.hold(request.id)
        given.calls.clear()
        moved(pair, given, lambda request=request: [pair.decode[0].submit(request, 20)])  # type: ignore[misc]
        # Claims are renewed now and then, first with the first of all.
        assert number == 0 or given.calls == {"Socket.send": 2, "Socket.recv": 2}


def test_a_round_that_finds_nothing_gives_it_up_for_nothing(pair: World, given: Given) -> None:
    pair.decode[0].run_once()
    with given.counted():
        pair.decode[0].run_once()
    assert given.calls == {}
