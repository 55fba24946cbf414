"""`inspect` shows a worker's operations in progress, and an idle worker."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from tests.runtime.decode.test_races import held, live, pair, rounds, writing
from tests.runtime.helpers.requests import ask
from tests.runtime.helpers.worlds import World
from tests.runtime.simulation.channels import Net

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
    (request,), (hold,), (write,), (reader,) = target.requests, source.holds, source.writes, source.readers
    (part,), (engine,), (readable,) = request.parts, target.engines, source.sources
    assert (source.name, target.name) == ("prefill worker 0", "decode worker 0")
    assert (request.request, request.engine, part.worker, part.phase, part.writes) == (
        "r",
        "prefill",
        0,
        "moving",
        True,
    )
    assert (hold.request, hold.number, hold.withdrawn) == ("r", part.hold, False)
    assert hold.promises == ((0, reader.run, hold.until),)
    assert hold.until - source.now == pytest.approx(6)
    assert request.deadline - target.now == pytest.approx(20)
    assert (write.reader, write.phase, write.under_way) == (reader.key, "writing", True)
    assert (readable.hold, readable.whole) == (hold.number, True)
    assert (reader.claims, reader.peer, reader.plan) == (("r",), target.transport, engine.plan)
    assert (engine.mode, engine.status) == ("push", "connected")
    assert engine.peers == {source.transport}
    assert source.bytes_in_flight > target.bytes_in_flight == 0
    assert target.written == pages(ask(made, (0, 12)))
    assert source.peers == {target.transport}
    assert target.peers == {source.transport}


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
