"""The number of notifications that each prefill worker of a plan waits for."""

from __future__ import annotations

from kvplan.plan.types import Plan


def expected(plan: Plan) -> list[int]:
    """Count every prefill worker's notifications: one from each decode worker that reads or only notifies it."""
    tells = [{*(read.worker for read in reads), *told} for reads, told in zip(plan.reads, plan.notify, strict=True)]
    return [sum(number in told for told in tells) for number in range(len(plan.prefill.workers))]
