"""Requests that prefill packs and decode reads: at every step of failure buffers come back, and not before."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.foreign import FOREIGN, replaced
from tests.runtime.helpers.made import instances
from tests.runtime.helpers.plans import Model, Shape, with_ranges
from tests.runtime.helpers.requests import ask, check, filled, move
from tests.runtime.helpers.staging import (
    SMALL,
    TOKENS,
    Gate,
    begun,
    crowded,
    exhausted,
    kept,
    lent,
    peer_stages,
    poll,
    run,
    staging,
    stopped,
    untouched,
    unused,
    whole,
)
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Blocks, Counters, DecodeWorker, PrefillWorker, Slot
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.lines import PrefillLine
from kvplan.runtime.control.messages import AskBuffer, ReturnBuffer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.errors import LeaseError, RegisterError, TransferError
from kvplan.runtime.plans.catalog import FixedPlans
from kvplan.runtime.prefill.lease_clock import LeaseClock
from kvplan.runtime.staging import buffers
from kvplan.runtime.staging.buffers import BUFFERS, SHARE, THREADS
from kvplan.runtime.staging.lent import MOST_ASKED, LentMove

ROOM = SMALL["packed"]


@pytest.fixture
def made(counters: Counters) -> World:
    return crowded("packed", counters)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[PrefillLine, Any]]:
    """The messages of decode workers from now on, with their addressees."""
    found, send = list[tuple[PrefillLine, Any]](), PrefillLine.send

    def noted(line: PrefillLine, message: Any) -> bool:
        found.append((line, message))
        return send(line, message)

    monkeypatch.setattr(PrefillLine, "send", noted)
    return found


def staged_bytes(worker: DecodeWorker) -> Any:
    return worker.counters.snapshot()["staged_bytes"]


def frozen(made: World) -> Transfer:
    """A request of whose reads none ends."""
    made.hub.frozen.update(worker.inspect().transport for worker in made.prefill)
    asked = begun(made, "frozen")
    run(
        made,
        lambda: all(peer.ready == SHARE for peer in peer_stages(made)),
    )
    return asked


def test_a_stage_that_is_registered_for_one_reader_leaves_the_others_connected() -> None:
    found = staging("packed", Shape(2), Shape(1), size=ROOM)
    before = found.decode[0].peers()
    found.decode[0].connect(found.prefill[0].address, 10)
    assert found.decode[0].peers() == before
    assert {engine.status for engine in found.decode[0].inspect().engines} == {"connected"}


def test_a_worker_without_memory_to_pack_into_refuses_who_needs_that_and_serves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = world(Shape(2), Shape(1), Model(), stage_bytes=ROOM)
    before, packing = found.decode[0].peers(), FixedPlans((with_ranges(found.plan, "pack"),))
    workers: list[PrefillWorker | DecodeWorker] = [*found.prefill, *found.decode]
    for worker in workers:
        worker.plans = packing

    def full(*_: object) -> None:
        raise MemoryError("Unable to allocate 1.00 KiB")

    with monkeypatch.context() as patch:
        patch.setattr(buffers, "HostCopies", full)
        with pytest.raises(RegisterError, match="smaller stage_bytes"):
            found.decode[0].connect(found.prefill[0].address, 5)
    assert len(found.prefill[0].inspect().readers) == 1
    assert found.decode[0].peers() == before
    move(found, ask(found, (0, TOKENS)))


def test_a_request_that_is_given_up_while_it_is_packed_is_written_nowhere(made: World, gate: Gate) -> None:
    transfer = begun(made)
    run(made, lambda: stopped(made, gate))
    transfer.cancel()
    # Nothing is read: its blocks are free at once, the buffer that is copied into is not.
    run(made, lambda: made.decode[0].settled(transfer))
    run(made, lambda: lent(made) == [THREADS, THREADS])
    gate.go.set()
    run(made, lambda: unused(made))
    assert untouched(made)
    whole(made)


def test_who_asks_while_what_was_given_up_is_on_its_way_back_is_packed_for(counters: Counters) -> None:
    """One round hears the second request's demands, and after them the buffers that the first one gives back."""
    found = staging("packed", Shape(1), Shape(1), size=SMALL["packed"], lease=600)
    first = ask(found, (0, TOKENS), name="first")
    filled(found, first)
    kv = first.decode["kv"]
    assert isinstance(kv, Blocks)
    others = np.setdiff1d(np.arange(40), kv.ids)[: len(kv.ids)]
    tables = {**first.decode, "kv": Blocks(kv.first, others), "state": Slot(9, TOKENS)}
    second = replace(first, id="second", decode=tables)
    found.hold("first", "second")
    worker = found.decode[0]
    found.hub.frozen.update(one.inspect().transport for one in found.prefill)
    given_up = worker.submit(first, 20)
    run(found, lambda: [peer.asked for peer in peer_stages(found)] == [MOST_ASKED] and lent(found) == [SHARE])
    moved = worker.submit(second, 20)
    run(found, lambda: "second" in {of.request for of in worker.inspect().slices})
    given_up.cancel()
    until(lambda: kept(found) == [SHARE])
    found.hub.frozen.clear()
    run(found, lambda: moved.ended)
    assert moved.error is None


