import ast
import random

import pytest

from kvplan.compiler.emit.pylit import ConstructorCall, ForEach, NameRef, assign, flat, lit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9_999, "9999"),
        (10_000, "10_000"),
        (-1_234_567, "-1_234_567"),
        ((), "()"),
        ((1,), "(1,)"),
        ((None, NameRef("X")), "(None, X)"),
        ("it's", '"it\'s"'),
        ('say "so"', "'say \"so\"'"),
        ("a\\b\n", '"a\\\\b\\n"'),
        (ConstructorCall("F", (1,), (("key", "a"),)), 'F(1, key="a")'),
    ],
)
def test_flat(value, text):
    assert flat(value) == text


@pytest.mark.parametrize("text", ["", "'", '"', "'\"", "''\"", "\\", "\\'", '\\"', "tab\t", "é\u2028"])
def test_strings_come_back(text):
    assert ast.literal_eval(flat(text)) == text


def test_unknown_values_are_refused():
    with pytest.raises(TypeError, match="float"):
        lit((1.5,))


def test_calls_stand_one_a_line_and_numbers_fill_lines():
    assert lit(tuple(range(100_000, 100_040))).count("\n") == 3
    call = ConstructorCall("Call", ("a" * 50, "b" * 50))
    assert lit(call, lead=10) == f'Call("{"a" * 50}",\n               "{"b" * 50}")'
    assert lit((call, call)).splitlines()[1] == f"    {flat(call)},"


def test_long_tuples_of_calls_are_blocks_of_their_own():
    call = ConstructorCall("Call", kwargs=(("a", 1), ("calls", (ConstructorCall("Inner", ("x" * 80,)),) * 2)))
    assert lit(call).splitlines() == ["Call(a=1, calls=(", *(f'    Inner("{"x" * 80}"),',) * 2, "))"]


def test_what_differs_in_a_variable_is_written_once():
    each = ForEach(ConstructorCall("Group", (NameRef("name"), "state")), "name", ("a", "b"))
    assert flat((each,)) == '(*(Group(name, "state") for name in ("a", "b")),)'
    wide = ForEach(each.call, "name", tuple("abcdefghijklmnopqrstu"))
    assert [line.strip()[:8] for line in lit(wide).splitlines()] == ["*(Group(", "for name"]


def _value(rng: random.Random, depth: int) -> object:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([rng.randrange(10**6), "x" * rng.randrange(12), NameRef("NAME"), None])
    items = tuple(_value(rng, depth - 1) for _ in range(rng.randrange(6)))
    if rng.random() < 0.5:
        return items
    return ConstructorCall(
        "Constructor", items, tuple((f"key_{i}", _value(rng, depth - 1)) for i in range(rng.randrange(4)))
    )


def test_every_layout_is_the_same_value():
    rng = random.Random(7)
    for _ in range(300):
        value = _value(rng, 4)
        text = assign("V", value)
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(f"V = {flat(value)}"))
