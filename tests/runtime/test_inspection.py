"""What `inspect` shows of a worker while something is under way, and when nothing is."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from tests.runtime.decode.test_races import held, live, pair, rounds, writing
from tests.runtime.helpers.requests import ask
from tests.runtime.helpers.worlds import World
from tests.runtime.simulation.channels import Net
from tests.runtime.simulation.invariants import empty, rested

from kvplan.runtime import Blocks, Request, Slot
from kvplan.runtime.inspection import Inspection


def pages(request: Request) -> set[tuple[int, int]]:
    """The decode blocks of a request as (arena, number)."""
    kv, state = request.decode["kv"], request.decode["state"]
    assert isinstance(kv, Blocks)
    assert isinstance(state, Slot)
    return {(0, block) for block in kv.ids.tolist()} | {(1, state.slot)}


def both(made: World) -> tuple[Inspection, Inspection]:
    return made.prefill[0].inspect(), made.decode[0].inspect()


def test_a_request_that_is_being_written_is_seen_on_both_sides(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    source, target = both(made)
    (request,), (hold,), (write,), (client,) = target.requests, source.holds, source.writes, source.clients
    (part,), (engine,), (readable,) = request.parts, target.engines, source.sources
    assert (source.name, target.name) == ("prefill worker 0", "decode worker 0")
    assert (request.request, request.engine, part.worker, part.phase, part.writes) == (
        "r",
        "prefill",
        0,
        "moving",
        True,
    )
    assert (hold.request, hold.pin, hold.phase, hold.writers) == ("r", part.pin, "kept", 1)
    assert hold.promises == ((0, client.run, hold.until),)
    assert hold.until - source.now == pytest.approx(6)
    assert request.deadline - target.now == pytest.approx(20)
    assert (write.client, write.phase, write.under_way) == (client.key, "writing", True)
    assert (readable.pin, readable.whole) == (hold.pin, True)
    assert (client.claims, client.peer, client.plan) == (("r",), target.transport, engine.plan)
    assert (engine.mode, engine.status) == ("push", "connected")
    assert engine.peers == {source.transport}
    assert source.bytes_in_flight > target.bytes_in_flight == 0
    assert target.written == pages(ask(made, (0, 12)))
    assert source.peers == {target.transport}
    assert target.peers == {source.transport}


def test_blocks_of_a_failed_request_are_in_quarantine_until_its_writer_has_stopped(net: Net) -> None:
    made = pair(net, "push")
    writing(made).cancel()
    target = made.decode[0].inspect()
    (failed,) = target.failed
    assert (failed.request, failed.parts[0].phase, failed.parts[0].writes) == ("r", "leaving", True)
    assert (target.requests, target.written) == ((), frozenset())
    assert target.quarantined == pages(ask(made, (0, 12)))
    made.hub.frozen.clear()
    rounds(made, net)
    assert (made.decode[0].inspect().failed, made.decode[0].inspect().quarantined) == ((), frozenset())


def test_what_is_released_is_seen_until_it_is_taken(net: Net) -> None:
    made = pair(net, "pull")
    made.decode[0].submit(held(made), 20)
    rounds(made, net)
    assert made.prefill[0].inspect().untaken == ("r",)
    assert [one.why for one in made.prefill[0].released()] == ["finished"]
    rested(made.decode[0])
    empty(made.prefill[0])


def test_an_inspection_moves_nothing_and_does_not_change(net: Net) -> None:
    made = pair(net, "pull")
    made.decode[0].submit(held(made), 20)
    before = both(made)
    said = len(live(net).up.queue)
    assert both(made) == before
    assert len(live(net).up.queue) == said
    rounds(made, net)
    assert [part.phase for part in before[1].requests[0].parts] == ["claiming"]
    with pytest.raises(FrozenInstanceError):
        before[1].name = "another"  # type: ignore[misc]


def test_a_dropped_engine_is_retired_while_it_may_still_write(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    made.decode[0].drop("prefill")
    seen = made.decode[0].inspect()
    assert [engine.status for engine in seen.engines] == ["retired"]
    assert seen.met == seen.peers == {made.prefill[0].inspect().transport}


def test_a_closed_worker_has_nothing(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    made.close()
    assert (made.decode[0].inspect().requests, made.decode[0].inspect().peers) == ((), frozenset())
    assert (made.prefill[0].inspect().clients, made.prefill[0].inspect().peers) == ((), frozenset())
