"""Answers that come when their question is over, word by word: nothing is freed, moved or forgotten for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.helpers.plans import Model, Shape, plan
from tests.runtime.helpers.requests import ask, check, filled
from tests.runtime.helpers.worlds import DECODE, PREFILL, World, memory
from tests.runtime.simulation.channels import Line, Net

from kvplan.plan.request import blocks
from kvplan.plan.types import Blocks
from kvplan.runtime import DecodeWorker, InMemory, Plain, PrefillWorker, Request, Slot, Transfer, views
from kvplan.runtime.transport.inmemory import Hub

SHAPE, MODEL = Shape(1), Model()


def pair(net: Net, mode: str, workers: int = 1, **options: Any) -> World:
    """One worker of each side, or more of prefill, all polled by the test only."""
    shapes, hub, mine = (Shape(workers), SHAPE), Hub(), memory(SHAPE, MODEL, 0)
    made, theirs = plan(*shapes), [memory(shapes[0], MODEL, number) for number in range(workers)]
    given = {"start": False, "clock": net.now, "lease": 6.0, "identity": PREFILL, "keys": Plain(), **options}
    pools = [views(made.prefill, number, arrays) for number, arrays in enumerate(theirs)]
    sources = [PrefillWorker(made, n, pool, InMemory(hub, f"p{n}"), **given) for n, pool in enumerate(pools)]
    for source in sources:
        source.announce([one.address for one in sources])
    pool = views(made.decode, 0, mine)
    target = DecodeWorker(made, 0, pool, InMemory(hub, "d"), identity=DECODE, keys=Plain(), clock=net.now)
    found = World(made, shapes, MODEL, sources, [target], theirs, [mine], hub, mode)
    net.turn = found.poll
    target.connect(sources[0].address, 5, mode=mode)
    return found


def rounds(made: World, net: Net, count: int = 8) -> None:
    for _ in range(count):
        net.time += 0.2
        made.poll()
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


def writing(made: World) -> Transfer:
    """A request that is being written, and that does not end."""
    request, (source,), (target,) = held(made), made.prefill, made.decode
    made.hub.frozen.add(target.inspect().transport)
    transfer = target.submit(request, 20)
    for worker in (target, source, target, source, source):
        worker.run_once()
    assert any(write.under_way for write in source.inspect().writes)
    return transfer


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


def test_what_is_submitted_together_is_asked_for_in_one_message(net: Net) -> None:
    made = pair(net, "pull")
    worker, request = made.decode[0], held(made)
    line: Any = live(net)
    with worker.together():
        transfers = [worker.submit(one, 20) for one in (request, elsewhere(replace(request, id="unheld")))]
        assert len(line.up.queue) == 0
    worker.inspect()
    assert len(line.words) == 0
    assert len(line.up.queue) == 1
    rounds(made, net)
    assert transfers[0].state == "done", transfers[0].error
