"""Requests end to end over memory: every byte of every decode worker, and every way a request can fail."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.made import instances
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.requests import ask, clear, filled, looked_at, move
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.plan.request import blocks
from kvplan.plan.types import Blocks
from kvplan.runtime import DecodeWorker, Limits, Request, Slot, Transfer, errors
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.protocol.phases import Phase
from kvplan.runtime.transport.base import HandleState
from kvplan.runtime.transport.inmemory import CopyTransfer, InMemory

PAIRS = [
    pytest.param(Shape(2), Shape(1), Model(), id="tp2-tp1"),
    pytest.param(Shape(1), Shape(2), Model(), id="tp1-tp2"),
    pytest.param(Shape(1), Shape(1), Model(), id="equal"),
    pytest.param(Shape(1, tail=16), Shape(1, tail=16), Model(), id="equal-padded"),
    pytest.param(Shape(1, tail=16), Shape(1, tail=32), Model(), id="unlike-padding"),
    pytest.param(Shape(4), Shape(4), Model(), id="copies"),
    pytest.param(Shape(2, ratio=3), Shape(1, ratio=5), Model(heads=4), id="ratios"),
    pytest.param(Shape(2, kernel=6), Shape(1, kernel=4, ratio=2), Model(state=False), id="unlike-blocks"),
    pytest.param(Shape(3), Shape(2), Model(heads=6), id="3-2"),
]
TOKENS = [(0, 48), (0, 45), (5, 45), (4, 44), (13, 14), (0, 3)]


@pytest.fixture
def pair() -> World:
    return world(Shape(2), Shape(1))


@pytest.mark.parametrize(("mode", "order"), [("pull", "random"), ("push", "rising"), ("pull", "edges")])
@pytest.mark.parametrize(("prefill", "decode", "model"), PAIRS)
def test_every_byte(prefill: Shape, decode: Shape, model: Model, order: str, mode: str) -> None:
    made = world(prefill, decode, model, mode=mode)
    for number, tokens in enumerate(TOKENS):
        clear(made)
        move(made, ask(made, tokens, order, name=str(number)))


def test_neighbouring_blocks_are_one_request_per_plane() -> None:
    made = world(Shape(1), Shape(1), Model(heads=1, state=False))
    assert made.decode[0].predict(ask(made, (0, 45), "rising")) == {0: 2}


def test_padding_is_bridged_only_where_it_faces_padding() -> None:
    bridged = world(Shape(1, tail=16), Shape(1, tail=16), Model(state=False))
    unlike = world(Shape(1, tail=16), Shape(1, tail=32), Model(state=False))
    assert bridged.decode[0].predict(ask(bridged, (0, 48), "rising")) == {0: 2}
    assert unlike.decode[0].predict(ask(unlike, (0, 48), "rising")) == {0: 24}


BAD = {
    "unknown group": (
        lambda r: replace(r, decode={**r.decode, "stats": Blocks(0, np.arange(3))}),
        "did you mean 'state'",
    ),
    "missing group": (lambda r: replace(r, prefill={"kv": r.prefill["kv"]}), "'state' of the prefill side is missing"),
    "repeated id": (
        lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1, 2, 1]))}),
        "block 1 is named twice",
    ),
    "unlike at": (lambda r: replace(r, prefill={**r.prefill, "state": Slot(1, 11)}), "stands after 11 tokens"),
    "short table": (lambda r: replace(r, prefill={**r.prefill, "kv": Blocks(0, np.arange(2))}), r"positions \[0, 2\)"),
    "null block": (
        lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1, -1, 2]))}),
        "no block at position 1",
    ),
    "beyond the pool": (
        lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1, 40, 2]))}),
        "pool has 40",
    ),
    "prefill beyond the pool": (
        lambda r: replace(r, prefill={**r.prefill, "kv": Blocks(0, np.array([1, 40, 2]))}),
        "pool has 40",
    ),
    "negative id": (lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1, -2, 2]))}), "ids from -2"),
    "no slot": (lambda r: replace(r, decode={**r.decode, "state": Slot(-1, 12)}), "ids from -1"),
    "slot for tokens": (lambda r: replace(r, decode={**r.decode, "kv": Slot(1, 12)}), "give Blocks, not Slot"),
    "floats": (
        lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1.7, 2, 3]))}),
        "one row of integers",
    ),
    "backwards": (lambda r: replace(r, tokens=(12, 11)), "no range"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_fails_alone(pair: World, name: str) -> None:
    change, text = BAD[name]
    failed = looked_at(pair.decode[0].submit(change(ask(pair, (0, 12))), 5))
    assert (failed.state, type(failed.error), failed.untrusted) == ("failed", errors.BadRequestError, {})
    with pytest.raises(errors.BadRequestError, match=text):
        failed.wait()
    assert not any(array.any() for array in pair.decode_memory[0].values())
    move(pair, ask(pair, (0, 12), name="next"))


def test_one_id_in_two_overlaid_groups_is_repeated() -> None:
    made = world(Shape(1), Shape(1), Model(states_overlay=False))
    overlaid = replace(made.plan.decode.groups[1], arena=0)
    decode = replace(made.plan.decode, groups=(made.plan.decode.groups[0], overlaid))
    from kvplan.plan.request import check

    request = ask(made, (0, 8))
    request = replace(request, decode={"kv": Blocks(0, np.array([4, 9])), "state": Slot(9, 8)})
    with pytest.raises(errors.BadRequestError, match="block 9 is named twice"):
        check(replace(made.plan, decode=decode), request, {}, {})


def submitted(made: World, request: Request, timeout: float = 20) -> Transfer:
    """A request that is held and asked for, and whose reads are in progress as far as its peers let them."""
    made.hold(request.id)
    transfer = made.decode[0].submit(request, timeout)
    until(lambda: transfer.poll() or all(part.phase is not Phase.CLAIMING for part in transfer.parts))
    return transfer


def ended(transfer: Transfer) -> str:
    """How a transfer has ended."""
    assert transfer.ended
    return transfer.state


def freed(worker: DecodeWorker) -> bool:
    worker.run_once()
    return not worker.quarantined()


def freeze(made: World) -> None:
    made.hub.frozen |= {worker.inspect().transport for worker in made.prefill}


def test_a_block_under_way_is_not_written_twice(pair: World) -> None:
    freeze(pair)
    first = submitted(pair, ask(pair, (0, 12)))
    second = pair.decode[0].submit(ask(pair, (0, 12), name="other"), 20)
    same = looked_at(pair.decode[0].submit(ask(pair, (0, 12)), 20))
    assert not first.ended
    assert isinstance(second.error, errors.QuarantinedError)
    assert isinstance(same.error, errors.BadRequestError)
    pair.hub.frozen.clear()
    first.wait()


def test_a_frozen_peer_meets_the_deadline_and_its_blocks_the_quarantine(pair: World) -> None:
    worker, request = pair.decode[0], ask(pair, (0, 12))
    pair.hub.frozen.add(pair.prefill[1].inspect().transport)
    late = submitted(pair, request, 0.3)
    with pytest.raises(errors.DeadlineError, match="prefill worker 1 has bytes that are still on their way") as caught:
        late.wait()
    assert late.state == ended(late) == "timed_out"
    assert caught.value.untrusted["kv"] == tuple(sorted(blocks(request.decode["kv"]).ids.tolist()))
    assert worker.quarantined()[0] == caught.value.untrusted["kv"]
    assert worker.counters.snapshot()["quarantined_bytes"] != 0
    refused = looked_at(worker.submit(replace(request, id="again"), 5))
    assert isinstance(refused.error, errors.QuarantinedError)
    pair.hub.frozen.clear()
    until(lambda: freed(worker))
    move(pair, ask(pair, (0, 12), name="after"))


def test_a_push_of_what_is_not_computed_is_not_blamed_on_the_network() -> None:
    made = world(Shape(1), Shape(1), mode="push")
    request = ask(made, (0, 12))

    class Computing:
        def query(self) -> bool:
            return False

    made.prefill[0].hold(request.id, request.prefill, after=Computing())
    late = made.decode[0].submit(request, 0.3)
    with pytest.raises(errors.DeadlineError, match=r"still on their way, or has not computed all of it yet$"):
        late.wait()
    made.close()


def test_a_transfer_has_its_deadline_before_it_begins(pair: World) -> None:
    transfer = pair.decode[0].submit(ask(pair, (0, 12)), 5, wait=2)
    assert (transfer.deadline - transfer.began, transfer.hold_within) == pytest.approx((5, 2))


def test_a_retry_needs_no_new_hold(pair: World) -> None:
    request = ask(pair, (0, 12))
    filled(pair, request)
    freeze(pair)
    submitted(pair, request).cancel()
    pair.hub.frozen.clear()
    until(lambda: freed(pair.decode[0]))
    clear(pair)
    assert pair.decode[0].submit(request, 20).wait().state == "done"
    assert pair.released() == {("r", "finished")}


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_dropping_a_peer_does_not_free_what_may_still_be_written(mode: str) -> None:
    made = world(Shape(2), Shape(1), mode=mode)
    worker = made.decode[0]
    made.hub.frozen |= {
        made.prefill[0].inspect().transport,
        made.prefill[1].inspect().transport,
        worker.inspect().transport,
    }
    failed = submitted(made, ask(made, (0, 12)))
    failed.cancel()
    assert isinstance(failed.error, errors.CancelledTransferError)
    assert failed.state == ended(failed) == "cancelled"
    assert worker.quarantined()
    worker.drop("prefill")
    assert worker.quarantined()
    assert worker.peers() == ()
    worker.connect(made.prefill[0].address, 10, mode=mode)
    early = looked_at(worker.submit(ask(made, (0, 12), name="early"), 5))
    assert isinstance(early.error, errors.QuarantinedError)
    made.hub.frozen.clear()
    until(lambda: freed(worker))
    move(made, ask(made, (0, 12), name="after"))


def test_a_dead_peer_fails_the_request_and_the_others_go_on(pair: World) -> None:
    worker, lost = pair.decode[0], pair.transport(pair.prefill[1])
    pair.hub.frozen.add(lost.name)
    running = submitted(pair, ask(pair, (0, 12)))
    lost.close()
    with pytest.raises(errors.TransferError, match="prefill worker 1"):
        running.wait()
    assert ended(running) == "failed"
    until(lambda: freed(worker))


def test_await_and_callback(pair: World) -> None:
    seen: list[str] = []
    pair.decode[0].start()
    pair.hold("r", "s")
    transfers = [
        pair.decode[0].submit(ask(pair, (0, 12)), 5),
        pair.decode[0].submit(moved_apart(ask(pair, (0, 12), name="s")), 5),
    ]
    transfers[0].on_end(lambda one: seen.append(one.state))

    async def both() -> list[str]:
        return [one.state for one in await asyncio.gather(*transfers)]

    assert asyncio.run(both()) == ["done", "done"]
    assert seen == ["done"]


def moved_apart(request: Request) -> Request:
    """The same with other decode blocks."""
    return replace(request, decode={"kv": Blocks(0, np.array([30, 31, 32])), "state": Slot(33, 12)})


def test_an_awaiting_task_that_is_cancelled_cancels_its_transfer(pair: World) -> None:
    freeze(pair)
    transfer = submitted(pair, ask(pair, (0, 12)))
    pair.decode[0].start()

    async def short() -> None:
        await asyncio.wait_for(transfer, 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(short())
    assert transfer.state == "cancelled"


def test_nobody_waits_for_ever_for_a_worker_that_nobody_drives(pair: World) -> None:
    freeze(pair)
    transfer = submitted(pair, ask(pair, (0, 12)))

    async def waits() -> None:
        await transfer

    with pytest.raises(errors.HandleError, match="call start"):
        asyncio.run(waits())


def test_connect_without_blocking_the_loop() -> None:
    made = world(Shape(1), Shape(1))
    peer = asyncio.run(made.decode[0].meet(made.prefill[0].address, 10))
    assert (peer.name, peer.run, peer.plan.digest) == ("prefill", "p1", made.plan.digest)
    assert made.decode[0].peers() == (peer,)


def test_descriptors_beyond_an_int32_are_refused(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.transfer.gather.INT32", 3)
    failed = submitted(pair, ask(pair, (0, 45)))
    until(failed.poll)
    assert isinstance(failed.error, errors.TransferError)
    assert isinstance(failed.error.__cause__, errors.LimitError)
    assert pair.decode[0].quarantined() == {}


def test_too_many_requests_are_refused_before_they_move() -> None:
    made = world(Shape(1), Shape(1), d_limits=Limits(requests=1))
    freeze(made)
    first = submitted(made, ask(made, (0, 12)))
    second = looked_at(made.decode[0].submit(moved_apart(ask(made, (0, 12), name="s")), 5))
    assert isinstance(second.error, errors.LimitedError)
    made.hub.frozen.clear()
    first.wait()


@pytest.mark.parametrize("end", ["drop", "suspend", "close"])
@pytest.mark.parametrize("held", [True, False], ids=["done", "failed"])
def test_how_much_a_request_was_is_told_when_its_engine_is_gone(held: bool, end: str) -> None:
    """The count is made on demand and needs nothing that was prepared or that has ended."""
    made = world(Shape(1), Shape(1))
    worker, request = made.decode[0], ask(made, (0, 12))
    filled(made, request)
    if held:
        made.prefill[0].hold(request.id, request.prefill)
        moved = worker.submit(request, 50)
        until(moved.poll, made.poll)
    else:
        moved = worker.submit(request, 50)
        moved.cancel()
        until(lambda: not worker.quarantined(), worker.run_once)
    {"drop": lambda: worker.drop("prefill"), "suspend": worker.suspend, "close": worker.close}[end]()
    assert (moved.total > 0, moved.progress) == (True, 1.0 if held else 0.0)
    assert moved.total == (moved.bytes if held else moved.total)


def test_a_worker_whose_connection_broke_is_met_anew_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that its transport has lost fails, and the next one of that worker finds a new connection."""
    prepared, prepare = list[tuple[str | None, Any]](), InMemory.prepare

    def noted(transport: InMemory, peer: str | None, *rows: Any) -> Any:
        prepared.append((peer, prepare(transport, peer, *rows)))
        return prepared[-1][1]

    monkeypatch.setattr(InMemory, "prepare", noted)
    made = world(Shape(2), Shape(1))
    transport, source = made.transport(made.decode[0]), made.transport(made.prefill[0])
    added, broken, add_peer = list[bytes](), set[str | None](), transport.add_peer

    def add(metadata: bytes) -> str:
        added.append(metadata)
        broken.clear()
        return add_peer(metadata)

    monkeypatch.setattr(transport, "add_peer", add)
    monkeypatch.setattr(transport, "broken", lambda peer: peer in broken)
    with monkeypatch.context() as patch:
        patch.setattr(transport, "post", lost_when_posted)
        failed = submitted(made, ask(made, (0, 12)))
        until(failed.poll)
    assert isinstance(failed.error, errors.TransferError)
    broken.add(source.name)
    # NIXL makes lists useless that were prepared for a peer before it reconnected.
    for peer, list_ in prepared:
        if peer in broken:
            list_.release()
    move(made, ask(made, (0, 12), name="after"))
    assert added == [source.metadata()]


