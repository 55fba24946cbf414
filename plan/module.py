"""Plan modules, read: the text of a plan is parsed into values, and nothing in it is executed.

A module is a docstring, two imports, constants, and match functions. A constant is a number, a text, None, a tuple, an
earlier constant, or a constructor of these. A function is compared with the one that its pair's groups need, and that
one is called: all that a plan does follows from what its digest covers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from threading import Lock
from typing import cast

from kvplan.plan import digest, types
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.match_functions import HELPERS, build, names, render
from kvplan.plan.shape import check_shape
from kvplan.plan.spans import group_named
from kvplan.plan.types import Pair, Plan

CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")
CONSTRUCTORS: dict[str, Callable[..., object]] = {
    "Group": types.Group,
    "Loop": types.Loop,
    "Needs": types.Needs,
    "Nest": types.Nest,
    "Pair": types.Pair,
    "Plan": types.Plan,
    "Planes": types.Planes,
    "Read": types.Read,
    "Side": types.Side,
    "Table": types.Table,
    "View": types.View,
    "Worker": types.Worker,
}
IMPORTS = tuple(sorted({*CONSTRUCTORS, *HELPERS, "Blocks", "Runs"}, key=lambda word: (word.islower(), word)))
RESERVED = {*IMPORTS, "tuple", "range"}
# Python ends a line at a line feed, others do at these, too: what one reader takes for a line is one to all.
ODD = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x85\u2028\u2029]")
MOST_LAYERS = 1 << 16
# Bounds that no plan comes near: without them a text of a kilobyte could stand for more than there is memory.
MOST_VALUES, LARGEST = 1 << 22, 1 << 64
TRIES = 4
_PARSING = Lock()


def read(text: str, name: str) -> Plan:
    """The plan that a module's text defines; `name` is what errors call it.

    Raises PlanFormatError for anything but a plan of this version, with the place.
    """
    return read_with_functions(text, name)[0]


def read_with_functions(text: str, name: str) -> tuple[Plan, list[ast.FunctionDef]]:
    """What `read` reads, with the syntax trees of its match functions, one a pair. Raises as `read` does."""
    if odd := ODD.search(text):
        raise PlanFormatError(f"{name} has the character {odd[0]!a}, which no plan has: compile the plan again")
    try:
        return _read(text, name)
    except (SyntaxError, LookupError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        why = f"{name} is not a plan of this version: {type(error).__name__}: {error}"
        raise PlanFormatError(f"{why}; compile it again") from error


def check_sealed(plan: Plan, text: str) -> None:
    """Raises PlanFormatError where a plan that was read is not what its digests were made of."""
    digest.check(plan)
    if plan.functions and plan.functions != digest.functions(text):
        raise PlanFormatError("a match function of the plan was changed: compile the plan again")


def _tree(text: str, name: str) -> ast.Module:
    """The syntax tree of a text.

    CPython 3.11 counts the depth of trees for all threads together, so that two that parse at once may be told of a
    "recursion depth mismatch" (gh-106905): ours take turns, and where somebody else's was in the way it is asked again.
    """
    with _PARSING:
        for _ in range(TRIES - 1):
            with suppress(SystemError):
                return ast.parse(text, name)
        return ast.parse(text, name)


def _read(text: str, name: str) -> tuple[Plan, list[ast.FunctionDef]]:
    reader = _Reader(name)
    for number, statement in enumerate(_tree(text, name).body):
        reader.take(statement, number)
    plan = reader.values.get("PLAN")
    if not isinstance(plan, Plan):
        raise PlanFormatError(f"{name} defines no PLAN: give a module that `kvplan compile` wrote")
    check_shape(plan)
    return _with_functions(plan, reader.functions, name), reader.functions


class _Reader:
    """What the statements so far define: `values` by name, match functions as their syntax trees."""

    def __init__(self, name: str) -> None:
        self.name, self.values, self.functions = name, dict[str, object](), list[ast.FunctionDef]()
        self._imported = frozenset[str]()
        # The values so far, those of a constant counted again wherever it is named, since a digest goes through them
        # each time; and how many each constant has.
        self._count, self._sizes = 0, dict[str, int]()

    def take(self, statement: ast.stmt, number: int) -> None:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) if number == 0:
                return
            case ast.ImportFrom(module="__future__", names=[ast.alias(name="annotations", asname=None)]) if number == 1:
                return
            case ast.ImportFrom() if number == 2:
                self._import(statement)
            case ast.FunctionDef() if number > 2:
                self._define(statement, statement.name, statement)
                self.functions.append(statement)
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if number > 2:
                self._constant(statement, target, value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if number > 2:
                self._constant(statement, target, value)
            case _:
                raise refused(statement, self.name, "only tables and match functions belong into a plan")

    def _import(self, statement: ast.ImportFrom) -> None:
        names = {alias.name for alias in statement.names if alias.asname is None}
        if statement.module != "kvplan.plan.types" or statement.level or len(names) != len(statement.names):
            raise refused(statement, self.name, "a plan imports from kvplan.plan.types only")
        if strange := sorted(names - set(IMPORTS)):
            raise refused(statement, self.name, f"a plan does not need {', '.join(strange)}")
        self._imported = frozenset(names)

    def _constant(self, statement: ast.stmt, target: str, value: ast.expr) -> None:
        if not CONSTANT.fullmatch(target):
            raise refused(statement, self.name, "only constants are assigned to")
        before = self._count
        self._define(statement, target, self._value(value))
        self._sizes[target] = self._count - before

    def _define(self, statement: ast.stmt, target: str, value: object) -> None:
        if target in self.values or target in RESERVED:
            raise refused(statement, self.name, f"{target} is defined twice")
        self.values[target] = value

    def _value(self, node: ast.expr) -> object:
        self._add(node, 1)
        match node:
            case ast.Constant(value=str() | int() | None as value) if type(value) is not bool:
                return self._written(node, value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if type(value) is int:
                return self._written(node, -value)
            case ast.Name(id=word) if word in self.values:
                self._add(node, self._sizes.get(word, 0))
                return self.values[word]
            case ast.Tuple(elts=parts):
                return tuple(map(self._value, parts))
            case ast.Call(func=ast.Name(id="tuple"), args=[ast.Call(func=ast.Name(id="range")) as layers], keywords=[]):
                return self._layers(layers)
            case ast.Call(func=ast.Name(id=word)) if word in CONSTRUCTORS and word in self._imported:
                return self._made(node, CONSTRUCTORS[word])
        raise refused(node, self.name, "a value is a number, a text, a tuple or a constructor")

    def _add(self, node: ast.expr, values: int) -> None:
        self._count += values
        if self._count > MOST_VALUES:
            raise refused(node, self.name, f"there are more than {MOST_VALUES} values")

    def _written(self, node: ast.expr, value: object) -> object:
        if isinstance(value, int) and abs(value) > LARGEST:
            raise refused(node, self.name, "a number has more than 64 bits")
        return value

    def _layers(self, node: ast.Call) -> tuple[int, ...]:
        numbers = [self._value(part) for part in node.args]
        if node.keywords or not all(type(number) is int for number in numbers):
            raise refused(node, self.name, "a range is of whole numbers")
        found = range(*(number for number in numbers if isinstance(number, int)))
        if len(found) > MOST_LAYERS:
            raise refused(node, self.name, f"a range has {len(found)} numbers, at most {MOST_LAYERS}")
        self._add(node, len(found))
        return tuple(found)

    def _made(self, node: ast.Call, kind: Callable[..., object]) -> object:
        named = {word.arg: self._value(word.value) for word in node.keywords if word.arg is not None}
        if len(named) != len(node.keywords) or any(isinstance(part, ast.Starred) for part in node.args):
            raise refused(node, self.name, "values are written out")
        return kind(*map(self._value, node.args), **named)


def _with_functions(plan: Plan, functions: list[ast.FunctionDef], name: str) -> Plan:
    """`plan` with the functions that its groups need, which those in the text must be, pair by pair."""
    expected = names(plan.pairs)
    if [node.name for node in functions] != [expected[pair.name] for pair in plan.pairs]:
        have, need = [node.name for node in functions], list(expected.values())
        raise PlanFormatError(f"{name} defines functions {have}, its pairs need {need}: compile the plan again")
    return replace(plan, pairs=tuple(map(partial(_with_function, plan, name), plan.pairs, functions)))


def _with_function(plan: Plan, name: str, pair: Pair, node: ast.FunctionDef) -> Pair:
    groups = group_named(plan.prefill, pair.prefill), group_named(plan.decode, pair.decode)
    if cast(object, pair.match) is not node:
        raise PlanFormatError(f"{name}: pair {pair.name!r} uses another function than {node.name}")
    if _code(node) != _canonical(render(node.name, *groups, pair.needs, pair.rows)):
        raise refused(node, name, f"{node.name} is not what its groups need")
    return replace(pair, match=build(*groups, pair.needs, pair.rows))


@lru_cache(maxsize=1024)
def _canonical(text: str) -> str:
    """What `_code` says of a function's text, which many plans share."""
    return _code(_tree(text, "<match>").body[0])


def _code(node: ast.stmt) -> str:
    """A function without its docstring, to compare."""
    assert isinstance(node, ast.FunctionDef)
    documented = ast.get_docstring(node) is not None
    return ast.dump(ast.FunctionDef(**{**dict(ast.iter_fields(node)), "body": node.body[documented:]}))


def refused(node: ast.stmt | ast.expr, name: str, why: str) -> PlanFormatError:
    """What is raised of a place in a plan's text."""
    return PlanFormatError(f"{name}:{node.lineno}: {why}; compile the plan again")
