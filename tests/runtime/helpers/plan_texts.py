"""Hand-made plans as the text of modules."""

from __future__ import annotations

from kvplan.compiler.cost.cost import plan_cost
from kvplan.compiler.emit.emit import emit
from kvplan.plan import digest
from kvplan.plan.types import Plan


def module_text(plan: Plan) -> str:
    """A module of this plan, sealed."""
    whole = digest.sealed(plan)
    return emit(whole, plan_cost(whole))
