"""Answers that come when their question is over, word by word: nothing is freed, moved or forgotten for them."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.helpers.plans import Model, Shape, plan
from tests.runtime.helpers.requests import ask, check, clear, fed, filled
from tests.runtime.helpers.worlds import DECODE, PREFILL, World, memory
from tests.runtime.simulation.channels import Line, Net, speak

from kvplan.plan.request import blocks
from kvplan.plan.types import Blocks
from kvplan.runtime import DecodeWorker, InMemory, Plain, PrefillWorker, Request, Sample, Slot, Transfer, views
from kvplan.runtime.protocol.phases import Phase
from kvplan.runtime.transport.inmemory import Hub

SHAPE, MODEL = Shape(1), Model()


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    made = Net(random.Random(0), slow=0)
    speak(made, monkeypatch)
    return made


def pair(net: Net, mode: str, **options: Any) -> World:
    """One worker of each side, both polled by the test only."""
    made, hub, mine, theirs = plan(SHAPE, SHAPE), Hub(), memory(SHAPE, MODEL, 0), memory(SHAPE, MODEL, 0)
    pool, given = views(made.prefill, 0, theirs), {"start": False, "clock": net.now, "lease": 6.0, **options}
    source = PrefillWorker(made, 0, pool, InMemory(hub, "p"), identity=PREFILL, keys=Plain(), **given)
    source.announce([source.address])
    net.turn = source.run_once
    pool = views(made.decode, 0, mine)
    target = DecodeWorker(made, 0, pool, InMemory(hub, "d"), identity=DECODE, keys=Plain(), clock=net.now)
    target.connect(source.address, 5, mode=mode)
    return World(made, (SHAPE, SHAPE), MODEL, [source], [target], [theirs], [mine], hub, mode)


def rounds(made: World, net: Net, count: int = 8) -> None:
    for _ in range(count):
        net.time += 0.2
        made.prefill[0].run_once()
        made.decode[0].run_once()


def held(made: World) -> Request:
    request = ask(made, (0, 12))
    filled(made, request)
    made.hold("r")
    return request


def elsewhere(request: Request) -> Request:
    """The same request, into other blocks."""
    kv, state = blocks(request.decode["kv"]), blocks(request.decode["state"])
    return replace(request, decode={"kv": Blocks(0, kv.ids + 10), "state": Slot(int(state.ids[0]) + 10, 12)})


def live(net: Net) -> Line:
    return next(line for line in net.lines if not line.gone)


def again(made: World, net: Net, request: Request) -> None:
    """The same request, asked for once more, arrives."""
    transfer = made.decode[0].submit(request, 20)
    rounds(made, net)
    assert transfer.state == "done", transfer.error
    check(made, 0, request)


@pytest.mark.parametrize("when", ["claimed", "posted"])
def test_a_request_that_is_cancelled_keeps_its_blocks_until_its_reads_are_over(net: Net, when: str) -> None:
    made = pair(net, "pull")
    request, (source,), (target,) = held(made), made.prefill, made.decode
    transfer = target.submit(request, 20)
    made.hub.frozen.add(source.inspect().transport)
    source.run_once()
    if when == "posted":
        target.run_once()
    transfer.cancel()
    source.run_once()
    target.run_once()
    assert bool(target.quarantined()) == (when == "posted")
    made.hub.frozen.clear()
    rounds(made, net, 2)
    assert not target.quarantined()
    again(made, net, request)


def test_a_request_that_is_asked_again_is_not_answered_by_what_was_said_before(net: Net) -> None:
    made = pair(net, "pull")
    request, (source,), (target,) = ask(made, (0, 12)), made.prefill, made.decode
    filled(made, request)
    source.open("r", (0, 12))
    before = target.open(fed(request), 20)
    source.offer("r", (0, 4), {"kv": request.prefill["kv"]})
    source.run_once()
    target.run_once()
    net.time += 2
    target.run_once()
    source.offer("r", (4, 8), {"kv": request.prefill["kv"]})
    source.run_once()
    before.cancel()
    request = elsewhere(request)
    clear(made)
    after = target.open(fed(request), 20)
    target.run_once()
    assert [part.phase for part in after.parts] == [Phase.CLAIMING]
    source.offer("r", (8, 12), request.prefill, last=True)
    rounds(made, net)
    assert after.state == "done", after.error
    check(made, 0, request)


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_what_is_held_after_it_was_claimed_is_told_at_once(net: Net, mode: str) -> None:
    made = pair(net, mode)
    source, target = made.prefill[0], made.decode[0]
    transfer = target.open(fed(ask(made, (0, 12))), 20)
    source.run_once()
    source.open("r", (0, 12))
    source.run_once()
    target.run_once()
    assert [part.phase for part in transfer.parts] == [Phase.MOVING]


def test_what_was_said_to_be_lost_before_does_not_end_a_request_that_is_asked_again(net: Net) -> None:
    made = pair(net, "pull")
    source, target = made.prefill[0], made.decode[0]
    request = ask(made, (0, 12))
    filled(made, request)
    before = target.submit(request, 20)
    source.run_once()
    before.cancel()
    source.hold("r")
    again(made, net, elsewhere(request))


def test_one_that_stopped_before_it_was_asked_to_write_may_still_write(net: Net) -> None:
    made = pair(net, "push")
    request, (source,), (target,) = held(made), made.prefill, made.decode
    made.hub.frozen.add(target.inspect().transport)
    before = target.submit(request, 20)
    source.run_once()
    before.cancel()
    source.run_once()
    last = live(net).down.queue.pop()
    after = target.submit(elsewhere(request), 20)
    target.run_once()
    after.cancel()
    live(net).down.queue.append(last)
    target.run_once()
    source.run_once()
    assert target.quarantined() or not source.inspect().writes
    made.hub.frozen.clear()
    rounds(made, net)
    assert not target.quarantined()
    again(made, net, request)


def writing(made: World) -> Transfer:
    """A request that is being written, and that does not end."""
    request, (source,), (target,) = held(made), made.prefill, made.decode
    made.hub.frozen.add(target.inspect().transport)
    transfer = target.submit(request, 20)
    for worker in (source, target, source, source):
        worker.run_once()
    assert any(write.under_way for write in source.inspect().writes)
    return transfer


def test_who_is_met_again_says_what_it_writes_no_more(net: Net) -> None:
    made = pair(net, "push")
    transfer, source, target = writing(made), made.prefill[0], made.decode[0]
    live(net).cut()
    target.run_once()
    assert transfer.state == "failed"
    target.connect(source.address, 5, mode="push")
    rounds(made, net)
    assert target.quarantined()
    made.hub.frozen.clear()
    rounds(made, net)
    assert not target.quarantined()
    again(made, net, transfer.request)


def test_what_was_wanted_through_a_lost_line_is_not_written_after_another_said_that_it_stopped(net: Net) -> None:
    made = pair(net, "push")
    request, (source,), (target,) = held(made), made.prefill, made.decode
    transfer = target.submit(request, 20)
    source.run_once()
    target.run_once()
    line = live(net)
    wanted = line.up.queue[0]
    line.up.queue.clear()
    line.cut()
    target.run_once()
    target.connect(source.address, 5, mode="push")
    rounds(made, net)
    assert (transfer.state, target.quarantined()) == ("failed", {})
    line.up.queue.append(wanted)
    source.run_once()
    assert not source.inspect().writes
    again(made, net, request)


def test_a_line_that_is_full_hears_later_that_a_request_is_given_up(net: Net) -> None:
    made = pair(net, "push")
    transfer, target = writing(made), made.decode[0]
    net.full = 1
    transfer.cancel()
    net.full = 0
    made.hub.frozen.clear()
    rounds(made, net, 2)
    assert not target.quarantined()
    again(made, net, transfer.request)


def test_a_peer_is_forgotten_when_nothing_is_written_to_it_any_more(net: Net) -> None:
    made = pair(net, "push", lease=0.1)
    writing(made)
    source = made.prefill[0]
    net.time += 1
    source.run_once()
    assert (len(source.inspect().clients), len(source.inspect().peers)) == (0, 1)
    assert not source.released()
    made.hub.frozen.clear()
    net.time += 1
    source.run_once()
    source.run_once()
    assert not source.inspect().peers
    assert [one.why for one in source.released()] == ["expired"]


def test_a_comparison_for_a_request_that_is_given_up_is_not_that_of_the_next(net: Net) -> None:
    made = pair(net, "pull")
    request, (source,), (target,) = held(made), made.prefill, made.decode

    def told(transfer: Transfer) -> Transfer:
        while transfer.parts[0].phase is not Phase.TOLD:
            assert not transfer.ended, transfer.error
            rounds(made, net, 1)
            while net.tasks and transfer.parts[0].phase is Phase.MOVED:
                net.tasks.pop()()
        source.run_once()
        return transfer

    told(target.submit(request, 20, checksum=Sample())).cancel()
    source.run_once()
    after = told(target.submit(elsewhere(request), 20, checksum=Sample()))
    net.tasks.pop()()
    rounds(made, net)
    assert after.state == "done", after.error


def test_callbacks_hold_no_lock(net: Net) -> None:
    """A prefill worker's thread may ask this worker for an event while a callback asks that prefill worker."""
    made = pair(net, "pull")
    seen: list[bool] = []

    def callback(_: Transfer) -> None:
        other = threading.Thread(target=made.decode[0].peers, daemon=True)
        other.start()
        other.join(5)
        seen.append(not other.is_alive())

    transfer = made.decode[0].submit(held(made), 20)
    transfer.on_end(callback)
    rounds(made, net)
    assert (transfer.state, seen) == ("done", [True])


def test_a_writer_is_gone_that_the_transport_has_lost_and_that_cannot_be_spoken_to(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair(net, "push")
    worker, lost = made.decode[0], set[str]()
    monkeypatch.setattr(InMemory, "lost", lambda _, peer: peer in lost)
    transfer = writing(made)
    (engine,) = worker.inspect().engines
    # The transport alone says nothing: it may go on to write by other connections.
    lost |= engine.peers
    transfer.cancel()
    rounds(made, net)
    assert not worker.settled(transfer)
    live(net).cut()
    for _ in range(8):
        net.time += 0.2
        worker.run_once()
    assert worker.settled(transfer)
