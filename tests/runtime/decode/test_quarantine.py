"""Blocks that may still be written are handed to nobody, until those who write them are known to have stopped."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvplan.plan.types import Group, Side
from kvplan.runtime.clock import LONGEST_ROUND
from kvplan.runtime.control.messages import Leave
from kvplan.runtime.decode.phases import Phase
from kvplan.runtime.decode.quarantine import ASK, PROBE, BlockLedger, Quarantine
from kvplan.runtime.decode.transfer import PeerProgress
from kvplan.runtime.decode.unpacks import PageUnpacks
from kvplan.runtime.errors import PeerLostError, QuarantinedError, TransportError

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


class Control:
    """A line to a prefill worker that takes what it is told, unless it is full."""

    def __init__(self, lost: bool) -> None:
        self.behind = False
        self.full, self.told, self.error = False, list[object](), PeerLostError("gone") if lost else None

    def send(self, message: object) -> bool:
        if not self.full:
            self.told.append(message)
        return not self.full

    def broken(self) -> PeerLostError | None:
        return self.error


def connection(worker: int, lost: bool = False) -> Any:
    """A connection to a prefill worker, whose line may be lost."""
    return SimpleNamespace(worker=worker, peer=f"p{worker}", control=Control(lost))


@dataclass(eq=False)
class LeftTransfer:
    """As much of a transfer as quarantine looks at; like one, it is itself alone."""

    request: SimpleNamespace
    parts: tuple[PeerProgress, ...]
    written: dict[str, Any]


def left(name: str, block: int, *connections: Any) -> Any:
    """A transfer that has failed while these prefill workers were writing it."""
    nothing = PageUnpacks(None, "")
    parts = tuple(PeerProgress(one, lambda: 0, nothing, Phase.LEAVING, writes=True) for one in connections)
    written = {"a": np.array([block])}
    return LeftTransfer(SimpleNamespace(id=name), parts, written)


def quarantine(*transfers: Any, lost: set[str] | None = None, lingers: float = 0.0) -> Quarantine:
    transport: Any = SimpleNamespace(lost=lambda peer: peer in (lost or set()), lingers=lingers)
    made = Quarantine(BlockLedger(SIDE, {"a": 8, "b": 8, "c": 8}), transport)
    for transfer in transfers:
        made.add(transfer)
    return made


def test_stopped_is_the_word_of_one_worker_about_one_request() -> None:
    one, other = connection(0), connection(1)
    made = quarantine(left("r", 1, one, other), left("s", 2, one))
    assert not made.stopped("r", connection(0), lost=False)
    assert made.stopped("r", one, lost=False)
    assert not made.stopped("r", one, lost=False)
    made.sweep(0)
    assert made.ledger.quarantined() == {0: (1, 2)}
    assert made.writes("r")
    assert made.stopped("r", other, lost=False)
    assert not made.writes("r")
    made.sweep(0)
    assert made.ledger.quarantined() == {0: (2,)}
    assert made.busy() == {"p0"}


def test_a_writer_is_gone_that_the_transport_has_lost_and_that_cannot_be_spoken_to() -> None:
    one, other, lost = connection(0, lost=True), connection(1), set[str]()
    made = quarantine(left("r", 1, one), left("s", 2, other), lost=lost)
    made.sweep(0)
    assert made.ledger.quarantined() == {0: (1, 2)}
    lost |= {"p0", "p1"}
    made.sweep(PROBE)
    made.sweep(PROBE)
    assert made.ledger.quarantined() == {0: (2,)}
    assert (one.control.told, other.control.told) == ([Leave("r")], [Leave("s")])
    made.sweep(PROBE + ASK)
    assert other.control.told == [Leave("s")] * 2, "asked again"
    other.control.behind = True
    made.sweep(PROBE + 2 * ASK)
    assert other.control.told == [Leave("s")] * 2, "it does not listen"


@pytest.mark.parametrize("how", ["gone", "buried", "stopped"])
def test_what_was_sent_by_a_connection_that_broke_lingers_for_as_long_as_rounds_have_seen(how: str) -> None:
    one = connection(0, lost=True)
    made = quarantine(left("r", 1, one), lost={"p0"} if how == "gone" else None, lingers=3 * LONGEST_ROUND)
    if how == "buried":
        made.bury({"p0"})
    if how == "stopped":
        assert made.stopped("r", one, lost=True)
    made.sweep(0)
    # A pause of who polls lets nothing land.
    for now in (100, 100 + LONGEST_ROUND / 2, 101):
        assert made.writes("r")
        made.sweep(now)
    assert made.ledger.quarantined() == ({} if how != "gone" else {0: (1,)})
    made.sweep(102)
    assert made.ledger.quarantined() == {}


def test_who_is_met_anew_was_not_gone() -> None:
    before, after = connection(0, lost=True), connection(0)
    made = quarantine(left("r", 1, before), lost={"p0"}, lingers=1.0)
    made.sweep(0)
    made.follow({0: after})
    for now in range(100):
        made.sweep(now)
    assert made.ledger.quarantined() == {0: (1,)}
    assert after.control.told[:2] == [Leave("r", alone=True), Leave("r")]
    assert made.stopped("r", after, lost=False)


def test_the_death_of_one_worker_ends_nothing_of_another() -> None:
    made = quarantine(left("r", 1, connection(0)), left("s", 2, connection(1)))
    made.bury({"p1"})
    made.sweep(0)
    assert made.ledger.quarantined() == {0: (1,)}


def test_a_transport_that_cannot_tell_has_lost_nobody() -> None:
    def lost(_: str) -> bool:
        raise TransportError("closed")

    transport: Any = SimpleNamespace(lost=lost, lingers=0.0)
    made = Quarantine(BlockLedger(SIDE, {"a": 8, "b": 8, "c": 8}), transport)
    made.add(left("r", 1, connection(0, lost=True)))
    for now in (0, 1, 2):
        made.sweep(now)
    assert made.ledger.quarantined() == {0: (1,)}


def test_a_writer_that_is_met_anew_is_told_once_more() -> None:
    before, after = connection(0), connection(0)
    made = quarantine(left("r", 1, before))
    after.control.full = True
    made.follow({0: after})
    made.sweep(0)
    assert after.control.told == []
    after.control.full = False
    made.sweep(0)
    made.sweep(0)
    assert after.control.told == [Leave("r", alone=True)]
    assert not made.stopped("r", before, lost=False)
    assert made.stopped("r", after, lost=False)


def test_who_has_another_memory_now_is_not_followed() -> None:
    before, after = connection(0), connection(0)
    after.peer = "p0 anew"
    made = quarantine(left("r", 1, before))
    made.follow({0: after})
    made.sweep(0)
    assert after.control.told == []
    assert made.busy() == {"p0"}


def test_reads_under_way_keep_their_blocks_and_their_peer() -> None:
    closed, over = list[object](), list[bool]()
    slice_: Any = SimpleNamespace(link=SimpleNamespace(peer="p0"), settled=lambda: bool(over))
    slice_.executor = SimpleNamespace(close=closed.append)
    transfer = left("r", 1, connection(0), connection(1))
    for part in transfer.parts:
        part.writes = False
    transfer.parts[0].slices = [slice_]
    made = quarantine(transfer)
    made.sweep(0)
    assert (made.ledger.quarantined(), made.busy(), closed) == ({0: (1,)}, {"p0"}, [])
    over.append(True)
    made.sweep(0)
    assert (made.ledger.quarantined(), made.busy(), closed) == ({}, set(), [slice_])
