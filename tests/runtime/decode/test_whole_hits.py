"""A request of which decode has every token already: nothing moves, and prefill's blocks are freed, once they are
computed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, fed
from tests.runtime.helpers.steered import Flag
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Request, Transfer

HIT = Request("r", (8, 8), {}, {})
END = 8


@pytest.fixture(params=["pull", "push"])
def pair(request: pytest.FixtureRequest) -> World:
    return world(Shape(2), Shape(1), mode=request.param)


def hit(made: World) -> Request:
    return replace(ask(made, (0, END)), tokens=(END, END))


def ended_and_free(made: World, transfer: Transfer) -> None:
    assert transfer.wait().descriptors == 0
    assert made.released() == {("r", "finished")}
    assert not any(array.any() for array in made.decode_memory[0].values())


@pytest.mark.parametrize("named", [True, False], ids=["tables", "no tables"])
@pytest.mark.parametrize("streamed", [False, True], ids=["submit", "open"])
def test_a_held_one(pair: World, streamed: bool, named: bool) -> None:
    for worker in pair.prefill:
        worker.hold("r", hit(pair).prefill)
    ask_for = pair.decode[0].open if streamed else pair.decode[0].submit
    ended_and_free(pair, ask_for(hit(pair) if named else HIT, 20))


@pytest.mark.parametrize("streamed", [False, True], ids=["submit", "open"])
def test_blocks_are_not_free_before_they_are_computed(pair: World, streamed: bool) -> None:
    event = Flag()
    for worker in pair.prefill:
        worker.hold("r", after=event)
    transfer = (pair.decode[0].open if streamed else pair.decode[0].submit)(HIT, 20)
    until(lambda: transfer.poll() or all(worker.inspect().readers for worker in pair.prefill))
    for _ in range(50):
        transfer.poll()
        pair.decode[0].rest(0.001)
    assert [worker.released() for worker in pair.prefill] == [[], []]
    event.done = True
    ended_and_free(pair, transfer)


@pytest.mark.parametrize("streamed", [False, True], ids=["submit", "open"])
def test_a_fed_one_is_free_behind_its_last_chunk(pair: World, streamed: bool) -> None:
    request = hit(pair)
    for worker in pair.prefill:
        worker.open("r", (0, END))
        worker.offer("r", (0, 4), {"kv": request.prefill["kv"]})
    transfer = (pair.decode[0].open if streamed else pair.decode[0].submit)(fed(request) if streamed else HIT, 20)
    for _ in range(50):
        transfer.poll()
        pair.decode[0].rest(0.001)
    for worker in pair.prefill:
        worker.offer("r", (4, END), request.prefill, last=True)
    ended_and_free(pair, transfer)
