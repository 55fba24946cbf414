"""Evaluate expressions to numbers, truth values, words and sets of sizes. Nothing is converted implicitly.

Names may also have foreign values, such as lists, which only the functions in `foreign` take apart.
"""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce

from kvplan.dsl.lang import dtypes, foreign
from kvplan.dsl.lang.functions import ABOUT_NAMES, FOREIGN_ARITY
from kvplan.dsl.lang.nodes import Binary, Call, Choice, Expr, Name, Node, Number, SizeSet, Text, Unary, Value, used
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, fault, nearest
from kvplan.dsl.text.source import SourceSpan

Env = Mapping[str, object]
Result = Value | SizeSet
# A tuple, because a union in a call would be made at each call.
RESULTS = (bool, int, str, SizeSet)
LIMIT = 1 << 63


def evaluate(expr: Expr, env: Env) -> Result:
    """The value of `expr`, whose names have the values in `env` (`rank(axis)` and `given(name)` are such names).

    Raises DslError with the values in play: E005 unknown name, T001 wrong type, T002 unknown element type, B001
    division by zero, B002 too large, B003 no size divides, E026 missing foreign value, B007 missing entry.
    """
    try:
        return evaluated(expr.tree, env)
    except DslError as error:
        raise _played(error, expr, env) from None


def evaluated(node: Node, env: Env) -> Result:
    """The value of a part of an expression. Raises like `evaluate`, without the values in play."""
    value = _value(node, env)
    # A foreign value, a list for example, is no result.
    if isinstance(value, RESULTS):
        return value
    raise foreign.mistyped(node, "a number or a word", value)


def several(expr: Expr, env: Env) -> tuple[object, ...] | Mapping[str, object] | None:
    """The foreign list or mapping that is the value of `expr`; None for any other value or an error."""
    try:
        value = _value(expr.tree, env)
    except DslError:
        return None
    return value if isinstance(value, tuple | Mapping) else None


def is_true(expr: Expr, env: Env) -> bool:
    """Whether a condition is true, or a number other than 0. Raises DslError: T001 for a word, else like `evaluate`."""
    try:
        return _truth(expr.tree, env)
    except DslError as error:
        raise _played(error, expr, env) from None


def _played(error: DslError, expr: Expr, env: Env) -> DslError:
    """`error` with the values in play."""
    values = in_play(expr, env)
    return error.replaced(*(replace(d, values=values) for d in error.diagnostics))


def in_play(expr: Expr, env: Env) -> tuple[tuple[str, object], ...]:
    """The names that `expr` uses, in order, with their values, to show in an error. Foreign lists are left out."""
    shown = dict.fromkeys(n.id for n in used(expr.tree) if isinstance(env.get(n.id), bool | int | str | SizeSet))
    return tuple((name, env[name]) for name in shown)


def filled(text: str, env: Env) -> str:
    """`text` with every `{name}` replaced by its value."""
    names = sorted(name for name in env if "{" + name + "}" in text) if "{" in text else []
    return reduce(lambda part, name: part.replace("{" + name + "}", str(env[name])), names, text)


def _value(node: Node, env: Env) -> object:
    # The most frequent nodes first, for speed.
    match node:
        case Name():
            return _look_up(node.id, node.span, env)
        case Number() | Text():
            return node.value
        case Binary():
            return _binary(node, env)
        case Call():
            return _call(node, env)
        case Choice():
            return _value(node.then if _truth(node.test, env) else node.other, env)
        case Unary():
            return not _truth(node.value, env) if node.op == "not" else -_number(node.value, env)


def _binary(node: Binary, env: Env) -> Value:
    if node.op == "and":
        return _truth(node.left, env) and _truth(node.right, env)
    if node.op == "or":
        return _truth(node.left, env) or _truth(node.right, env)
    return _arithmetic(node, env) if node.op in ARITHMETIC else _compare(node, env)


def _look_up(name: str, span: SourceSpan, env: Env) -> object:
    if name not in env:
        # A missing foreign name is no misspelling.
        help = "" if foreign.ASSUMING in env else nearest(name, env)
        raise fault("E005", f"unknown name '{name}'", span, help=help)
    return foreign.usable(env[name], name, span)


def _number(node: Node, env: Env) -> int:
    value = _value(node, env)
    if isinstance(value, bool) or not isinstance(value, int):
        raise foreign.mistyped(node, "a number", value)
    return value


def _truth(node: Node, env: Env) -> bool:
    """The truth of a condition; a number is true unless it is 0."""
    value = _value(node, env)
    if not isinstance(value, int):
        raise foreign.mistyped(node, "a condition", value)
    return bool(value)


def _set(node: Node, env: Env) -> SizeSet:
    value = _value(node, env)
    if not isinstance(value, SizeSet):
        raise foreign.mistyped(node, "a set of sizes", value, help="multiples(16) or sizes(16, 32)")
    return value


