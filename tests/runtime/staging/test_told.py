"""A prefill worker is told when all was read, and the last copies are made meanwhile; no request ends before that."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.runtime.helpers.made import instances
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, clear, filled, move
from tests.runtime.helpers.staging import SMALL, TOKENS, Gate, begun, run, staging, unused
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World

from kvplan.runtime import Sample, Transfer
from kvplan.runtime.errors import TransferError
from kvplan.runtime.protocol.phases import Phase
from kvplan.runtime.staging.buffers import SHARE, Stage
from kvplan.runtime.staging.views import HostCopies
from kvplan.runtime.transfer.executor import TransferExecutor
from kvplan.runtime.transfer.prepared import PreparedLink


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """The stages of all workers; the decode worker is made last."""
    return instances(monkeypatch, Stage)


@pytest.fixture(params=["pull", "lent"])
def made(request: pytest.FixtureRequest, stages: list[Stage]) -> World:
    """Two prefill workers and a decode worker with room for a whole request in what one of them may have of it."""
    return staging(request.param, Shape(2), Shape(1), size=16 * SMALL[request.param], lease=600)


def confirmed(transfer: Transfer) -> bool:
    return transfer.phase is Phase.CONFIRMED


def test_it_is_done_when_its_bytes_are_in_place(made: World, gate: Gate) -> None:
    transfer = begun(made)
    run(made, lambda: confirmed(transfer))
    for _ in range(10):
        made.decode[0].run_once()
    assert (transfer.ended, transfer.progress < 1, made.decode[0].settled(transfer)) == (False, True, False)
    # Prefill's blocks are free: nothing of it is read any more.
    run(made, lambda: made.released() == {("r", "finished")})
    clear_prefill(made)
    gate.go.set()
    run(made, lambda: transfer.ended)
    assert transfer.error is None
    check(made, 0, ask(made, (0, TOKENS)))


def test_sums_are_made_of_what_is_in_place(made: World, gate: Gate) -> None:
    asked = ask(made, (0, TOKENS))
    filled(made, asked)
    made.hold("r")
    transfer = made.decode[0].submit(asked, 20, checksum=Sample())
    run(made, lambda: gate.waiting > 0 and transfer.phase is Phase.ARRIVED)
    for _ in range(10):
        made.decode[0].run_once()
    assert transfer.phase is Phase.ARRIVED
    gate.go.set()
    run(made, lambda: transfer.ended)
    assert transfer.error is None


def test_a_copy_that_fails_after_that_fails_the_request(
    made: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        gate.go.wait(20)
        raise IndexError("no such block")

    with monkeypatch.context() as patch:
        patch.setattr(HostCopies, "make", broken)
        transfer = begun(made)
        run(made, lambda: confirmed(transfer))
        gate.go.set()
        run(made, lambda: transfer.ended)
    assert isinstance(transfer.error, TransferError)
    assert "no such block" in str(transfer.error)
    assert transfer.untrusted
    run(made, lambda: unused(made) and made.decode[0].settled(transfer))
    assert made.released() == {("r", "finished")}
    clear(made)
    move(made, ask(made, (0, TOKENS), name="again"))


@pytest.mark.parametrize("how", ["drained and closed", "dropped"])
def test_what_was_confirmed_is_done_whatever_becomes_of_the_engine(made: World, gate: Gate, how: str) -> None:
    transfer = begun(made)
    run(made, lambda: confirmed(transfer))
    if how == "dropped":
        made.decode[0].drop("prefill")
    else:
        for worker in made.prefill:
            worker.drain(60)
        run(made, lambda: made.released() == {("r", "finished")} and all(one.drained() for one in made.prefill))
        for worker in made.prefill:
            worker.close()
        run(made, lambda: not made.decode[0].peers())
    assert not transfer.ended
    gate.go.set()
    run(made, lambda: transfer.ended)
    assert transfer.error is None
    check(made, 0, ask(made, (0, TOKENS)))


def test_closing_ends_what_was_confirmed_and_is_still_copied(made: World, gate: Gate) -> None:
    transfer = begun(made)
    run(made, lambda: confirmed(transfer))
    closing = threading.Thread(target=made.decode[0].close)
    closing.start()
    until(lambda: transfer.ended)
    gate.go.set()
    closing.join(20)
    assert not closing.is_alive()
    assert isinstance(transfer.error, TransferError)
    assert "was closed" in str(transfer.error)


@pytest.mark.usefixtures("made")
def test_who_waits_naps_shortly_while_a_buffer_is_free_for_a_slice(stages: list[Stage]) -> None:
    stage = stages[-1].of(("DRAM", 0))
    assert not stage.wanted
    lent = [stage.borrow(number, "peer") for number in range(SHARE)]
    assert stage.borrow("waits", "peer") == 0
    assert not stage.wanted
    stage.give_back(lent[0], kept=False)
    assert stage.wanted
    stage.withdraw("waits")
    for buffer in lent[1:]:
        stage.give_back(buffer, kept=False)


@pytest.mark.parametrize("made", ["pull"], indirect=True)
def test_what_was_foreseen_goes_straight_where_the_stage_is_stuck_by_then(
    made: World, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim may be answered long after it was said."""
    foreseen, foresee = list[bool](), TransferExecutor.foresee

    def noted(executor: TransferExecutor, link: PreparedLink, runs: Any) -> None:
        foreseen.append(all(link.ways))
        foresee(executor, link, runs)

    monkeypatch.setattr(TransferExecutor, "foresee", noted)
    asked = ask(made, (0, TOKENS))
    filled(made, asked)
    transfer = made.decode[0].submit(asked, 20)
    run(made, lambda: bool(foreseen) and all(part.not_held for part in transfer.parts))
    assert foreseen == [True] * len(transfer.parts)
    stage = stages[-1].of(("DRAM", 0))
    kept = [stage.borrow(number, f"peer {number % 2}") for number in range(8)]
    for buffer in kept:
        assert buffer is not None
        stage.keep(buffer)
    made.hold("r")
    run(made, lambda: transfer.ended)
    assert transfer.error is None
    check(made, 0, asked)
    assert made.decode[0].counters.snapshot()["staged_bytes"] == {"read": 0, "write": 0, "other": 0}
    for buffer in kept:
        assert buffer is not None
        stage.give_back(buffer, kept=True)


def clear_prefill(made: World) -> None:
    """Clear prefill's memory, because prefill may do anything with free blocks."""
    for memory in made.prefill_memory:
        for array in memory.values():
            array[:] = 0
