"""A plan whose match functions were changed is refused, whatever was changed; the simulator sees what it changes."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest
from tests.compiler.prove.mutants.copies import traced
from tests.compiler.prove.test_mutants import whole

from kvplan.compiler.check.request import Copy
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.prove.parse import parse
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Plan

PAIRS = (
    "heads 4 to 2",
    "unlike blocks",
    "shares of tokens",
    "windows and sinks",
    "chunks",
    "rows of one and of two",
    "states 4 to 1",
    "a hybrid",
)
OTHER = {"+": "-", "-": "+", "*": "+", "//": "%", "%": "//", "&": "|", "==": "!=", "<=": "<", "<": "<="}
SWAPPED = {"p_block": "d_block", "p_token": "d_token", "p_shard": "d_shard", "prefill": "decode", "low": "first",
           "first": "end", "max": "min", "min": "max", "token": "count"}  # fmt: skip
BOTH = OTHER | SWAPPED | {there: here for here, there in SWAPPED.items() if there not in SWAPPED}
LINES = {
    "a decorator": ("def ", "@staticmethod\ndef "),
    "a default": ("d_shard: int)", "d_shard: int = 0)"),
    "another argument": ("d_shard: int)", "d_shard: int, more: int)"),
    "a comment": ("    return ", "    # as it was\n    return "),
    "another statement": ("    return ", "    import os\n    return "),
    "two returns": ("    return ", "    return prefill\n    return "),
    "other words": ('    """', '    """Not the '),
}


@cache
def code(name: str) -> tuple[str, str, str]:
    """The text of a plan: what stands before its functions, the functions, what stands behind."""
    text = whole(name)[0].text
    start = text.index("\ndef ") + 1
    end = text.index("\n\n\n", text.rindex("\ndef "))
    return text[:start], text[start:end], text[end:]


def altered(functions: str) -> Iterator[tuple[str, str]]:
    """Every number one larger, and every operator and name that has a counterpart exchanged for it, one at a time."""
    lines = functions.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(functions).readline):
        row, start, end = token.start[0] - 1, token.start[1], token.end[1]
        number = token.type == tokenize.NUMBER
        other = str(int(token.string) + 1) if number else BOTH.get(token.string)
        if other is not None and not lines[row].startswith("def "):
            line = f"{lines[row][:start]}{other}{lines[row][end:]}"
            yield line.strip(), "".join([*lines[:row], line, *lines[row + 1 :]])


def dropped(functions: str) -> Iterator[tuple[str, str]]:
    """One line of a body gone, unless it is all that is left."""
    lines = functions.splitlines(keepends=True)
    for row, line in enumerate(lines):
        if line.startswith("    ") and not line.startswith('    """'):
            yield line.strip(), "".join([*lines[:row], *lines[row + 1 :]])


@pytest.mark.parametrize("name", PAIRS)
def test_a_changed_function_is_refused(name: str) -> None:
    before, functions, behind = code(name)
    found = [*altered(functions), *dropped(functions)]
    assert found
    for line, text in found:
        assert text != functions
        with pytest.raises(PlanFormatError):
            parse(before + text + behind, line)


@pytest.mark.parametrize("change", LINES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_function_with_anything_else_is_refused(name: str, change: str) -> None:
    before, functions, behind = code(name)
    text = functions.replace(*LINES[change], 1)
    assert text != functions
    with pytest.raises(PlanFormatError):
        parse(before + text + behind, change)


def test_functions_exchanged_or_given_to_other_pairs_are_refused() -> None:
    before, functions, behind = code("rows of one and of two")
    one, other = (line[4 : line.index("(")] for line in functions.splitlines() if line.startswith("def "))
    swapped = functions.replace(f"def {one}(", "def X(").replace(f"def {other}(", f"def {one}(")
    for text in (
        before + swapped.replace("def X(", f"def {other}(") + behind,
        before + functions + behind.replace(f", {one}", f", {other}"),
        before + functions + behind.replace(f", {one}", f", {other}", 1),
    ):
        assert text != before + functions + behind
        with pytest.raises(PlanFormatError):
            parse(text, "exchanged")


def executed(text: str) -> Plan:
    """The plan of a text that nobody has checked."""
    space: dict[str, object] = {"__name__": "plan"}
    exec(compile(text, "changed", "exec"), space)
    plan = space["PLAN"]
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("name", ["unlike blocks", "shares of tokens", "windows and sinks", "chunks"])
def test_the_simulator_sees_every_change_that_copies_other_bytes(name: str) -> None:
    (made, _, _, request), (before, functions, behind) = whole(name), code(name)
    right, unlike = traced(made.plan, request), dict[str, list[Copy]]()
    for line, text in altered(functions):
        try:
            moves = traced(executed(before + text + behind), request)
        except (NameError, TypeError, OverflowError):
            continue
        if moves is not None and moves != right:
            unlike[line] = moves
    assert len(unlike) > 5
    wrong = {line: simulate(made.plan, made.prefill, made.decode, moves, request) for line, moves in unlike.items()}
    assert [line for line, report in wrong.items() if report.right] == []