COMPARE: Mapping[str, Callable[[int, int], bool]] = {"<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}
ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "+": op.add, "-": op.sub, "*": op.mul, "//": op.floordiv, "%": op.mod,
}  # fmt: skip


def _compare(node: Binary, env: Env) -> bool:
    if node.op not in ("==", "!="):
        return COMPARE[node.op](_number(node.left, env), _number(node.right, env))
    left, right = _value(node.left, env), _value(node.right, env)
    if not foreign.alike(left, right):
        message = f"{foreign.described(left)} cannot be compared with {foreign.described(right)}"
        raise foreign.WrongTypeError(node, Diagnostic("T001", message, node.span))
    return (left == right) is (node.op == "==")


def _arithmetic(node: Binary, env: Env) -> int:
    left, right = _number(node.left, env), _number(node.right, env)
    if node.op in ("//", "%") and right == 0:
        raise fault("B001", "division by zero", node.right.span)
    return _checked(ARITHMETIC[node.op](left, right), node.span)


def _checked(value: int, span: SourceSpan) -> int:
    if abs(value) >= LIMIT:
        raise fault("B002", "the result is too large: it does not fit 63 bits", span)
    return value


FOLDS: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "gcd": math.gcd, "lcm": math.lcm}


def _call(node: Call, env: Env) -> object:
    name = node.function
    if name in ABOUT_NAMES:
        assert isinstance(node.args[0], Name)
        return _look_up(f"{name}({node.args[0].id})", node.span, env)
    if name == "bytes":
        return _bytes(node.args[0], env)
    if name in OF_SIZES:
        return OF_SIZES[name](node, env)
    if name == "among":
        return foreign.among(node, env, _value)
    if name in FOREIGN_ARITY:
        return foreign.call(node, env, _value)
    numbers = [_number(arg, env) for arg in node.args]
    if name in ("multiples", "sizes"):
        return _sizes(node, numbers)
    if name == "ceildiv":
        return _ceildiv(node, *numbers)
    if name == "pow2":
        return _checked(1 << max(numbers[0] - 1, 0).bit_length(), node.span)
    return _checked(FOLDS[name](numbers) if name in ("min", "max") else FOLDS[name](*numbers), node.span)


def _bytes(node: Node, env: Env) -> int:
    # A bare name without a value is the element type itself: bytes(f32).
    word = node.id if isinstance(node, Name) and node.id not in env else _value(node, env)
    if not isinstance(word, str) or dtypes.canonical(word) not in dtypes.SIZES:
        shown = word if isinstance(word, str) else foreign.described(word)
        raise fault("T002", f"'{shown}' is not an element type", node.span, help=dtypes.advice(str(word)))
    return dtypes.size(word)


def _sizes(node: Call, numbers: list[int]) -> SizeSet:
    if min(numbers) < 1:
        raise fault("T001", f"sizes are numbers from 1, not {min(numbers)}", node.span)
    return SizeSet(step=numbers[0]) if node.function == "multiples" else SizeSet(only=tuple(sorted(set(numbers))))


def _ceildiv(node: Call, value: int, by: int) -> int:
    if by == 0:
        raise fault("B001", "division by zero", node.args[1].span)
    return -(-value // by)


def _least(node: Call, env: Env) -> int:
    sizes = _set(node.args[0], env)
    return min(sizes.only) if sizes.only else sizes.step


def _largest(node: Call, env: Env) -> int:
    sizes, total = _set(node.args[0], env), _number(node.args[1], env)
    if sizes.only:
        fits = [size for size in sizes.only if total > 0 and total % size == 0]
    else:
        fits = [total] if total > 0 and total % sizes.step == 0 else []
    if not fits:
        said = f"none of {', '.join(map(str, sizes.only))} divides {total}, the tokens of a block"
        help = "choose a block that one of them divides"
        if not sizes.only:
            said = f"{total} tokens of a block are no multiple of {sizes.step}"
            help = f"choose {sizes.step}, {2 * sizes.step}, {3 * sizes.step} or another multiple"
        raise fault("B003", said, node.span, help=help)
    return max(fits)


def _most(node: Call, env: Env) -> int:
    """The largest size, 0 for an infinite set."""
    sizes = _set(node.args[0], env)
    return max(sizes.only) if sizes.only else 0


def _within(node: Call, env: Env) -> int:
    """The largest size up to a number; the smallest size if all are larger."""
    sizes, limit = _set(node.args[0], env), _number(node.args[1], env)
    if not sizes.only:
        return max(sizes.step, limit // sizes.step * sizes.step)
    return max((size for size in sizes.only if size <= limit), default=min(sizes.only))


OF_SIZES: Mapping[str, Callable[[Call, Env], int]] = {
    "least": _least, "most": _most, "largest": _largest, "within": _within,
}  # fmt: skip
