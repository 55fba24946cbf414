"""Blocks that may still be written are handed to nobody, until those who write them are known to have stopped."""

from __future__ import annotations

import numpy as np
import pytest
from tests.runtime.protocol.cores import HOLD, Rig, ask, engine

from kvplan.plan.types import Group, Side
from kvplan.runtime import errors
from kvplan.runtime.clock import LONGEST_STEP
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.messages import Leave
from kvplan.runtime.errors import QuarantinedError
from kvplan.runtime.protocol.effects import Stop
from kvplan.runtime.protocol.loads import Load
from kvplan.runtime.protocol.quarantine import ASK, BlockLedger

SIDE = Side(
    "d", "", (Group("a", "tokens", 4, 4, 1, 0), Group("b", "tokens", 4, 4, 1, 0), Group("c", "state", 0, 0, 1, 1)), ()
)


def test_groups_of_one_arena_share_their_blocks() -> None:
    ledger = BlockLedger(SIDE, {"a": 8, "b": 8, "c": 8})
    ledger.take({"a": np.array([1, 2]), "c": np.array([3])})
    with pytest.raises(QuarantinedError, match="block 2 of group 'b' is being written"):
        ledger.take({"b": np.array([5, 2])})
    ledger.take({"b": np.array([5, 3])})


def test_what_is_refused_takes_nothing() -> None:
    ledger = BlockLedger(SIDE, {"a": 8, "b": 8, "c": 8})
    ledger.quarantine({"c": np.array([0])})
    with pytest.raises(
        QuarantinedError, match="in quarantine: use others until its transfer ends, or close this worker"
    ):
        ledger.take({"a": np.array([1]), "c": np.array([0])})
    ledger.take({"a": np.array([1])})
    assert ledger.quarantined() == {1: (0,)}
    ledger.free({"c": np.array([0])})
    assert ledger.quarantined() == {}


def given_up(rig: Rig, name: str = "r", block: int = 3) -> Load:
    """A request that has failed while all prefill workers were writing it."""
    load = rig.begin(ask(name, block))
    for part in load.parts:
        rig.claimed(part)
    rig.fail(load, errors.CancelledTransferError(f"request {name} was cancelled"))
    assert rig.of(Stop) == [], "nothing was handed over to be moved here"
    return load


def kept(rig: Rig) -> list[int]:
    """Blocks of tokens in quarantine."""
    return list(rig.core.loads.ledger.quarantined().get(0, ()))


def quiet(rig: Rig) -> list[object]:
    """The messages without repeated claims."""
    return [message for message in rig.told() if not isinstance(message, wire.Claim)]


def test_stopped_is_the_word_of_one_worker_about_one_request() -> None:
    rig = Rig(push=True, workers=2)
    given_up(rig), given_up(rig, "s", 20)
    assert rig.hear(wire.Stopped("t", lost=False)) == "unknown"
    assert rig.hear(wire.Stopped("r", lost=False), 0) == "stopped"
    assert rig.hear(wire.Stopped("r", lost=False), 0) == "unknown"
    rig.tick()
    assert kept(rig) == [3, 4, 5, 20, 21, 22]
    again = rig.begin(ask("r", 30))
    assert isinstance(again.error, QuarantinedError)
    assert rig.hear(wire.Stopped("r", lost=False), 1) == "stopped"
    rig.tick()
    assert kept(rig) == [20, 21, 22]
    assert not rig.begin(ask("r", 30)).ended
    assert rig.core.loads.quarantine.busy() == {"p0", "p1"}


def test_writers_are_asked_now_and_then_whether_they_have_stopped() -> None:
    rig = Rig(push=True)
    given_up(rig)
    rig.tick()
    quiet(rig)
    rig.tick(ASK / 2)
    assert quiet(rig) == []
    rig.tick(ASK / 2)
    assert quiet(rig) == [Leave("r")]


@pytest.mark.parametrize("how", ["gone", "dead", "stopped", "broken"])
def test_what_was_sent_by_a_connection_that_broke_lingers_for_as_long_as_rounds_have_seen(how: str) -> None:
    rig = Rig(push=True, linger_s=3 * LONGEST_STEP)
    given_up(rig)
    rig.tick()
    if how == "gone":
        rig.core.loads.quarantine.gone(rig.engine.peers)
    elif how == "dead":
        rig.core.loads.quarantine.bury({"p0"})
    else:
        assert rig.hear(wire.Stopped("r", lost=how == "stopped"), broken=how == "broken") == "stopped"
    # A pause of who polls lets nothing land.
    for seconds in (100, LONGEST_STEP / 2):
        rig.tick(seconds)
        assert kept(rig)
    rig.tick(100)
    assert kept(rig)
    rig.tick(100)
    assert not kept(rig)


def test_a_writer_that_is_met_again_was_not_gone() -> None:
    rig = Rig(push=True, linger_s=1.0)
    given_up(rig)
    rig.core.loads.quarantine.gone(rig.engine.peers)
    before, rig.engine = rig.engine, engine(rig.plan, push=True)
    rig.tell(rig.core.drop, before, "replaced")
    rig.tell(rig.core.meet, rig.engine, follow=True)
    quiet(rig)
    for _ in range(100):
        rig.tick(1)
    assert kept(rig)
    assert quiet(rig)[:2] == [Leave("r", alone=True), Leave("r")]
    assert rig.hear(wire.Stopped("r", lost=False)) == "stopped"
    rig.tick()
    assert not kept(rig)


def test_the_death_of_one_worker_ends_nothing_of_another() -> None:
    rig = Rig(push=True, workers=2)
    given_up(rig)
    rig.core.loads.quarantine.bury({"p1"})
    rig.tick()
    rig.tick(1)
    assert kept(rig)
    assert rig.core.loads.quarantine.busy() == {"p0"}


def test_what_could_not_be_said_is_said_again() -> None:
    rig = Rig(push=True)
    load = given_up(rig)
    rig.tick()
    quiet(rig)
    full = errors.PeerLostError("its line is full")
    rig.tell(rig.core.unsent, load.parts[0].peer, Leave("r"), full)
    rig.tick()
    assert quiet(rig) == [Leave("r", alone=True)]
    rig.tick()
    assert quiet(rig) == []


def test_a_worker_that_has_another_memory_now_is_not_followed() -> None:
    rig = Rig(push=True)
    load = given_up(rig)
    quiet(rig)
    rig.tick()
    quiet(rig)
    other = engine(rig.plan, push=True)
    (peer,) = other.peers
    object.__setattr__(peer, "name", "p0 anew")
    rig.tell(rig.core.meet, other, follow=True)
    rig.tick()
    assert quiet(rig) == []
    assert load.parts[0].peer is rig.engine.peers[0]
    assert rig.core.loads.quarantine.busy() == {"p0"}


def test_reads_under_way_keep_their_blocks_and_their_peer() -> None:
    rig = Rig()
    load = rig.begin(ask())
    (part,) = load.parts
    rig.claimed(part, HOLD)
    rig.fail(load, errors.CancelledTransferError("cancelled"))
    assert [one.key for one in rig.of(Stop)] == [part]
    rig.tick(50)
    assert (kept(rig), rig.core.loads.quarantine.busy()) == ([3, 4, 5], {"p0"})
    rig.tell(rig.core.settled, part)
    rig.tick()
    assert (kept(rig), rig.core.loads.quarantine.busy()) == ([], set())
