"""Parse: the text of a plan back to the plan, after refusing everything but what `emit` writes."""

from __future__ import annotations

from kvplan.plan import digest
from kvplan.plan.files.module import read
from kvplan.plan.types import Plan


def parse(text: str, name: str) -> Plan:
    """The plan that `text` defines; `name` says where it is from. Raises PlanFormatError for anything unexpected."""
    plan = read(text, name)
    digest.check(plan)
    return plan
