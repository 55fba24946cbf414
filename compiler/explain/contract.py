"""Who waits for whom: the notifications of a plan, counted."""

from __future__ import annotations

from kvplan.plan.types import Plan


def expected(plan: Plan) -> list[int]:
    """How many notifications every prefill worker waits for: one of each decode worker that reads or tells it."""
    tells = [{*(read.worker for read in reads), *told} for reads, told in zip(plan.reads, plan.notify, strict=True)]
    return [sum(number in told for told in tells) for number in range(len(plan.prefill.workers))]
