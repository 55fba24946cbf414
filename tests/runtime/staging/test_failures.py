"""Staged requests that fail at each step: nothing is copied into pages that were given up, and buffers come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.requests import ask, check, clear, filled, move
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Counters, Limits, Slot
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.errors import DeadlineError, TransferError
from kvplan.runtime.staging.buffers import BUFFERS, SHARE, Stage
from kvplan.runtime.staging.views import HostCopies
from kvplan.runtime.transfer import staged

MODES = ("pull", "push")
# Room for one block of both layers, or a state, in a buffer.
SMALL = BUFFERS * 64
TOKENS = 40


class Gate:
    """Copies wait here, on their thread, until they are let through."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        for name in ("unpack", "pack"):
            self._guard(patch, name, getattr(HostCopies, name))
        patch.setattr(staged, "AT_ONCE", 0)

    def _guard(self, patch: pytest.MonkeyPatch, name: str, copy: Callable[..., None]) -> None:
        def waiting(*arguments: Any) -> None:
            self.reached.set()
            assert self.go.wait(20)
            copy(*arguments)

        patch.setattr(HostCopies, name, waiting)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.go.set()


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture(params=MODES)
def made(request: pytest.FixtureRequest, counters: Counters) -> Iterator[World]:
    """Two prefill workers of a head each, and a decode worker of both, which is polled by hand."""
    limits = Limits(slice_bytes=512)
    found = world(
        Shape(2), Shape(1), Model(), staged=True, mode=request.param, limits=limits, counters=counters,
        d_limits=limits, d_counters=counters, stage_bytes=SMALL, d_stage_bytes=SMALL, lease=600,
    )  # fmt: skip
    yield found
    found.close()


def run(made: World, until: Callable[[], bool]) -> None:
    """Poll the decode worker; the others poll by themselves."""
    end = time.monotonic() + 20
    while not until():
        time.sleep(1e-4)
        made.decode[0].poll()
        assert time.monotonic() < end, "it does not come to that"


def begun(made: World, name: str = "r") -> Transfer:
    """A request of which prefill holds everything."""
    asked = ask(made, (0, TOKENS), name=name)
    filled(made, asked)
    made.hold(name)
    return made.decode[0].submit(asked, 20)


def stages(made: World) -> list[Stage]:
    """Those of the workers that move the bytes."""
    workers = made.decode if made.mode == "pull" else made.prefill
    return [worker._stage for worker in workers]


def exhausted(made: World) -> bool:
    """Whether every worker that moves bytes has lent all that one peer may have."""
    return all(stage._maker is not None and len(stage._free) <= BUFFERS - SHARE for stage in stages(made))


def unused(made: World) -> bool:
    return all(len(stage._free) == BUFFERS and not stage._queue and not stage._kept.total() for stage in stages(made))


def whole(made: World) -> None:
    """A request moves, all of it by way of the stage but for blocks that are not full."""
    clear(made)
    again = begun(made, "again")
    run(made, lambda: again.ended)
    assert again.error is None
    check(made, 0, ask(made, (0, TOKENS), name="again"))
    run(made, lambda: unused(made))


def test_more_slices_than_buffers_wait_for_their_turn(made: World, gate: Gate, counters: Counters) -> None:
    transfer = begun(made)
    run(made, lambda: exhausted(made))
    gate.go.set()
    run(made, lambda: transfer.ended)
    assert transfer.error is None
    check(made, 0, ask(made, (0, TOKENS)))
    word = "read" if made.mode == "pull" else "write"
    size = 10 * 4 * 8 * 2 * 2 + 2 * 2 * 24
    counted = counters.snapshot()["staged_bytes"]
    assert isinstance(counted, dict)
    assert counted[word] == size
    run(made, lambda: unused(made))


def test_a_request_that_is_given_up_while_it_is_copied_keeps_its_blocks_until_then(made: World, gate: Gate) -> None:
    transfer = begun(made)
    run(made, lambda: exhausted(made) and gate.reached.is_set())
    transfer.cancel()
    for _ in range(50):
        time.sleep(1e-4)
        made.decode[0].poll()
    assert not made.decode[0].settled(transfer)
    assert made.decode[0].quarantined()
    made.prefill[0].withdraw("r")
    made.prefill[1].withdraw("r")
    assert made.mode == "pull" or [one for worker in made.prefill for one in worker.released()] == []
    gate.go.set()
    run(made, lambda: made.decode[0].settled(transfer))
    run(made, lambda: unused(made))
    assert made.decode[0].quarantined() == {}
    whole(made)


