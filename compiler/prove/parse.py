"""Parse: the text of a plan back to the plan, after refusing everything but what `emit` writes."""

from __future__ import annotations

import ast
import re

from kvplan.compiler.emit.emit import IMPORTS, functions
from kvplan.compiler.prove.shape import check_shape
from kvplan.plan.digest import check, check_functions
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Plan

CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")
CALLS = {*IMPORTS, "tuple", "range"} - {"Blocks", "Runs", "both", "cuts", "slots", "turns"}


def parse(text: str, name: str) -> Plan:
    """The plan that `text` defines; `name` says where it is from. Raises PlanFormatError for anything unexpected."""
    tree = _tree(text, name)
    defined: set[str] = set()
    for number, statement in enumerate(tree.body):
        _check(statement, number, name, defined)
    plan = _run(tree, name)
    _check_functions(tree, text, name, plan)
    check_shape(plan)
    check(plan)
    check_functions(plan, text)
    return plan


def _tree(text: str, name: str) -> ast.Module:
    try:
        return ast.parse(text, name)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise PlanFormatError(f"{name} is not a plan: {error}") from error


def _run(tree: ast.Module, name: str) -> Plan:
    space: dict[str, object] = {"__name__": "plan"}
    try:
        exec(compile(tree, name, "exec"), space)
    except (TypeError, ValueError, NameError, ImportError, OverflowError, MemoryError) as error:
        raise PlanFormatError(f"{name} is not a plan of this version: {error}; compile it again") from error
    plan = space.get("PLAN")
    if not isinstance(plan, Plan):
        raise PlanFormatError(f"{name} defines no PLAN; compile it again")
    return plan


def _check(statement: ast.stmt, number: int, name: str, defined: set[str]) -> None:
    if number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return
    if number == 1 and ast.unparse(statement) == "from __future__ import annotations":
        return
    if number == 2 and isinstance(statement, ast.ImportFrom):
        return _check_import(statement, name)
    if number > 2 and isinstance(statement, ast.FunctionDef):
        return _check_function(statement, name, defined)
    if number > 2 and isinstance(statement, ast.Assign | ast.AnnAssign):
        return _check_assign(statement, name, defined)
    raise _refused(statement, name, "only tables and match functions belong into a plan")


def _check_import(statement: ast.ImportFrom, name: str) -> None:
    names = {alias.name for alias in statement.names if alias.asname is None}
    if statement.module != "kvplan.plan.types" or statement.level or len(names) != len(statement.names):
        raise _refused(statement, name, "a plan imports from kvplan.plan.types only")
    if not names <= set(IMPORTS):
        raise _refused(statement, name, f"a plan does not need {', '.join(sorted(names - set(IMPORTS)))}")


def _check_function(statement: ast.FunctionDef, name: str, defined: set[str]) -> None:
    """No code that runs on definition; the body is compared with what `emit` writes before anyone calls it."""
    arguments = statement.args
    if statement.decorator_list or arguments.defaults or any(arguments.kw_defaults):
        raise _refused(statement, name, "a match function has no decorators and no defaults")
    _define(statement, name, statement.name, defined)


def _check_assign(statement: ast.Assign | ast.AnnAssign, name: str, defined: set[str]) -> None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, ast.Name) or not CONSTANT.fullmatch(target.id):
        raise _refused(statement, name, "only constants are assigned to")
    if statement.value is None:
        raise _refused(statement, name, "a constant has a value")
    _check_value(statement.value, name, defined)
    _define(statement, name, target.id, defined)


def _define(statement: ast.stmt, name: str, target: str, defined: set[str]) -> None:
    if target in defined or target in CALLS or target in IMPORTS:
        raise _refused(statement, name, f"{target} is defined twice")
    defined.add(target)


def _check_value(node: ast.expr, name: str, defined: set[str]) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | None):
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return _check_value(node.operand, name, defined)
    if isinstance(node, ast.Name) and node.id in defined:
        return
    if isinstance(node, ast.Tuple):
        parts: list[ast.expr] = node.elts
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        if any(keyword.arg is None for keyword in node.keywords):
            raise _refused(node, name, "values are written out")
    else:
        raise _refused(node, name, "a value is a number, a text, a tuple or a constructor")
    for part in parts:
        _check_value(part, name, defined)


def _check_functions(tree: ast.Module, text: str, name: str, plan: Plan) -> None:
    """Every function must be, to the letter, the one that the plan's groups ask for."""
    lines = [line + "\n" for line in text.split("\n")]
    found = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    expected = functions(plan)
    if list(found) != list(expected):
        raise PlanFormatError(f"{name} defines functions {list(found)}, its pairs need {list(expected)}")
    for function, pair in zip(expected, plan.pairs, strict=True):
        node = found[function]
        if "".join(lines[node.lineno - 1 : node.end_lineno]) != expected[function]:
            raise _refused(node, name, f"{function} is not what its groups need")
        if getattr(pair.match, "__name__", None) != function:
            raise PlanFormatError(f"{name}: pair {pair.name!r} uses another function than {function}")


def _refused(node: ast.stmt | ast.expr, name: str, why: str) -> PlanFormatError:
    return PlanFormatError(f"{name}:{node.lineno}: {why}; compile the plan again")
