"""A plan whose text was changed is refused, whatever was changed; the simulator sees what it changes in a match."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest
from tests.compiler.prove.mutants.copies import traced
from tests.compiler.prove.test_mutants import whole

from kvplan.compiler.check.request import Copy
from kvplan.compiler.check.simulate import simulate
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.files.loader import parse
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
FUNCTIONS = {
    "a decorator": ("def reads", "@staticmethod\ndef reads"),
    "a default": ("def reads()", "def reads(a=0)"),
    "another argument": ("def reads()", "def reads(more)"),
    "another result": ("() -> Side:", "() -> Read:"),
    "another statement": ("    return ", "    import os\n    return "),
    "two returns": ("    return ", "    return ()\n    return "),
    "words": ("    return ", '    """Not this."""\n    return '),
}


@cache
def code(name: str) -> tuple[str, str, str]:
    """The text of a plan: what stands before what its blocks are matched by, that, and what stands behind."""
    text = whole(name)[0].text
    start, end = text.index("\nGROUP_PAIRS = "), text.index("\n# What a page holds")
    return text[:start], text[start:end], text[end:]


def altered(matches: str) -> Iterator[tuple[str, str]]:
    """Every number one larger, one at a time, but for those of workers."""
    lines = matches.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(matches).readline):
        row, start, end = token.start[0] - 1, token.start[1], token.end[1]
        if token.type == tokenize.NUMBER and "Worker(" not in lines[row] and "holds" not in lines[row]:
            line = f"{lines[row][:start]}{int(token.string) + 1}{lines[row][end:]}"
            yield line.strip(), "".join([*lines[:row], line, *lines[row + 1 :]])


def dropped(text: str) -> Iterator[tuple[str, str]]:
    """Remove one argument of a call with several."""
    for hit in re.finditer(r", \w+=(\d[\d_]*|\"[^\"]*\"|[A-Z]\w*\([^()]*\))", text):
        yield hit[0], text[: hit.start()] + text[hit.end() :]


@pytest.mark.parametrize("name", PAIRS)
def test_a_changed_match_is_refused(name: str) -> None:
    before, matches, behind = code(name)
    found = [*altered(matches), *dropped(matches)]
    assert found
    for line, text in found:
        assert text != matches
        with pytest.raises(PlanFormatError):
            parse(before + text + behind, line)


@pytest.mark.parametrize("change", FUNCTIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_a_function_with_anything_else_is_refused(name: str, change: str) -> None:
    text = "".join(code(name))
    changed = text.replace(*FUNCTIONS[change], 1)
    assert changed != text
    with pytest.raises(PlanFormatError):
        parse(changed, change)


def executed(text: str) -> Plan:
    """The plan of a text that nobody has checked."""
    space: dict[str, object] = {"__name__": "plan"}
    exec(compile(text, "changed", "exec"), space)
    plan = space["PLAN"]
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("name", ["unlike blocks", "shares of tokens", "windows and sinks", "chunks"])
def test_the_simulator_sees_every_change_that_copies_other_bytes(name: str) -> None:
    (made, _, _, request), (before, matches, behind) = whole(name), code(name)
    right, unlike = traced(made.plan, request), dict[str, list[Copy]]()
    for line, text in altered(matches):
        moves = traced(executed(before + text + behind), request)
        if moves is not None and moves != right:
            unlike[line] = moves
    assert len(unlike) > 1
    wrong = {line: simulate(made.plan, made.prefill, made.decode, moves, request) for line, moves in unlike.items()}
    assert [line for line, report in wrong.items() if report.right] == []