def test_a_copy_that_fails_fails_the_request(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("no such block")

    with monkeypatch.context() as patch:
        for name in ("unpack", "pack"):
            patch.setattr(HostCopies, name, broken)
        transfer = begun(made)
        run(made, lambda: transfer.ended)
    assert isinstance(transfer.error, TransferError)
    assert "no such block" in str(transfer.error)
    run(made, lambda: unused(made) and made.decode[0].settled(transfer))
    whole(made)


def test_nothing_is_copied_once_a_request_has_failed(made: World, gate: Gate) -> None:
    """What waits for the thread or for a buffer then never comes to it."""
    transfer = begun(made)
    run(made, lambda: exhausted(made) and gate.reached.is_set())
    before = {name: array.copy() for name, array in made.decode_memory[0].items()}
    transfer.cancel()
    run(made, lambda: all(stage._kept.total() == 1 for stage in stages(made)))
    gate.go.set()
    run(made, lambda: made.decode[0].settled(transfer) and unused(made))
    changed = sum(int((before[name] != array).sum()) for name, array in made.decode_memory[0].items())
    # The copy that had begun, of one piece of one worker.
    assert changed <= 64


@pytest.mark.parametrize("made", ["pull"], indirect=True)
def test_a_frozen_peer_keeps_its_buffers_and_others_go_without(made: World) -> None:
    moved = begun(made, "first")
    run(made, lambda: moved.ended)
    made.hub.frozen.update(worker._transport.name for worker in made.prefill)
    asked = ask(made, (0, TOKENS), name="frozen")
    made.hold("frozen")
    frozen = made.decode[0].submit(asked, 20)
    (stage,) = stages(made)
    run(made, lambda: exhausted(made))
    clear(made)
    frozen.cancel()
    assert any(map(stage.stuck, set(stage._peers.values())))
    assert not made.decode[0].settled(frozen)
    made.hub.frozen.clear()
    run(made, lambda: made.decode[0].settled(frozen))
    assert unused(made)
    assert not any(array.any() for array in made.decode_memory[0].values())
    whole(made)


def test_waiting_for_a_buffer_ends_at_the_deadline(made: World, gate: Gate) -> None:
    first = begun(made, "first")
    run(made, lambda: exhausted(made))
    asked = ask(made, (0, 12), "edges", name="late")
    asked = replace(asked, decode={**asked.decode, "state": Slot(9, 12)})
    made.hold("late")
    late = made.decode[0].submit(asked, 0.05)
    run(made, lambda: late.ended)
    assert isinstance(late.error, DeadlineError)
    gate.go.set()
    run(made, lambda: first.ended and unused(made))
    assert first.error is None


def test_a_stage_is_taken_anew_after_a_suspension() -> None:
    found = world(Shape(1), Shape(1), Model(), staged=True, d_stage_bytes=SMALL)
    try:
        move(found, ask(found, (0, TOKENS), name="before"))
        reader, before = found.decode[0], found.decode[0]._stage
        reader.suspend()
        reader.resume(reader._pool)
        reader.connect(found.prefill[0].address, 10)
        clear(found)
        move(found, ask(found, (0, TOKENS), name="after"))
        assert reader._stage is not before
        assert len(reader._stage._free) == BUFFERS
    finally:
        found.close()


def test_closing_ends_what_is_being_copied(gate: Gate) -> None:
    found = world(Shape(1), Shape(1), Model(), staged=True, d_stage_bytes=SMALL, lease=600)
    asked = ask(found, (0, TOKENS))
    filled(found, asked)
    found.hold("r")
    transfer = found.decode[0].submit(asked, 20)
    end = time.monotonic() + 20
    while not gate.reached.is_set() and time.monotonic() < end:
        found.decode[0].poll()
    closing = threading.Thread(target=found.close)
    closing.start()
    gate.go.set()
    closing.join(20)
    assert transfer.ended
    assert not closing.is_alive()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shapes", [(Shape(2, 16), Shape(1, 4)), (Shape(1, 4, 2), Shape(2, 16, 1, 8))])
@pytest.mark.parametrize("size", [SMALL, 8 * SMALL])
def test_moves_of_unlike_pages(mode: str, shapes: tuple[Shape, Shape], size: int) -> None:
    found = world(*shapes, staged=True, mode=mode, stage_bytes=size, d_stage_bytes=size)
    try:
        for number, tokens in enumerate([(0, TOKENS), (7, 33), (5, 6)]):
            clear(found)
            move(found, ask(found, tokens, name=f"r{number}"))
    finally:
        found.close()


def test_a_permit_is_asked_for_when_there_is_a_buffer(gate: Gate) -> None:
    """What waits for a buffer holds up nobody else who reads from that worker."""
    limits = Limits(slice_bytes=512)
    found = world(
        Shape(1),
        Shape(1),
        Model(),
        staged=True,
        limits=limits,
        d_limits=limits,
        d_stage_bytes=SMALL,
        admission=True,
        lease=600,
    )
    try:
        transfer = begun(found)
        run(found, lambda: exhausted(found) and gate.reached.is_set())
        permits = found.prefill[0]._inbox.permits
        run(found, lambda: permits.in_flight() > 0)
        for _ in range(100):
            time.sleep(1e-4)
            found.decode[0].poll()
        assert permits.in_flight() <= SHARE * 64
        gate.go.set()
        run(found, lambda: transfer.ended and unused(found))
        assert transfer.error is None
        run(found, lambda: permits.in_flight() == 0)
    finally:
        found.close()
