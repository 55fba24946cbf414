"""Requests that prefill writes by way of decode's stage: at every step of failure buffers come back, and not before."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.helpers.foreign import FOREIGN, replaced, with_part, with_runs
from tests.runtime.helpers.plans import Model, Shape, with_ranges
from tests.runtime.helpers.requests import ask, check, filled, move
from tests.runtime.helpers.staging import (
    SMALL,
    TOKENS,
    begun,
    crowded,
    kept,
    lent,
    peer_stages,
    run,
    untouched,
    unused,
    whole,
)
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Counters, DecodeWorker, PrefillWorker, Slot
from kvplan.runtime.control.messages import Done
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.errors import LeaseError, RegisterError, TransferError
from kvplan.runtime.plans.catalog import FixedPlans
from kvplan.runtime.protocol.load_table import LoadTable
from kvplan.runtime.staging import buffers
from kvplan.runtime.staging.buffers import BUFFERS
from kvplan.runtime.staging.lending import LentPieces
from kvplan.runtime.staging.lent import LentMove, PeerStage


@pytest.fixture
def made(counters: Counters) -> World:
    return crowded("lent", counters)


def frozen(made: World) -> Transfer:
    """A request of whose writes none ends."""
    made.hub.frozen.update(worker.inspect().transport for worker in made.decode)
    transfer = begun(made, "frozen")
    run(made, lambda: posted(made) == BUFFERS)
    return transfer


def posted(made: World) -> int:
    """How many pieces are being written."""
    return sum(of.stage == "posted" for worker in made.prefill for of in worker.inspect().slices)


def test_a_worker_without_memory_for_a_stage_cannot_be_written_to_by_a_plan_that_needs_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = world(Shape(2), Shape(1), Model(), mode="push", d_stage_bytes=SMALL["lent"])
    before, plans = found.decode[0].peers(), FixedPlans((with_ranges(found.plan, "unpack"),))
    workers: list[PrefillWorker | DecodeWorker] = [*found.prefill, *found.decode]
    for worker in workers:
        worker.plans = plans

    def full(*_: object) -> None:
        raise MemoryError("Unable to allocate 1.00 KiB")

    with monkeypatch.context() as patch:
        patch.setattr(buffers, "HostCopies", full)
        with pytest.raises(RegisterError, match="smaller stage_bytes"):
            found.decode[0].connect(found.prefill[0].address, 5, mode="push")
    assert found.decode[0].peers() == before
    move(found, ask(found, (0, TOKENS)))
    found.decode[0].connect(found.prefill[0].address, 5, mode="push")
    assert found.decode[0].inspect().stage.open
    move(found, ask(found, (0, TOKENS), name="staged"))


def test_a_buffer_is_lent_to_nobody_before_its_writer_has_stopped(made: World) -> None:
    transfer = frozen(made)
    transfer.cancel()
    for _ in range(50):
        time.sleep(1e-4)
        made.decode[0].run_once()
    assert kept(made) == lent(made) == [BUFFERS]
    assert not made.decode[0].settled(transfer)
    assert not made.decode[0].half.moving(), "nobody polls without a pause because a peer is frozen"
    made.hub.frozen.clear()
    run(made, lambda: made.decode[0].settled(transfer) and unused(made))
    assert untouched(made)
    whole(made)


def test_what_comes_while_all_that_a_writer_may_have_is_kept_goes_straight(made: World, counters: Counters) -> None:
    transfer = frozen(made)
    transfer.cancel()
    run(made, lambda: kept(made) == [BUFFERS])
    staged = counters.snapshot()["staged_bytes"]
    asked = replace(ask(made, (0, 12), "edges", name="next"))
    asked = replace(asked, decode={**asked.decode, "state": Slot(9, 12)})
    filled(made, asked)
    made.hold("next")
    straight = made.decode[0].submit(asked, 20)
    run(made, lambda: not any(peer.lends for peer in peer_stages(made)[-2:]))
    made.hub.frozen.clear()
    run(made, lambda: straight.ended and unused(made))
    assert straight.error is None
    check(made, 0, asked)
    assert counters.snapshot()["staged_bytes"] == staged
    whole(made)
    assert all(peer.lends for peer in peer_stages(made))


def test_buffers_of_a_writer_that_is_gone_come_back(made: World) -> None:
    transfer = frozen(made)
    transfer.cancel()
    for worker in made.prefill:
        worker.close()
    run(made, lambda: made.decode[0].settled(transfer))
    assert lent(made) == [0]


def test_what_is_given_back_unwritten_is_not_taken_for_written(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that says that all is written, and has given pieces back."""
    give_back = PeerStage.give_back
    with monkeypatch.context() as patch:
        patch.setattr(
            PeerStage, "give_back", lambda stage, *piece, moved, kept: give_back(stage, *piece, moved=False, kept=kept)
        )
        transfer = begun(made)
        run(made, lambda: transfer.ended)
    assert isinstance(transfer.error, TransferError)
    assert "pieces that it asked buffers for are not" in str(transfer.error)
    run(made, lambda: unused(made) and made.decode[0].settled(transfer))
    assert untouched(made)


