"""Expressions: values, errors, names, places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.evaluate import evaluate, filled
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import SizeSet
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, render

ENV = {
    "a": 7,
    "b": 2,
    "zero": 0,
    "tp": 4,
    "rank(tp)": 3,
    "word": "fp8",
    "on": True,
    "sizes": SizeSet(only=(16, 32, 64)),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 - 2 - 1", 4),
        ("-a // b", -4),
        ("a % b", 1),
        ("a if b else zero", 7),
        ("1 if zero else 2 if zero else 3", 3),
        ("zero and a // zero", False),
        ("a or a // zero", True),
        ("not zero", True),
        ("not a == b", True),
        ("a > b and b >= 2", True),
        ("word == 'fp8'", True),
        ("word != 'bf16'", True),
        ("on == true", True),
        ("ceildiv(a, b)", 4),
        *((f"pow2({n})", value) for n, value in ((0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128))),
        ("pow2(0 - 5)", 1),
        ("min(a, b, 3)", 2),
        ("max(a, b)", 7),
        ("gcd(12, 18)", 6),
        ("lcm(4, 6)", 12),
        ("bytes(word)", 1),
        ("bytes(f32)", 4),
        ("bytes('bfloat16')", 2),
        ("rank(tp) % b", 1),
        ("multiples(16)", SizeSet(step=16)),
        ("sizes(32, 16, 32)", SizeSet(only=(16, 32))),
        ("least(sizes)", 16),
        ("least(multiples(8))", 8),
        ("largest(sizes, 96)", 32),
        ("largest(multiples(16), 2096)", 2096),
    ],
)
def test_values(text: str, value: object) -> None:
    found = evaluate(parse_expr(text), ENV)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("a + ", "E002", 4),
        ("", "E002", 1),
        ("a b", "E001", 3),
        ("a < b < 3", "E001", 7),
        ("a.b", "E001", 2),
        ("a ** b", "E001", 3),
        ("f(a)", "E003", 1),
        ("1 + ceildiv(a)", "E004", 5),
        ("rank(3)", "E004", 1),
        ("1 + apple", "E005", 5),
        ("+".join(["1"] * 500), "E006", 1),
        ("(" * 200 + "1" + ")" * 200, "E006", 1),
        ("not " * 900 + "1", "E006", 1),
        ("a + word", "T001", 5),
        ("on + 1", "T001", 1),
        ("a == word", "T001", 1),
        ("a == true", "T001", 1),
        ("1 if word else 2", "T001", 6),
        ("least(a)", "T001", 7),
        ("bytes(a)", "T002", 7),
        ("bytes(fp9)", "T002", 7),
        ("a // zero", "B001", 6),
        ("a % zero", "B001", 5),
        ("ceildiv(a, zero)", "B001", 12),
        ("9" * 19, "B002", 1),
        ("9" * 18 + " * " + "9" * 18, "B002", 1),
        ("largest(sizes, 24)", "B003", 1),
        ("largest(multiples(16), 24)", "B003", 1),
        ("largest(sizes, zero)", "B003", 1),
    ],
)
def test_errors(text: str, code: str, column: int) -> None:
    with pytest.raises(DslError) as caught:
        evaluate(parse_expr(text), ENV)
    found = caught.value.diagnostics[0]
    assert (found.code, found.span.column) == (code, column)


def test_values_in_play_are_shown() -> None:
    with pytest.raises(DslError) as caught:
        evaluate(parse_expr("tp // zero + a"), ENV)
    assert str(caught.value).split("\n")[4] == "   | tp = 4, zero = 0, a = 7"


def test_nearest_name() -> None:
    with pytest.raises(DslError, match="did you mean 'word'"):
        evaluate(parse_expr("worde"), ENV)


def test_names() -> None:
    assert parse_expr("a if rank(tp) else min(b, 'c', c)").names == {"a", "rank(tp)", "b", "c"}


def test_fill() -> None:
    assert filled("{a} heads over tp={tp}, not {other}", ENV) == "7 heads over tp=4, not {other}"


@given(
    st.recursive(
        st.integers(0, 99).map(str),
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        max_leaves=12,
    )
)
def test_arithmetic_is_pythons(text: str) -> None:
    assert evaluate(parse_expr(text), {}) == eval(text)


@given(st.text("ab1+-*/%()<>=!' ,{}[]ifelsnotrd.\"é", max_size=40))
def test_any_text_parses_or_is_refused_in_place(text: str) -> None:
    for found in errors(text):
        assert found.span.line == 1
        assert 1 <= found.span.column <= len(text) + 1
        assert render([found])


def errors(text: str) -> tuple[Diagnostic, ...]:
    try:
        parse_expr(text)
    except DslError as error:
        return error.diagnostics
    return ()


def test_element_types() -> None:
    assert [dtypes.size(name) for name in ("f64", "bf16", "float16", "fp8_e4m3", "u8")] == [8, 2, 2, 1, 1]
    assert dtypes.canonical("fp8_e4m3") == "fp8"
    with pytest.raises(DslError, match="T002"):
        dtypes.size("fp8_with_scales")
