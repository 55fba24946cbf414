"""Parse: the text of a plan back to the plan, after refusing everything but what `emit` writes."""

from __future__ import annotations

import ast

from kvplan.compiler.emit.emit import functions
from kvplan.plan.module import check_sealed, read_with_functions, refused
from kvplan.plan.types import Plan


def parse(text: str, name: str) -> Plan:
    """The plan that `text` defines; `name` says where it is from. Raises PlanFormatError for anything unexpected."""
    plan, nodes = read_with_functions(text, name)
    _check_letters(text, name, nodes, functions(plan))
    check_sealed(plan, text)
    return plan


def _check_letters(text: str, name: str, nodes: list[ast.FunctionDef], expected: dict[str, str]) -> None:
    """Every function must be, to the letter, the one that the plan's groups ask for."""
    lines = [line + "\n" for line in text.split("\n")]
    for node in nodes:
        if "".join(lines[node.lineno - 1 : node.end_lineno]) != expected[node.name]:
            raise refused(node, name, f"{node.name} is not what its groups need")
