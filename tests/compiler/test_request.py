"""Requests: what is read, and the error for everything that is not one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvplan.compiler.errors import BadInput
from kvplan.compiler.fits import check
from kvplan.compiler.request import Ids, Request, Slot, parse, parse_text
from kvplan.compiler.sample import sample_request
from tests.property.sides import cache, group, side, tensor

GOOD: dict[str, Any] = {
    "tokens": [8, 20],
    "prefill": {"c": {"first": 0, "ids": [None, 4, 11]}, "s": {"slot": 5, "at": 20}},
    "decode": {"c": {"first": 0, "ids": [None, 1, 0]}, "s": {"slot": 2, "at": 20}},
}


def test_a_request_as_json() -> None:
    asked = parse_text(json.dumps(GOOD))
    assert asked.tokens == (8, 20)
    assert asked.prefill == {"c": Ids(0, (None, 4, 11)), "s": Slot(5, 20)}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("Q001", "{"),
        ("Q001", "[" * 100_000),
        ("Q002", "[]"),
        ("Q002", '{"tokens": [0, 1], "tokens": [0, 2], "prefill": {}, "decode": {}}'),
        ("Q002", '{"tokens": [0, 1], "prefil": {}, "decode": {}}'),
        ("Q002", '{"tokens": [0, 1], "decode": {}}'),
        ("Q003", '{"tokens": [0, 1], "prefill": [], "decode": {}}'),
        ("Q004", '{"tokens": 5, "prefill": {}, "decode": {}}'),
        ("Q004", '{"tokens": [6, 5], "prefill": {}, "decode": {}}'),
        ("Q006", '{"tokens": [-1, 5], "prefill": {}, "decode": {}}'),
        ("Q006", '{"tokens": [0, 1e3], "prefill": {}, "decode": {}}'),
        ("Q006", '{"tokens": [false, 5], "prefill": {}, "decode": {}}'),
        ("Q002", '{"tokens": [0, 1], "prefill": {"c": 1}, "decode": {}}'),
        ("Q002", '{"tokens": [0, 1], "prefill": {"c": {"ids": []}}, "decode": {}}'),
        ("Q002", '{"tokens": [0, 1], "prefill": {"c": {"slot": 1}}, "decode": {}}'),
        ("Q005", '{"tokens": [0, 1], "prefill": {"c": {"first": 0, "ids": 4}}, "decode": {}}'),
        ("Q006", '{"tokens": [0, 1], "prefill": {"c": {"first": 0, "ids": [1.0]}}, "decode": {}}'),
        ("Q006", '{"tokens": [0, 1], "prefill": {"c": {"first": 0, "ids": [-1]}}, "decode": {}}'),
        ("Q006", '{"tokens": [0, 1], "prefill": {"c": {"slot": "a", "at": 1}}, "decode": {}}'),
        ("Q006", '{"tokens": [0, 99999999999], "prefill": {}, "decode": {}}'),
    ],
)
def test_what_is_not_a_request_is_refused_by_name(code: str, text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_text(text)
    assert caught.value.code == code
    assert caught.value.help


def bound() -> Any:
    c = cache("layer { block { k[token] } }", tensor("k", 1, token=0), kernel=4)
    s = cache("layer { block { z[st] } }", tensor("z", 4, st=3), name="s")
    return side([c, s], [group((c, (0,)), ratio=2), group((s, (0,)))])


def changed(side: str, name: str, table: Any) -> Request:
    value = json.loads(json.dumps(GOOD))
    value[side][name] = table
    if table is None:
        del value[side][name]
    return parse(value)


@pytest.mark.parametrize(
    ("code", "which", "name", "table"),
    [
        ("Q007", "prefill", "d", {"first": 0, "ids": []}),
        ("Q008", "decode", "c", None),
        ("Q009", "prefill", "c", {"slot": 1, "at": 20}),
        ("Q009", "decode", "s", {"first": 0, "ids": [1]}),
        ("Q010", "decode", "s", {"slot": 2, "at": 19}),
        ("Q011", "prefill", "c", {"first": 0, "ids": [1, 2]}),
        ("Q011", "prefill", "c", {"first": 2, "ids": [1, 2, 3]}),
        ("Q011", "prefill", "c", {"first": 0, "ids": [1, None, 3]}),
        ("Q013", "decode", "c", {"first": 0, "ids": [1, 4, 4]}),
        ("Q013", "decode", "s", {"slot": 0, "at": 20}),
    ],
)
def test_tables_that_do_not_fit_are_refused(code: str, which: str, name: str, table: Any) -> None:
    with pytest.raises(BadInput) as caught:
        check(changed(which, name, table), bound(), bound())
    assert caught.value.code == code


def test_a_null_is_fine_before_the_first_token_only() -> None:
    check(parse(GOOD), bound(), bound())
    with pytest.raises(BadInput, match="no block at position 0"):
        check(parse({**GOOD, "tokens": [7, 20]}), bound(), bound())


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_fits_its_sides(seed: int) -> None:
    asked = sample_request(bound(), bound(), (9, 33), seed)
    check(asked, bound(), bound())
    assert asked == sample_request(bound(), bound(), (9, 33), seed)