FROM_A_WRITER = {
    **{name: FOREIGN[name] for name in FOREIGN.keys() - {"an unknown request", "a block above"}},
    "a block above": (lambda asked: with_runs(asked, 2, 1 << 40), "a block is asked for that there is not"),
    "another's block": (lambda asked: with_runs(asked, 2, 39), "blocks that are not to be written for it"),
    "a piece once more": (lambda asked: replaced(asked, number=0), "piece 0 was asked for before"),
}


@pytest.mark.parametrize("foreign", sorted(FROM_A_WRITER))
def test_what_cannot_be_unpacked_is_refused(made: World, foreign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, text = FROM_A_WRITER[foreign]
    question = LentMove.question
    with monkeypatch.context() as patch:
        patch.setattr(LentMove, "question", lambda move, number: change(question(move, number)))
        transfer = begun(made)
        run(made, lambda: transfer.ended)
    assert transfer.error is not None
    assert text in str(transfer.error)
    run(made, lambda: unused(made) and made.decode[0].settled(transfer))
    whole(made)


def test_a_question_above_what_a_message_holds_fails_its_request_alone(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = LentMove.question
    with monkeypatch.context() as patch:
        patch.setattr(
            LentMove, "question", lambda move, number: with_part(question(move, number), runs=(bytes(4 << 20),) * 5)
        )
        transfer = begun(made)
        run(made, lambda: transfer.ended)
    assert "a message of" in str(transfer.error)
    run(made, lambda: unused(made) and made.decode[0].settled(transfer))
    whole(made)


def test_a_writer_has_a_bounded_number_of_pieces(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.staging.requested_images.MOST_ASKED", 1)
    transfer = begun(made)
    run(made, lambda: transfer.ended)
    assert "2 pieces are asked for: give some back" in str(transfer.error)
    run(made, lambda: made.decode[0].settled(transfer) and unused(made))


def test_a_buffer_that_is_lent_to_another_request_is_not_taken() -> None:
    """A requester numbers its own pieces, and the next one begins again."""
    said = list[Any]()
    stage = PeerStage(said.append, said.append, 1 << 20)
    piece: Any = SimpleNamespace(parts=())
    move = LentMove(stage, piece, "r", None)
    assert not move.ready()
    assert not stage.lent("s", 0, 4096)
    assert not move.ready()
    assert stage.lent("r", 0, 4096)
    assert (move.ready(), move.address) == (True, 4096)


def test_a_reader_that_lends_nothing_and_says_that_it_is_done_keeps_no_blocks(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader without a promise is not written to, though it lives and claims other requests."""
    asking = set[LentPieces]()
    monkeypatch.setattr(LentPieces, "advance", lambda pieces, number, piece: asking.add(pieces))
    monkeypatch.setattr(LoadTable, "claims", lambda *_: ((), frozenset()))
    transfer = begun(made, "quiet")
    run(made, lambda: len(asking) == len(transfer.parts))
    # Each worker believes what is said of its own hold.
    for part, pieces in itertools.product(transfer.parts, asking):
        pieces.say(Done("quiet", part.hold or 0, transfer.attempt))
    assert made.released() == {("quiet", "finished")}
    run(made, lambda: transfer.ended)
    assert isinstance(transfer.error, LeaseError)
    run(made, lambda: made.decode[0].settled(transfer) and unused(made))
    assert untouched(made)