def lost_when_posted(*_: object) -> None:
    raise errors.PeerLostError("gone")


def test_who_cannot_be_met_anew_fails_requests_by_name(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = pair.decode[0]
    monkeypatch.setattr(pair.transport(worker), "broken", lambda peer: True)

    def wait(_: bytes) -> str:
        raise errors.NotBegunError("2 transfers by it have not ended")

    monkeypatch.setattr(pair.transport(worker), "add_peer", wait)
    failed = submitted(pair, ask(pair, (0, 12)))
    assert "prefill worker 0 of 'prefill' cannot be reached: 2 transfers" in str(failed.error)
    assert worker.quarantined() == {}


def test_who_was_lost_may_be_vouched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line breaks while it writes, and it is dropped by itself: the caller says that it has ended."""
    lines = instances(monkeypatch, ControlClient)
    made = world(Shape(1), Shape(1), mode="push", lease=60)
    worker, source = made.decode[0], made.prefill[0]
    made.hub.frozen.add(worker.inspect().transport)
    failed = submitted(made, ask(made, (0, 12)))
    until(lambda: worker.run_once() or len(source.inspect().writes) > 0)
    for line in lines:
        line.close()
    until(failed.poll)
    assert (worker.peers(), bool(worker.quarantined())) == ((), True)
    with pytest.raises(errors.HandshakeError, match="is not connected"):
        worker.drop("another", dead=True)
    worker.drop("prefill", dead=True)
    until(lambda: freed(worker))
    assert worker.settled(failed)


@pytest.mark.parametrize("when", ["posted", "polled"])
def test_a_read_that_failed_is_over_once_its_peer_is(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(Shape(1), Shape(1))
    worker, source = made.decode[0], made.prefill[0]

    def fail(handle: CopyTransfer) -> None:
        handle.state = HandleState.FAILED
        raise errors.TransportError("broken")

    def refuse(*_: object) -> None:
        raise errors.TransportError("broken")

    with monkeypatch.context() as patch:
        if when == "polled":
            patch.setattr(CopyTransfer, "poll", fail)
        else:
            patch.setattr(made.transport(worker), "post", refuse)
        failed = submitted(made, ask(made, (0, 12)))
        until(failed.poll)
    worker.run_once()
    assert worker.quarantined()
    source.close()
    until(lambda: freed(worker))
