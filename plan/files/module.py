"""Read plan modules: parse the text of a plan into values without executing it.

A module is a docstring, an import, constants, and functions without arguments that return a value, so that code that
refers to constants may stand above them. A value is a number, a text, None, a tuple, a constant, a constructor of
these, or the result of such a function; a tuple may also have one value for each of some others. A plan's values
determine all that it does, and its digest covers them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from threading import Lock

from kvplan.plan import types
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.files.shape import check_shape
from kvplan.plan.types import FORMAT, Plan

CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")
CONSTRUCTORS: dict[str, Callable[..., object]] = {
    "Group": types.Group,
    "Loop": types.Loop,
    "Needs": types.Needs,
    "Nest": types.Nest,
    "PageRange": types.PageRange,
    "GroupPair": types.GroupPair,
    "Plan": types.Plan,
    "Planes": types.Planes,
    "Read": types.Read,
    "Side": types.Side,
    "Table": types.Table,
    "View": types.View,
    "Worker": types.Worker,
}
IMPORTS = tuple(sorted(CONSTRUCTORS))
# The functions that a plan may define, with their return annotations.
FUNCTIONS = {"reads": "tuple[tuple[Read, ...], ...]", "prefill": "Side", "decode": "Side"}
# The variables of a value that is written once for several.
VARIABLES = (["name"], ["name", "layers", "plane"], ["name", "layers", "first"])
RESERVED = {*IMPORTS, "tuple", "range"}
# Python ends a line only at a line feed, other readers also at these: all readers must see the same lines.
ODD = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x85\u2028\u2029]")
MOST_LAYERS = 1 << 16
# Bounds far above any plan, because a text of a kilobyte could stand for more than memory holds.
MOST_VALUES, LARGEST = 1 << 22, 1 << 64
# Characters of a text: parsing takes a thousand times as many bytes. A plan of 700 workers has 150,000.
MOST_TEXT = 1 << 21
TRIES = 4
# The most characters of a statement that an error shows.
SHOWN = 60
_PARSING = Lock()


def read(text: str, name: str) -> Plan:
    """Return the plan that a module's text defines; errors call it `name`.

    Raises PlanFormatError for anything but a plan of this version, with the place.
    """
    if odd := ODD.search(text):
        raise PlanFormatError(f"{name} has the character {odd[0]!a}, which no plan has: compile the plan again")
    try:
        return _read(text, name)
    except (SyntaxError, LookupError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        why = f"{name} is not a plan of this version: {type(error).__name__}: {error}"
        raise PlanFormatError(f"{why}; compile it again") from error


def _tree(text: str, name: str) -> ast.Module:
    """Return the syntax tree of a text.

    CPython 3.11 counts the depth of trees for all threads together, so that two parsers at once may raise a
    "recursion depth mismatch" (gh-106905). Ours take turns, and retry if another parser interferes.
    """
    with _PARSING:
        for _ in range(TRIES - 1):
            with suppress(SystemError):
                return ast.parse(text, name)
        return ast.parse(text, name)


def _read(text: str, name: str) -> Plan:
    if len(text) > MOST_TEXT:
        raise PlanFormatError(f"{name} has {len(text)} characters, a plan at most {MOST_TEXT}; compile the plan again")
    reader, statements = _Reader(name), _tree(text, name).body
    _check_format(statements, name)
    for number, statement in enumerate(statements):
        reader.take(statement, number)
    plan = reader.values.get("PLAN")
    if not isinstance(plan, Plan) or reader.functions:
        raise PlanFormatError(f"{name} defines no PLAN: give a module that `kvplan compile` wrote")
    check_shape(plan)
    return plan


def _check_format(statements: list[ast.stmt], name: str) -> None:
    """Raises PlanFormatError for a plan of another version, even if other things have changed in it, too."""
    calls = [s.value for s in statements if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)]
    for word in (word for call in calls if ast.unparse(call.func) == "Plan" for word in call.keywords):
        found = word.value.value if isinstance(word.value, ast.Constant) else None
        if word.arg == "format" and type(found) is int and found != FORMAT:
            message = f"{name} has plan format {found}, this version reads {FORMAT}: compile the plan again"
            raise PlanFormatError(message, found)


class _Reader:
    """The definitions of the statements so far: `values` by name, functions as the expressions that they return."""

    def __init__(self, name: str) -> None:
        self.name, self.values, self.functions = name, dict[str, object](), dict[str, ast.expr]()
        self._imported = frozenset[str]()
        # The values so far, and the size of each constant. A constant's values count again at every use, because a
        # digest goes through them each time.
        self._count, self._sizes = 0, dict[str, int]()

    def take(self, statement: ast.stmt, number: int) -> None:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) if number == 0:
                return
            case ast.ImportFrom() if number == 1:
                self._import(statement)
            case ast.FunctionDef(name=name, body=[ast.Return(value=ast.expr() as value)]) if number > 1:
                self._check_function(statement)
                self._define(statement, name)
                self.functions[name] = value
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if number > 1:
                self._constant(statement, target, value)
            case _:
                raise refused(
                    statement, self.name, f"kvplan writes nothing like {ast.unparse(statement)[:SHOWN]!a} into a plan"
                )

    def _import(self, statement: ast.ImportFrom) -> None:
        names = {alias.name for alias in statement.names if alias.asname is None}
        if statement.module != "kvplan.plan.types" or statement.level or len(names) != len(statement.names):
            raise refused(statement, self.name, "a plan imports from kvplan.plan.types only")
        if strange := sorted(names - set(IMPORTS)):
            raise refused(statement, self.name, f"a plan does not need {', '.join(strange)}")
        self._imported = frozenset(names)

    def _check_function(self, node: ast.FunctionDef) -> None:
        """Check that a function of a plan only names the value that it returns."""
        if node.name not in FUNCTIONS or _head(node) != _head_of(node.name):
            raise refused(node, self.name, "a function of a plan is reads, prefill or decode, and takes nothing")

    def _constant(self, statement: ast.stmt, target: str, value: ast.expr) -> None:
        if not CONSTANT.fullmatch(target):
            raise refused(statement, self.name, "only constants are assigned to")
        before = self._count
        self._define(statement, target)
        self.values[target] = self._value(value)
        self._sizes[target] = self._count - before

    def _define(self, statement: ast.stmt, target: str) -> None:
        if target in self.values or target in self.functions or target in RESERVED:
            raise refused(statement, self.name, f"{target} is defined twice")

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
                return tuple(item for part in parts for item in self._items(part))
            case ast.Call(func=ast.Name(id="tuple"), args=[ast.Call(func=ast.Name(id="range")) as layers], keywords=[]):
                return self._layers(layers)
            case ast.Call(func=ast.Name(id=word), args=[], keywords=[]) if word in self.functions:
                # Each function is called once, so that one that calls itself is no longer found.
                return self._value(self.functions.pop(word))
            case ast.Call(func=ast.Name(id=word)) if word in CONSTRUCTORS and word in self._imported:
                return self._construct(node, CONSTRUCTORS[word])
        raise refused(node, self.name, "a value is a number, a text, a tuple or a constructor")

    def _items(self, node: ast.expr) -> list[object]:
        """Return the values of a tuple's item: itself, or one each for `*(Group(name, …) for name in ("a", "b"))`."""
        match node:
            case ast.Starred(
                value=ast.GeneratorExp(elt=each, generators=[ast.comprehension(ifs=[], is_async=0) as loop])
            ):
                targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
                words = [target.id for target in targets if isinstance(target, ast.Name)]
                rows = self._value(loop.iter)
                if words not in VARIABLES or not isinstance(rows, tuple) or not self.values.keys().isdisjoint(words):
                    raise refused(node, self.name, "values are written out")
                return [self._each(each, words, row if len(words) > 1 else (row,)) for row in rows]
        return [self._value(node)]

    def _each(self, node: ast.expr, words: list[str], row: object) -> object:
        """Return a value with the variables `words`, which have the values of `row`."""
        if not isinstance(row, tuple):
            raise refused(node, self.name, "values are written out")
        self.values.update(zip(words, row, strict=True))
        made = self._value(node)
        for word in words:
            del self.values[word]
        return made

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
        layers = range(*(number for number in numbers if isinstance(number, int)))
        # `len` of a range of 2^63 numbers and more raises OverflowError.
        if layers[MOST_LAYERS:]:
            raise refused(node, self.name, f"a range has more than {MOST_LAYERS} numbers")
        self._add(node, len(layers))
        return tuple(layers)

    def _construct(self, node: ast.Call, kind: Callable[..., object]) -> object:
        named = {word.arg: self._value(word.value) for word in node.keywords if word.arg is not None}
        if len(named) != len(node.keywords) or any(isinstance(part, ast.Starred) for part in node.args):
            raise refused(node, self.name, "values are written out")
        return kind(*map(self._value, node.args), **named)


def _head(node: ast.stmt) -> str:
    """Return all of a function except its body, to compare: arguments, decorators, the return annotation."""
    return ast.dump(ast.FunctionDef(**{**dict(ast.iter_fields(node)), "body": []}))


@cache
def _head_of(name: str) -> str:
    return _head(ast.parse(f"def {name}() -> {FUNCTIONS[name]}: ...").body[0])


def refused(node: ast.stmt | ast.expr, name: str, why: str) -> PlanFormatError:
    """Return the error for a place in a plan's text."""
    return PlanFormatError(f"{name}:{node.lineno}: {why}; compile the plan again")
