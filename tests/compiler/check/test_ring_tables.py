"""The tables of rings: what a request says of them, and the copies that it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import ask, block_table, plain, ring_table

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.audit.audit import audit
from kvplan.compiler.check.request import check, parse_text
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies, trace
from kvplan.compiler.errors import BadInput, CompileError
from kvplan.plan.block_tables import Slot
from kvplan.plan.types import Needs

TEXT = "layer { block { token { k } } }"


def sided(kernel: int, ring: int, ratio: int = 1) -> BoundSide:
    c = replace(cache(TEXT, tensor("k", 1, token=0), kernel=kernel), needs=Needs(keep=5), ring=ring)
    return side([replace(c, tokens=kernel * ratio)], [replace(group((c, (0,)), ratio=ratio), ring=ring)])


SIDES = sided(4, 8), sided(3, 6)
GOOD = ask((0, 20), {"c": ring_table((3, 1), 21)}, {"c": ring_table((0, 5), 20)})
BAD: dict[str, tuple[str, str, Any]] = {
    "a table of blocks": ("Q009", "prefill", block_table(0, (3, 1, 4, 2, 5))),
    "a slot": ("Q009", "decode", Slot(1, 20)),
    "too few blocks": ("Q016", "prefill", ring_table((3,), 20)),
    "too many blocks": ("Q016", "decode", ring_table((3, 1, 2), 20)),
    "read before the end": ("Q010", "prefill", ring_table((3, 1), 19)),
    "written before the end": ("Q010", "decode", ring_table((3, 1), 19)),
    "written behind the end": ("Q010", "decode", ring_table((3, 1), 21)),
    "gone on": ("Q017", "prefill", ring_table((3, 1), 24)),
    "gone on for long": ("Q017", "prefill", ring_table((3, 1), 2**31 - 1)),
    "a needed block that is not there": ("Q011", "decode", ring_table((0, None), 20)),
    "a block twice": ("Q013", "decode", ring_table((5, 5), 20)),
}


@pytest.mark.parametrize("name", BAD)
def test_tables_that_do_not_fit(name: str) -> None:
    code, word, table = BAD[name]
    check(GOOD, *SIDES)
    tables = {"c": table}
    asked = replace(GOOD, prefill=tables) if word == "prefill" else replace(GOOD, decode=tables)
    with pytest.raises(BadInput) as caught:
        check(asked, *SIDES)
    assert caught.value.code == code
    assert caught.value.help


def test_a_block_beyond_the_pool() -> None:
    with pytest.raises(BadInput, match="Q012"):
        check(GOOD, SIDES[0], replace(SIDES[1], blocks=5))


def test_a_ring_may_lack_what_is_not_needed() -> None:
    """Tokens 18 and 19 lie in block 0 of the decode ring; a prefill ring stands a little later."""
    request = ask((18, 20), {"c": ring_table((3, 1), 23)}, {"c": ring_table((2, None), 20)})
    check(request, *SIDES)
    plan = compile_bound(*SIDES).plan
    found = [(c.from_offset, c.to_offset, c.bytes) for c in copies(plan, request)]
    assert found == [(3 * 4 + 2, 2 * 3, 2)]
    assert trace(plan, *SIDES, request)["decode"]["workers"][0]["planes"]["c.0"]["blocks"] == 3


def test_rings_as_json() -> None:
    text = {"tokens": [0, 20], "prefill": {"c": {"ids": [3, 1], "at": 21}}, "decode": {"c": {"ids": [0, 5], "at": 20}}}
    assert plain(parse_text(json.dumps(text))) == plain(GOOD)
    for table in ({"ids": [3, 1], "at": -1}, {"ids": 3, "at": 1}, {"at": 1}, {"ids": [], "at": 1, "first": 0}):
        with pytest.raises(BadInput, match=r"Q00[256]"):
            parse_text(json.dumps({**text, "decode": {"c": table}}))


def test_copies_that_do_not_wrap_are_convicted() -> None:
    request = replace(GOOD, prefill={"c": ring_table((3, 1), 20)})
    plan = compile_bound(*SIDES).plan
    right = copies(plan, request)
    assert simulate(plan, *SIDES, right, request).right
    for number, one in enumerate(right):
        for moved in (one._replace(from_offset=one.from_offset ^ 1), one._replace(to_offset=one.to_offset ^ 1)):
            wrong = [*right[:number], moved, *right[number + 1 :]]
            assert not simulate(plan, *SIDES, wrong, request).right
            assert not audit(*SIDES, request, wrong).right


def test_sides_bound_by_hand_are_checked_as_well() -> None:
    for bad in (sided(3, 8), sided(4, 4)):
        for both in ((bad, SIDES[1]), (SIDES[0], bad)):
            with pytest.raises(CompileError, match=r"C119|C120"):
                compile_bound(*both)
