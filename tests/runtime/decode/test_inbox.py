"""What prefill workers say, word by word, to a decode worker with a request in a known phase."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.runtime.decode.test_races import held, pair, rounds
from tests.runtime.helpers.requests import ask, fed
from tests.runtime.helpers.worlds import World
from tests.runtime.simulation.channels import Net, speak

from kvplan.runtime import Transfer, errors
from kvplan.runtime.control import messages as wire
from kvplan.runtime.decode.phases import Phase


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    made = Net(random.Random(0), slow=0)
    speak(made, monkeypatch)
    return made


def hear(made: World, message: Any) -> str:
    """Say this to the decode worker as its prefill worker; what it is counted as."""
    (worker,) = made.decode
    (engine,) = worker._engines
    (connection,) = engine.connections.values()
    before: Any = worker.counters.snapshot()["messages"]
    worker._inbox.hear(engine, connection, message, 0.0)
    after: Any = worker.counters.snapshot()["messages"]
    (kind,) = (kind for kind, count in after.items() if count != before[kind])
    return str(kind)


def phase(transfer: Transfer) -> Phase:
    (part,) = transfer.parts
    return part.phase


def brought(made: World, transfer: Transfer, to: Phase) -> int:
    """Bring a transfer to a phase without a further word of prefill; the number of its pin."""
    made.prefill[0].run_once()
    (part,) = transfer.parts
    while part.phase is not to:
        assert part.phase < to
        made.decode[0].run_once()
    assert part.pin is not None
    return part.pin


def test_confirmed_is_believed_of_this_attempt_only(net: Net) -> None:
    made = pair(net, "pull")
    transfer = made.decode[0].submit(held(made), 20)
    brought(made, transfer, Phase.TOLD)
    assert hear(made, wire.Confirmed("r", transfer.attempt + 1)) == "stale"
    assert phase(transfer) is Phase.TOLD
    assert hear(made, wire.Confirmed("r", transfer.attempt)) == "confirmed"
    assert phase(transfer) is Phase.CONFIRMED


def test_what_failed_an_earlier_attempt_fails_no_other(net: Net) -> None:
    made = pair(net, "pull")
    transfer = made.decode[0].submit(held(made), 20)
    brought(made, transfer, Phase.TOLD)
    assert hear(made, wire.Failed("r", "R046", "late", transfer.attempt + 1)) == "stale"
    assert transfer.state == "running"
    assert hear(made, wire.Failed("r", "R046", "late", transfer.attempt)) == "failed"
    assert isinstance(transfer.error, errors.LeaseError)


def test_written_is_believed_of_the_same_pin_only(net: Net) -> None:
    made = pair(net, "push")
    transfer = made.decode[0].submit(held(made), 20)
    pin = brought(made, transfer, Phase.MOVING)
    assert hear(made, wire.Written("r", pin + 1, 1)) == "stale"
    assert phase(transfer) is Phase.MOVING
    assert hear(made, wire.Written("r", pin, 1)) == "written"
    assert phase(transfer) is Phase.MOVED


def test_written_where_nothing_was_to_be_written_is_not_believed(net: Net) -> None:
    made = pair(net, "pull")
    made.hub.frozen.add(made.prefill[0].inspect().transport)
    transfer = made.decode[0].submit(held(made), 20)
    pin = brought(made, transfer, Phase.MOVING)
    assert hear(made, wire.Written("r", pin, 1)) == "stale"
    assert phase(transfer) is Phase.MOVING


def test_a_lost_offer_is_seen(net: Net) -> None:
    made = pair(net, "pull")
    request = ask(made, (0, 12))
    made.prefill[0].open("r", (0, 12))
    transfer = made.decode[0].open(fed(request), 20)
    pin = brought(made, transfer, Phase.MOVING)
    tables = wire.pack(request.prefill)
    assert hear(made, wire.Offer("r", pin + 1, 0, (0, 4), None, tables, False)) == "stale"
    assert hear(made, wire.Offer("r", pin, 0, (0, 4), None, tables, False)) == "offered"
    assert hear(made, wire.Offer("r", pin, 0, (0, 4), None, tables, False)) == "duplicate"
    assert hear(made, wire.Offer("r", pin, 2, (8, 12), None, tables, True)) == "unexpected"
    assert isinstance(transfer.error, errors.TransferError)
    assert "offer 2 came where number 1 was due" in str(transfer.error)


def test_a_request_that_is_told_of_as_over_is_claimed_no_more(net: Net) -> None:
    made = pair(net, "pull")
    transfer = made.decode[0].submit(held(made), 20)
    (engine,) = made.decode[0]._engines
    (connection,) = engine.connections.values()
    assert made.decode[0]._transfers.claims(engine, connection) == (("r",), ())
    brought(made, transfer, Phase.TOLD)
    assert made.decode[0]._transfers.claims(engine, connection) == ((), ())
    rounds(made, net)
    assert transfer.state == "done"


def test_a_request_that_is_held_anew_meanwhile_is_not_read_on(net: Net) -> None:
    made = pair(net, "pull")
    made.hub.frozen.add(made.prefill[0].inspect().transport)
    transfer = made.decode[0].submit(held(made), 20)
    pin = brought(made, transfer, Phase.MOVING)
    heartbeat = transfer.parts[0].heartbeat
    assert hear(made, wire.ClaimAnswers(heartbeat + 1, 6.0, (wire.Claimed("r", pin),))) == "answered"
    assert hear(made, wire.ClaimAnswers(heartbeat - 1, 6.0, (wire.Claimed("r", pin + 1),))) == "answered"
    assert transfer.state == "running"
    assert hear(made, wire.ClaimAnswers(heartbeat + 2, 6.0, (wire.Claimed("r", pin + 1),))) == "answered"
    assert isinstance(transfer.error, errors.LeaseError)
