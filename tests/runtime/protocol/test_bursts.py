"""Bursts through lines that take little: every request has its bytes, and nobody is dropped."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.runtime.decode.test_races import pair
from tests.runtime.helpers.requests import ask, fed
from tests.runtime.helpers.steered import Flag
from tests.runtime.helpers.worlds import World, tables
from tests.runtime.simulation.channels import Net, Pipe, speak

from kvplan.plan.types import Blocks
from kvplan.runtime import Request, Transfer
from kvplan.runtime.control.outbox import LineState

MODES = pytest.mark.parametrize("mode", ["pull", "push"])
ROOM = 4


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    """Lines take four messages until they are read."""
    made, give = Net(random.Random(0), slow=0), Pipe.give
    speak(made, monkeypatch)
    monkeypatch.setattr(
        Pipe, "give", lambda pipe, data: LineState.FULL if len(pipe.queue) >= ROOM else give(pipe, data)
    )
    return made


def ended(made: World, net: Net, transfers: list[Transfer]) -> set[str]:
    for _ in range(2000):
        net.time += 0.002
        made.prefill[0].run_once()
        made.decode[0].run_once()
        if all(transfer.ended for transfer in transfers):
            break
    return {str(transfer.error or transfer.state) for transfer in transfers}


def small(made: World, count: int) -> list[Request]:
    """Requests of a token each, in blocks of their own."""
    sides = [[tables(shape, made.model, [number], 0, number, 1) for number in range(count)] for shape in made.shapes]
    return [Request(f"r{number}", (0, 1), *both) for number, both in enumerate(zip(*sides, strict=True))]


@MODES
def test_requests_that_become_ready_at_once(net: Net, mode: str) -> None:
    made, event = pair(net, mode), Flag()
    requests = small(made, 40)
    for request in requests:
        made.prefill[0].hold(request.id, request.prefill, after=event)
    transfers = [made.decode[0].submit(request, 30) for request in requests]
    ended(made, net, transfers)
    event.done = True
    assert ended(made, net, transfers) == {"done"}


@MODES
def test_requests_that_are_asked_while_prefill_pauses(net: Net, mode: str) -> None:
    """Their first claim is the only one that names their tables."""
    made = pair(net, mode)
    requests = small(made, 40)
    for request in requests:
        made.prefill[0].hold(request.id, request.prefill)
    transfers = [made.decode[0].submit(request, 30) for request in requests]
    for _ in range(10):
        net.time += 0.1
        made.decode[0].run_once()
    assert ended(made, net, transfers) == {"done"}


@MODES
def test_a_request_that_was_fed_in_many_chunks_and_is_opened_late(net: Net, mode: str) -> None:
    made = pair(net, mode)
    request, (other,) = ask(made, (0, 40)), small(made, 1)
    other = Request("other", (0, 1), {**other.prefill, "kv": Blocks(0, np.array([30]))}, other.decode)
    made.prefill[0].open("r", (0, 40))
    made.prefill[0].hold("other", after=Flag())
    for first in range(40):
        for layer in (3, 7):
            made.prefill[0].offer(
                "r", (first, first + 1), request.prefill if first == 39 else {"kv": request.prefill["kv"]},
                layers=[layer], last=(first, layer) == (39, 7),
            )  # fmt: skip
    waiting = made.decode[0].submit(other, 30)
    transfer = made.decode[0].open(fed(request), 30)
    assert ended(made, net, [transfer]) == {"done"}
    assert waiting.state == "running"


def test_more_requests_than_a_claim_names(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is claimed again and again, in several messages, while its event is waited for."""
    monkeypatch.setattr("kvplan.runtime.protocol.decode.MOST_NAMED", 7)
    made, event = pair(net, "pull", lease=1.0), Flag()
    requests = small(made, 30)
    for request in requests:
        made.prefill[0].hold(request.id, request.prefill, after=event)
    transfers = [made.decode[0].submit(request, 60) for request in requests]
    for _ in range(3):
        ended(made, net, transfers)
    event.done = True
    assert ended(made, net, transfers) == {"done"}
