"""Parse: the text of a plan back to the plan, after refusing everything but what `emit` writes."""

from __future__ import annotations

import ast

from kvplan.compiler.emit.emit import functions
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.module import check_sealed, read, refused
from kvplan.plan.types import Plan


def parse(text: str, name: str) -> Plan:
    """The plan that `text` defines; `name` says where it is from. Raises PlanFormatError for anything unexpected."""
    plan = read(text, name)
    _check_functions(text, name, plan)
    check_sealed(plan, text)
    return plan


def _check_functions(text: str, name: str, plan: Plan) -> None:
    """Every function must be, to the letter, the one that the plan's groups ask for."""
    lines = [line + "\n" for line in text.split("\n")]
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    expected = functions(plan)
    if list(found) != list(expected):
        raise PlanFormatError(f"{name} defines functions {list(found)}, its pairs need {list(expected)}")
    for function, node in found.items():
        if "".join(lines[node.lineno - 1 : node.end_lineno]) != expected[function]:
            raise refused(node, name, f"{function} is not what its groups need")
