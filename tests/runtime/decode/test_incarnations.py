"""Engines that restart, sleep, grow, fall idle or are replaced: noticed, and nothing of the one before is believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.decode.test_worker import freed, freeze, submitted
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.requests import ask, check, clear, filled, looked_at, move
from tests.runtime.helpers.steered import Clock
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import DECODE, World, memory, world

from kvplan.runtime import DecodeWorker, Identity, InMemory, Plain, PrefillWorker, Sample, errors, views


def restarted(made: World, number: int, run: str) -> PrefillWorker:
    """A new run of a prefill worker at the address of the one before, which has ended."""
    before = made.prefill[number]
    before.close()
    arrays = memory(made.shapes[0], made.model, number)
    pool = views(made.plan.prefill, number, arrays)
    given: dict[str, Any] = {"identity": Identity("prefill", run), "keys": Plain(), "bind": before.address}
    made.prefill[number] = PrefillWorker(made.plan, number, pool, InMemory(made.hub, f"p{number}"), **given)
    made.prefill_memory[number] = arrays
    made.prefill[number].announce([source.address for source in made.prefill])
    return made.prefill[number]


def test_a_run_that_is_met_under_a_running_one_replaces_it() -> None:
    made = world(Shape(1), Shape(1))
    freeze(made)
    running = submitted(made, ask(made, (0, 12)))
    other = world(Shape(1), Shape(1), identity=Identity("prefill", "p2"))
    made.hub.agents[other.prefill[0].inspect().transport] = other.transport(other.prefill[0])
    made.decode[0].connect(other.prefill[0].address, 10)
    assert "engine 'prefill' was replaced: run p1" in str(running.error)
    assert [peer.run for peer in made.decode[0].peers()] == ["p2"]
    assert made.decode[0].quarantined(), "the old run is frozen, not dead"
    made.hub.frozen.clear()
    until(lambda: freed(made.decode[0]))


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_a_restarted_decode_worker_replaces_its_predecessor(mode: str) -> None:
    made = world(Shape(1), Shape(1), mode=mode)
    before = made.decode[0]
    arrays = memory(made.shapes[1], made.model, 0)
    pool = views(made.plan.decode, 0, arrays)
    given: dict[str, Any] = {"identity": Identity("decode", "d2"), "keys": Plain()}
    after = DecodeWorker(made.plan, 0, pool, InMemory(made.hub, "d0"), **given)
    after.connect(made.prefill[0].address, 10, mode=mode)
    made.hold("r")
    failed = before.submit(ask(made, (0, 12)), 5)
    until(failed.poll)
    assert "does not know this worker any more" in str(failed.error)
    until(lambda: freed(before))
    made.decode, made.decode_memory = [after], [arrays]
    filled(made, ask(made, (0, 12)))
    assert after.submit(ask(made, (0, 12)), 5).wait().state == "done"
    check(made, 0, ask(made, (0, 12)))
    before.close()


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_a_pool_that_is_resized_is_met_anew(mode: str) -> None:
    made = world(Shape(1), Shape(1), mode=mode)
    worker, source = made.decode[0], made.prefill[0]
    move(made, ask(made, (0, 12), name="before"))
    source.suspend()
    arrays = memory(made.shapes[0], made.model, 0, logical=60)
    source.resume(views(made.plan.prefill, 0, arrays))
    made.prefill_memory = [arrays]
    failed = worker.submit(ask(made, (0, 12), name="stale"), 5)
    until(failed.poll)
    assert failed.state == "failed"
    assert "connect again" in str(failed.error)
    until(lambda: freed(worker))
    assert source.endpoint.generation == 1
    worker.connect(source.address, 10, mode=mode)
    clear(made)
    move(made, ask(made, (0, 12), name="after"))


def test_an_idle_engine_is_forgotten_and_can_be_met_again() -> None:
    clock = Clock()
    made = world(Shape(1), Shape(1), d_clock=clock, d_idle=60.0)
    worker = made.decode[0]
    move(made, ask(made, (0, 12)))
    clock.time += 59
    worker.run_once()
    assert worker.peers() != ()
    clock.time += 2
    worker.run_once()
    assert worker.peers() == ()
    assert worker.inspect().peers == set()
    refused = looked_at(worker.submit(ask(made, (0, 12), name="early"), 5))
    assert "call connect" in str(refused.error)
    worker.connect(made.prefill[0].address, 10)
    move(made, ask(made, (0, 12), name="after"))


def test_two_engines_at_once_and_neither_blocks_the_other() -> None:
    one = world(Shape(1), Shape(1))
    other = world(Shape(2), Shape(1), identity=Identity("other", "o1"))
    worker = one.decode[0]
    for source in other.prefill:
        one.hub.agents[source.inspect().transport] = other.transport(source)
    transport = InMemory(one.hub, "d")
    both = DecodeWorker([one.plan, other.plan], 0, one.pool(worker), transport, identity=DECODE, keys=Plain())
    for made in (one, other):
        both.connect(made.prefill[0].address, 10)
        made.hub.agents[transport.name] = transport
    with pytest.raises(errors.HandshakeError, match="say which"):
        both.submit(ask(one, (0, 12)), 5).wait()
    freeze(one)
    one.hold("a")
    slow = both.submit(ask(one, (0, 12), name="a"), 5, peer="prefill")
    request = replace(ask(other, (0, 8), name="b"), decode=apart(other))
    filled(other, request)
    other.hold("b")
    assert both.submit(request, 5, peer="other", checksum=Sample()).wait().state == "done"
    assert not slow.ended
    one.hub.frozen.clear()
    assert slow.wait().state == "done"
    both.close()


def apart(made: World) -> Any:
    import numpy as np

    from kvplan.runtime import Blocks, Slot

    return {"kv": Blocks(0, np.array([30, 31])), "state": Slot(33, 8)}


def test_workers_of_two_runs_are_no_engine() -> None:
    made = world(Shape(2), Shape(1))
    restarted(made, 1, "p2")
    made.prefill[0].announce([source.address for source in made.prefill])
    with pytest.raises(errors.StalePeerError, match="'p2'"):
        made.decode[0].connect(made.prefill[0].address, 10)


@pytest.mark.parametrize("mine", [{}, {"rotary embedding": "rope_theta=10000"}, {"elements": "bf16"}])
def test_settings_that_both_name_have_to_be_equal(mine: dict[str, str]) -> None:
    """A setting that only one side names cannot be compared: a runtime without a connector names nothing."""
    theirs = Identity("prefill", "p1", settings={"rotary embedding": "rope_theta=10000 rope_type=yarn", "x": "1"})
    made = world(Shape(1), Shape(1), Model(), identity=theirs)
    me = Identity("decode", "d9", settings=mine)
    other = DecodeWorker(made.plan, 0, made.pool(made.decode[0]), InMemory(made.hub, "d"), identity=me, keys=Plain())
    if "rotary embedding" in mine:
        with pytest.raises(errors.UnlikeError, match="has rotary embedding 'rope_theta=10000'") as error:
            other.connect(made.prefill[0].address, 10)
        ours = "ours is 'rope_theta=10000 rope_type=yarn'"
        assert f"{ours}: start both with the same rotary embedding" in str(error.value)
    else:
        assert other.connect(made.prefill[0].address, 10).name == "prefill"
    other.close()
