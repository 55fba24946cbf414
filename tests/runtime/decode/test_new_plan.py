"""Another plan for a pair that has met, compiled while both run: taken by the next meeting, and no byte goes wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.runtime.decode.test_worker import freed, submitted, until
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask
from tests.runtime.helpers.worlds import World, world

from kvplan.plan import digest
from kvplan.runtime.plans.catalog import FixedPlans


def replan(made: World) -> str:
    """Give both sides another plan for the pair, of the same meaning; its digest."""
    plan = digest.sealed(replace(made.plan, options=(("elect", "spread"), ("strategy", "direct"))))
    assert plan.digest != made.plan.digest
    made.prefill[0].plans = made.decode[0].plans = FixedPlans((plan,))
    return plan.digest


@pytest.mark.parametrize("replanned", [False, True])
def test_blocks_that_are_written_by_the_plan_before_stay_in_quarantine(replanned: bool) -> None:
    """What stopped is said of all that was written for a decode worker, by whatever plan."""
    made = world(Shape(1), Shape(1), mode="push")
    worker = made.decode[0]
    made.hub.frozen.add(worker._transport.name)
    submitted(made, ask(made, (0, 12)))
    until(lambda: any(write.executor.under_way for write in made.prefill[0]._inbox.writes._all.values()))
    if replanned:
        replan(made)
    worker.drop("prefill")
    worker.connect(made.prefill[0].address, 10, mode="push")
    for _ in range(200):
        assert not freed(worker), "prefill still writes them"
        worker.rest(0.001)
    made.hub.frozen.clear()
    until(lambda: freed(worker))
    made.close()
