import ast
import random
import subprocess
import sys

import pytest

from kvplan.compiler.emit.pylit import ConstructorCall, NameRef, assign, flat, lit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9_999, "9999"),
        (10_000, "10_000"),
        (-1_234_567, "-1_234_567"),
        ((), "()"),
        ((1,), "(1,)"),
        ((True, None, NameRef("X")), "(True, None, X)"),
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


def test_a_call_tries_its_arguments_on_one_line_first():
    call = ConstructorCall("Call", ("a" * 50, "b" * 50))
    assert lit(call, lead=10) == f'Call(\n    "{"a" * 50}", "{"b" * 50}"\n)'
    assert lit(("a" * 60, "b" * 60)) == f'(\n    "{"a" * 60}",\n    "{"b" * 60}",\n)'


def _value(rng: random.Random, depth: int) -> object:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([rng.randrange(10**6), "x" * rng.randrange(12), NameRef("NAME"), None, True])
    items = tuple(_value(rng, depth - 1) for _ in range(rng.randrange(6)))
    if rng.random() < 0.5:
        return items
    return ConstructorCall(
        "Constructor", items, tuple((f"key_{i}", _value(rng, depth - 1)) for i in range(rng.randrange(4)))
    )


def test_ruff_leaves_it_alone():
    rng = random.Random(7)
    text = "\n".join(assign(f"V_{i}", _value(rng, 4), "object" if i % 3 == 0 else "") for i in range(300)) + "\n"
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=120", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert text.count("\n") > 600
    assert done.stdout == text
