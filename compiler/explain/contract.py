"""The number of notifications that each prefill worker of a plan waits for."""

from __future__ import annotations

from kvplan.plan.types import Plan


def expected(plan: Plan) -> list[int]:
    """Count every prefill worker's notifications: one from each decode worker that reads or only notifies it."""
    sent = [{*(read.worker for read in reads), *only} for reads, only in zip(plan.reads, plan.notify, strict=True)]
    return [sum(number in each for each in sent) for number in range(len(plan.prefill.workers))]