def test_a_buffer_that_is_read_is_not_lent_again_before_the_read_has_ended(made: World) -> None:
    transfer = frozen(made)
    transfer.cancel()
    run(made, lambda: all(peer.kept == SHARE for peer in peer_stages(made)))
    for _ in range(50):
        time.sleep(1e-4)
        made.decode[0].run_once()
    assert lent(made) == [SHARE, SHARE]
    assert kept(made) == [SHARE, SHARE]
    assert not made.decode[0].settled(transfer)
    made.hub.frozen.clear()
    run(made, lambda: made.decode[0].settled(transfer) and unused(made))
    whole(made)


def test_a_reader_that_is_dropped_is_never_told_that_it_is_right(made: World) -> None:
    transfer = frozen(made)
    for worker in made.prefill:
        worker.drop("decode")
    assert lent(made) == [0, 0]
    made.hub.frozen.clear()
    run(made, lambda: transfer.ended)
    assert isinstance(transfer.error, TransferError)
    assert "does not know this worker" in str(transfer.error)


def test_a_reader_that_goes_gives_its_buffers_back(made: World) -> None:
    frozen(made)
    made.decode[0].close()
    until(lambda: lent(made) == [0, 0])
    assert all(worker.inspect().packs == 0 for worker in made.prefill)


def test_a_reader_that_goes_while_it_is_packed_for_gives_its_buffer_back_after_that(made: World, gate: Gate) -> None:
    begun(made)
    run(made, lambda: stopped(made, gate))
    for worker in made.prefill:
        worker.drop("decode")
    assert lent(made) == [THREADS, THREADS]
    gate.go.set()
    until(lambda: lent(made) == [0, 0])


def test_a_frozen_reader_leaves_half_of_the_buffers_to_others() -> None:
    found = staging("packed", Shape(1), Shape(2), size=ROOM, lease=600)
    asked = ask(found, (0, TOKENS))
    filled(found, asked)
    found.hold("r")
    slow_worker, quick_worker = found.decode
    slow, quick = slow_worker.submit(asked, 20), quick_worker.submit(asked, 20)

    def step() -> None:
        # The first one asks, and stops being polled as soon as it has been lent anything.
        if not found.prefill[0].inspect().stage.lent:
            slow_worker.run_once()
        quick_worker.run_once()

    until(lambda: quick.ended, step)
    assert quick.error is None
    check(found, 1, asked)
    assert not slow.ended
    run(found, lambda: slow.ended and unused(found))
    check(found, 0, asked)


