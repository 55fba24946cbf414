"""Hand-made plans as the text of modules."""

from __future__ import annotations

from dataclasses import replace

from kvplan.compiler.emit.cost import plan_cost
from kvplan.compiler.emit.emit import emit, functions
from kvplan.plan import digest
from kvplan.plan.types import Plan


def module_text(plan: Plan) -> str:
    """A module of this plan, sealed with the match functions that its groups need."""
    texts = "".join(functions(plan).values())
    whole = digest.sealed(replace(plan, functions=digest.functions(texts)))
    return emit(whole, plan_cost(whole))
