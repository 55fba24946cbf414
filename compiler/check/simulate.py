"""Simulate: a plan's own copies, audited as a plan's: nothing beyond what is needed, and its readers spread evenly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.audit.audit import Survey, judged, unchecked_survey
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.balance import uneven
from kvplan.compiler.check.request import Copy
from kvplan.plan.request import Request
from kvplan.plan.types import Plan

FINDINGS = 5


def simulate(plan: Plan, prefill: BoundSide, decode: BoundSide, copies: Iterable[Copy], request: Request) -> Verdict:
    """Execute `copies` for `request` and compare every byte that the request needs on every decode worker.

    A needed byte has to be written exactly once, from its own coordinate; nothing else may be written, but padding
    inside a page from padding, and no copy may begin or end there. Readers have to be even over holders of the same.
    """
    return simulated(plan, unchecked_survey(prefill, decode, request), copies)


def simulated(plan: Plan, survey: Survey, copies: Iterable[Copy]) -> Verdict:
    """As `simulate`, of a request that was surveyed."""
    verdict = judged(survey, tuple(copies), FINDINGS, strict=True)
    return replace(verdict, crowded=tuple(uneven(plan, *survey.sides)))