def test_buffers_of_readers_that_died_without_a_word_go_to_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.protocol.reader_table.READER_PROBE_SECONDS", 0.01)
    lines = instances(monkeypatch, ControlClient)
    found = staging("packed", Shape(1), Shape(4), size=ROOM, lease=600)
    asked = ask(found, (0, TOKENS))
    filled(found, asked)
    found.hold("r")
    found.hub.frozen.add(found.prefill[0].inspect().transport)
    for worker in found.decode[:2]:
        worker.submit(asked, 600)
    poll(found.decode[:2], lambda: lent(found) == [BUFFERS])
    for line in [line for line in lines if line.polled][:2]:
        line.close()
    found.hub.frozen.clear()
    late = found.decode[2].submit(asked, 15)
    poll([found.decode[2]], lambda: late.ended)
    assert late.error is None
    check(found, 2, asked)


def test_while_others_keep_all_buffers_what_is_asked_for_goes_straight() -> None:
    found = staging("packed", Shape(1), Shape(4), size=ROOM, lease=600)
    asked = ask(found, (0, TOKENS))
    filled(found, asked)
    found.hold("r")
    found.hub.frozen.add(found.prefill[0].inspect().transport)
    slow = [worker.submit(asked, 600) for worker in found.decode[:2]]
    poll(found.decode[:2], lambda: [peer.ready for peer in peer_stages(found)[:2]] == [SHARE] * 2)
    for transfer in slow:
        transfer.cancel()
    poll(found.decode[:2], lambda: kept(found) == [BUFFERS])
    straight = found.decode[2].submit(asked, 15)
    poll([found.decode[2]], lambda: found.decode[2].inspect().slices)
    found.hub.frozen.clear()
    poll([found.decode[2]], lambda: straight.ended)
    assert straight.error is None
    check(found, 2, asked)
    run(found, lambda: unused(found))
    packed_again = found.decode[3].submit(asked, 15)
    poll([found.decode[3]], lambda: packed_again.ended)
    assert packed_again.error is None
    assert [bool(staged_bytes(worker)["read"]) for worker in found.decode[2:]] == [False, True]


def test_a_lease_that_ran_out_makes_a_request_fail_whatever_was_read(
    made: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks may have been used again while they were packed."""
    later = 0.0
    monkeypatch.setattr(LeaseClock, "advance", lambda clock: clock() + later)
    transfer = begun(made)
    run(made, lambda: stopped(made, gate))
    later = 1200.0
    until(lambda: not any(worker.inspect().holds for worker in made.prefill))
    gate.go.set()
    run(made, lambda: transfer.ended)
    assert isinstance(transfer.error, LeaseError)
    run(made, lambda: unused(made))


@pytest.mark.parametrize("foreign", FOREIGN)
def test_what_cannot_be_packed_is_refused_and_nobody_else_is_harmed(
    made: World, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, text = FOREIGN[foreign]
    question = LentMove.question
    with monkeypatch.context() as patch:
        patch.setattr(LentMove, "question", lambda move, number: change(question(move, number)))
        transfer = begun(made)
        if foreign == "an unknown request":
            for _ in range(200):
                time.sleep(1e-4)
                made.decode[0].run_once()
            transfer.cancel()
        run(made, lambda: transfer.ended)
    assert transfer.error is not None
    assert foreign == "an unknown request" or any(word in str(transfer.error) for word in text.split("|"))
    run(made, lambda: unused(made) and made.decode[0].settled(transfer))
    whole(made)


def test_a_reader_asks_for_a_bounded_number_of_pieces(
    made: World, gate: Gate, said: list[tuple[PrefillLine, Any]]
) -> None:
    begun(made)
    run(made, lambda: exhausted(made))
    line, asked = next((line, message) for line, message in said if isinstance(message, AskBuffer))
    for number in range(1000, 1000 + 3 * MOST_ASKED):
        line.send(replaced(asked, number=number))
    run(made, lambda: not made.decode[0].running())
    assert made.prefill[0].inspect().packs <= 2 * MOST_ASKED
    gate.go.set()


def test_what_is_given_back_twice_is_counted(made: World, said: list[tuple[PrefillLine, Any]]) -> None:
    begun(made)
    run(made, lambda: said)
    said[0][0].send(ReturnBuffer("r", 700, True))
    snapshot: Any = made.prefill[0].counters.snapshot
    run(made, lambda: snapshot()["messages"]["duplicate"] == 1)
