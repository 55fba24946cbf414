"""The table of transfers, through a worker of each side and a clock that the test moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.runtime.decode.test_races import elsewhere, held, live, pair, rounds
from tests.runtime.helpers.requests import looked_at
from tests.runtime.simulation.channels import Net

from kvplan.runtime.protocol.phases import Phase


def test_who_is_done_has_been_confirmed_by_all(net: Net) -> None:
    made = pair(net, "pull")
    transfer = looked_at(made.decode[0].submit(held(made), 20))
    (part,) = transfer.parts
    made.prefill[0].run_once()
    while part.phase is not Phase.TOLD:
        made.decode[0].run_once()
    # Another prefill worker, which has confirmed: one is not all.
    transfer.parts = (part, replace(part, phase=Phase.CONFIRMED))
    for _ in range(4):
        made.decode[0].run_once()
    assert (transfer.state, transfer.progress) == ("running", 0.999)
    made.prefill[0].run_once()
    made.decode[0].run_once()
    assert (transfer.state, transfer.progress) == ("done", 1.0)


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
