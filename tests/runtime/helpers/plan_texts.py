"""Hand-made plans as the text of modules."""

from __future__ import annotations

from kvplan.compiler.emit.cost import plan_cost
from kvplan.compiler.emit.emit import emit
from kvplan.plan.types import Plan


def module_text(plan: Plan) -> str:
    """A module of this plan."""
    return emit(plan, plan_cost(plan))
