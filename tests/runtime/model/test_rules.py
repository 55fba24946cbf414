"""A reader of a hold gets that hold: each way in which another hold's bytes could take the place of its bytes."""

from __future__ import annotations

import pytest
from tests.runtime.model.protocol import BOTH, Ask, Groups, Hold, Protocol

from kvplan.runtime import errors

MODES = pytest.mark.parametrize("mode", ["pull", "push"])


@pytest.fixture
def model(mode: str, monkeypatch: pytest.MonkeyPatch) -> Protocol:
    return Protocol(monkeypatch, mode, workers=1)


def held(model: Protocol, streamed: bool = False, groups: Groups = BOTH) -> Hold:
    hold = (model.open if streamed else model.hold)("r", groups)
    assert hold is not None
    if streamed:
        model.offer_all(hold)
    return hold


def lapsed(model: Protocol) -> Hold:
    """A hold that decode knows, and for which it comes too late."""
    hold = held(model)
    model.lapse()
    return hold


OTHERS = "other blocks of group 'kv' than decode knows"


def refused(model: Protocol, ask: Ask | None, match: str = OTHERS) -> None:
    assert ask is not None
    model.rounds()
    with pytest.raises(errors.LeaseError, match=match):
        ask.transfer.wait()
    model.rest()


@MODES
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fed", [False, True])
def test_who_was_told_of_an_earlier_hold_is_refused(model: Protocol, streamed: bool, fed: bool) -> None:
    early = lapsed(model)
    held(model, fed)
    refused(model, model.ask(early, streamed))


@MODES
@pytest.mark.parametrize("told", [False, True])
def test_a_name_that_is_fed_again_brings_every_table(model: Protocol, told: bool) -> None:
    """Blocks of groups that no chunk names could only be those that decode was told of before."""
    lapsed(model)
    hold = held(model, streamed=True, groups=("kv",))
    ask = model.ask(hold, streamed=True, told=told)
    assert ask is not None
    model.rounds()
    with pytest.raises(errors.RequestError, match="group 'state' of the prefill side is missing"):
        ask.transfer.wait()
    model.rest()


@pytest.mark.parametrize("mode", ["pull"])
def test_blocks_are_compared_each_time_that_they_are_named(model: Protocol) -> None:
    """Also where prefill was not told that an earlier request of this connection is given up."""
    early = lapsed(model)
    hold = held(model)
    first = model.ask(hold)
    assert first is not None
    model.poll_prefill(0)
    model.net.full = 1.0
    first.transfer.cancel()
    model.net.full = 0.0
    model.poll_decode()
    refused(model, model.ask(early))


@MODES
@pytest.mark.parametrize("streamed", [False, True])
def test_a_claim_that_is_larger_than_a_message_is_refused_as_a_whole(
    mode: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Protocol(monkeypatch, mode, workers=2)
    hold = model.hold("r", long=True)
    assert hold is not None
    ask = model.ask(hold, streamed)
    assert ask is not None
    model.rounds()
    with pytest.raises(errors.RequestError, match="bytes is above"):
        ask.transfer.wait()
    model.rest()
