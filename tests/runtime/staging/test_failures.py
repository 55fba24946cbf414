"""Staged requests that fail at each step: nothing is copied into pages that were given up, and buffers come back."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, clear, filled, move
from tests.runtime.helpers.staging import (
    SMALL,
    TOKENS,
    WAYS,
    Gate,
    asked_layers,
    begun,
    copying,
    crowded,
    exhausted,
    kept,
    moved_layer_by_layer,
    run,
    staging,
    stopped,
    unused,
    whole,
)
from tests.runtime.helpers.worlds import World

from kvplan.runtime import Blocks, Counters, Request, Slot
from kvplan.runtime.errors import DeadlineError, TransferError, WithdrawnError
from kvplan.runtime.staging import staged
from kvplan.runtime.staging.buffers import BUFFERS, SHARE, THREADS
from kvplan.runtime.staging.views import HostCopies


@pytest.fixture(params=["pull", "push", "lent"])
def made(request: pytest.FixtureRequest, counters: Counters) -> World:
    return crowded(request.param, counters)


every_way = pytest.mark.parametrize("made", WAYS, indirect=True)


@every_way
def test_more_slices_than_buffers_wait_for_their_turn(made: World, gate: Gate, counters: Counters) -> None:
    transfer = begun(made)
    run(made, lambda: exhausted(made))
    gate.go.set()
    run(made, lambda: transfer.ended)
    assert transfer.error is None
    check(made, 0, ask(made, (0, TOKENS)))
    word = "read" if made.mode == "pull" else "write"
    size = 10 * 4 * 8 * 2 * 2 + 2 * 2 * 24
    counted: Any = counters.snapshot()
    assert counted["staged_bytes"][word] == size
    # A stage that is not at who moves the bytes is lent by messages.
    at_peer = (copying(made) == made.decode) == (made.mode == "push")
    assert (counted["messages"]["lent"] > 0, counted["messages"]["duplicate"]) == (at_peer, 0)
    run(made, lambda: unused(made))


def test_a_request_that_is_given_up_while_it_is_copied_keeps_decodes_blocks_until_then(made: World, gate: Gate) -> None:
    transfer = begun(made)
    run(made, lambda: stopped(made, gate))
    transfer.cancel()
    for _ in range(50):
        time.sleep(1e-4)
        made.decode[0].run_once()
    assert not made.decode[0].settled(transfer)
    assert made.decode[0].quarantined()
    made.prefill[0].withdraw("r")
    made.prefill[1].withdraw("r")
    assert [len(worker.released()) for worker in made.prefill] == [1, 1], "decode is not told that they are read"
    gate.go.set()
    run(made, lambda: made.decode[0].settled(transfer))
    run(made, lambda: unused(made))
    assert made.decode[0].quarantined() == {}
    whole(made)


@every_way
def test_a_copy_that_fails_fails_the_request(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise IndexError("no such block")

    with monkeypatch.context() as patch:
        patch.setattr(HostCopies, "make", broken)
        transfer = begun(made)
        run(made, lambda: transfer.ended)
    assert isinstance(transfer.error, TransferError)
    assert "no such block" in str(transfer.error)
    run(made, lambda: unused(made) and made.decode[0].settled(transfer))
    whole(made)


def test_nothing_is_copied_once_a_request_has_failed(made: World, gate: Gate) -> None:
    """Pieces that wait for a thread or for a buffer then never get one."""
    transfer = begun(made)
    run(made, lambda: stopped(made, gate))
    before = {name: array.copy() for name, array in made.decode_memory[0].items()}
    transfer.cancel()
    run(made, lambda: all(count == THREADS for count in kept(made)))
    assert [worker.inspect().stage.copies for worker in copying(made)] == [0] * len(copying(made))
    gate.go.set()
    run(made, lambda: made.decode[0].settled(transfer) and unused(made))
    changed = sum(int((before[name] != array).sum()) for name, array in made.decode_memory[0].items())
    # The copies that had begun, of a piece each.
    assert changed <= THREADS * 64


@pytest.mark.parametrize("made", ["pull"], indirect=True)
def test_a_frozen_peer_keeps_its_buffers_and_others_go_without(made: World) -> None:
    moved = begun(made, "first")
    run(made, lambda: moved.ended)
    made.hub.frozen.update(worker.inspect().transport for worker in made.prefill)
    asked = ask(made, (0, TOKENS), name="frozen")
    made.hold("frozen")
    frozen = made.decode[0].submit(asked, 20)
    run(made, lambda: exhausted(made))
    clear(made)
    frozen.cancel()
    assert stuck(made)
    assert not made.decode[0].settled(frozen)
    made.hub.frozen.clear()
    run(made, lambda: made.decode[0].settled(frozen))
    assert unused(made)
    assert not any(array.any() for array in made.decode_memory[0].values())
    whole(made)


def frozen_posts(made: World) -> set[str]:
    """The workers at the other end of what is posted."""
    return {worker.inspect().transport for worker in (made.decode if made.mode == "push" else made.prefill)}


def apart(made: World, name: str, block: int) -> Request:
    """A request of blocks and a slot of its own."""
    ids = np.arange(block, block + TOKENS // 4)
    tables: dict[str, Blocks | Slot] = {"kv": Blocks(0, ids), "state": Slot(block, TOKENS)}
    return replace(ask(made, (0, TOKENS), name=name), prefill=tables, decode=tables)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("patience", [staged.PATIENCE, -1])
def test_who_waits_for_buffers_of_a_request_that_was_given_up_waits_a_while(
    way: str, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come back when the wire is done with them: only from a peer that is frozen they do not."""
    monkeypatch.setattr(staged, "PATIENCE", patience)
    found = staging(way, Shape(1), Shape(1), size=2 * SMALL[way], lease=600)
    given_up, waiting = apart(found, "a", 0), apart(found, "b", 10)
    for request in (given_up, waiting):
        filled(found, request)
    found.hold("a", "b")
    found.hub.frozen.update(frozen_posts(found))
    first = found.decode[0].submit(given_up, 20)
    run(found, lambda: slices_at(found, "a").count("posted") == SHARE)
    second = found.decode[0].submit(waiting, 20)
    run(found, lambda: "staged" in slices_at(found, "b"))
    first.cancel()
    run(found, lambda: second.ended if patience < 0 else stuck(found))
    found.hub.frozen.clear()
    run(found, lambda: second.ended and unused(found))
    assert second.error is None if patience > 0 else "every buffer of the stage" in str(second.error)


