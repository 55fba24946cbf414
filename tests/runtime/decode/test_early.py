"""A request that decode asks for before prefill holds it: it waits for the hold, and prefill keeps no more than its
name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled, looked_at, move
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Transfer, errors

MODES = ["pull", "push"]


@pytest.fixture(params=MODES)
def pair(request: pytest.FixtureRequest) -> World:
    return world(Shape(2), Shape(1), mode=request.param)


def heard(made: World, transfer: Transfer) -> None:
    """Every prefill worker has answered the claim."""
    until(lambda: transfer.poll() or all(part.unheld for part in transfer.parts))


def test_it_moves_once_it_is_held(pair: World) -> None:
    request = ask(pair, (0, 45))
    filled(pair, request)
    transfer = pair.decode[0].submit(request, 20)
    heard(pair, transfer)
    assert not transfer.ended
    for worker in pair.prefill:
        worker.hold("r", request.prefill)
    assert transfer.wait().state == "done"
    check(pair, 0, request)
    assert pair.released() == {("r", "finished")}


def test_it_is_waited_for_no_longer_than_the_caller_says(pair: World) -> None:
    pair.prefill[0].hold("r")
    transfer = pair.decode[0].submit(ask(pair, (0, 45)), 20, wait=0)
    with pytest.raises(errors.LeaseError, match=r"not held by prefill workers \[1\] 0 s after it was asked for"):
        transfer.wait()


def test_the_deadline_says_who_does_not_hold_it(pair: World) -> None:
    pair.prefill[0].hold("r")
    transfer = pair.decode[0].submit(ask(pair, (0, 45)), 0.3)
    with pytest.raises(errors.DeadlineError, match="prefill worker 1 does not hold it"):
        transfer.wait()


@pytest.mark.parametrize("wait", [-1, "2", float("nan"), True])
def test_a_wait_that_is_none_is_refused(pair: World, wait: Any) -> None:
    transfer = looked_at(pair.decode[0].submit(ask(pair, (0, 45)), 20, wait=wait))
    assert isinstance(transfer.error, errors.BadRequestError)


def test_what_was_held_and_let_go_is_not_waited_for(pair: World) -> None:
    move(pair, ask(pair, (0, 45)))
    transfer = pair.decode[0].submit(ask(pair, (0, 45)), 20)
    with pytest.raises(errors.LeaseError, match="is over, finished"):
        transfer.wait()