def slices_at(made: World, request: str) -> list[str]:
    """The events that the slices of a request in progress wait for."""
    seen = [of for worker in (*made.decode, *made.prefill) for of in worker.inspect().slices]
    return [of.stage for of in seen if of.request == request]


def stuck(made: World) -> bool:
    """Whether of every stage requests that have ended keep all that a peer may have, or all that there is."""
    kept_by = [[count for _, count in worker.inspect().stage.kept] for worker in copying(made)]
    return all(SHARE in counts or sum(counts) == BUFFERS for counts in kept_by)


@every_way
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


@pytest.mark.parametrize("way", WAYS)
def test_a_stage_is_taken_anew_after_a_suspension(way: str) -> None:
    found = staging(way, Shape(1), Shape(1), size=SMALL[way])
    move(found, ask(found, (0, TOKENS), name="before"))
    (worker,) = copying(found)
    worker.suspend()
    assert not worker.inspect().stage.open
    worker.resume(found.pool(worker))
    found.decode[0].connect(found.prefill[0].address, 10, mode=found.mode)
    clear(found)
    move(found, ask(found, (0, TOKENS), name="after"))
    assert len(worker.inspect().stage.free) == BUFFERS


@pytest.mark.parametrize("way", WAYS)
def test_closing_ends_what_is_being_copied(way: str, gate: Gate) -> None:
    found = staging(way, Shape(1), Shape(1), size=SMALL[way], lease=600)
    transfer = begun(found)
    run(found, lambda: gate.waiting)
    closing = threading.Thread(target=found.close)
    closing.start()
    gate.go.set()
    closing.join(20)
    assert transfer.ended
    assert not closing.is_alive()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shapes", [(Shape(2, 16), Shape(1, 4)), (Shape(1, 4, 2), Shape(2, 16, 1, 8))])
@pytest.mark.parametrize("times", [1, 8, 0])
def test_moves_of_unlike_pages(way: str, shapes: tuple[Shape, Shape], times: int) -> None:
    found = staging(way, *shapes, size=times * SMALL[way])
    for number, tokens in enumerate([(0, TOKENS), (7, 33), (5, 6)]):
        clear(found)
        move(found, ask(found, tokens, name=f"r{number}"))


@every_way
def test_a_request_that_is_withdrawn_is_copied_no_more(made: World, gate: Gate) -> None:
    transfer = begun(made)
    run(made, lambda: stopped(made, gate))
    for worker in made.prefill:
        worker.withdraw("r")
    # A copy that prefill has begun ends first; decode's ends by itself, and its blocks are free after it.
    if copying(made) == made.decode:
        run(made, lambda: transfer.ended)
    gate.go.set()
    run(made, lambda: transfer.ended and unused(made) and made.decode[0].settled(transfer))
    assert isinstance(transfer.error, WithdrawnError)
    assert made.decode[0].quarantined() == {}


@pytest.mark.parametrize("way", ["packed", "lent"])
def test_who_copies_takes_memory_and_its_peer_takes_none(way: str) -> None:
    found = staging(way, Shape(2), Shape(1), size=SMALL[way])
    whole(found)
    others = found.prefill if way == "lent" else found.decode
    assert not any(worker.inspect().stage.open for worker in others)


@pytest.mark.parametrize("way", ["packed", "lent"])
def test_chunks_of_layers_are_copied_by_themselves(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_layers(monkeypatch)
    found = staging(way, Shape(2), Shape(1), size=SMALL[way])
    moved_layer_by_layer(found)
    assert asked == {(layer,) for layer in found.model.layers}
