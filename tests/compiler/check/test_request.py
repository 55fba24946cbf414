"""Requests: what is read, and the error for everything that is not one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import plain, plain_ids

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.request import check, parse, parse_text
from kvplan.compiler.check.sample import sample_range, sample_request
from kvplan.compiler.errors import BadInput
from kvplan.plan.block_tables import Slot
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks, Needs

GOOD: dict[str, Any] = {
    "tokens": [8, 20],
    "prefill": {"c": {"first": 0, "ids": [None, 4, 11]}, "s": {"slot": 5, "at": 20}},
    "decode": {"c": {"first": 0, "ids": [None, 1, 0]}, "s": {"slot": 2, "at": 20}},
}


def test_a_request_as_json() -> None:
    asked = parse_text(json.dumps(GOOD))
    assert asked.tokens == (8, 20)
    table = asked.prefill["c"]
    assert isinstance(table, Blocks)
    assert (table.first, plain_ids(table.ids), asked.prefill["s"]) == (0, [None, 4, 11], Slot(5, 20))


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


def test_a_short_table_names_the_length_that_it_is_of() -> None:
    one = bound()
    other = replace(
        one,
        caches=(replace(one.caches[0], length="encoder"), *one.caches[1:]),
        groups=(replace(one.groups[0], length="encoder"), *one.groups[1:]),
    )
    with pytest.raises(BadInput, match=r"tokens \[0, 90\) of the length 'encoder': the block table holds") as caught:
        check(parse({**GOOD, "lengths": {"encoder": [0, 90]}}), other, other)
    assert caught.value.code == "Q011"
    later = {**GOOD["decode"], "s": {"slot": 2, "at": 90}}
    with pytest.raises(BadInput, match=r"tokens \[0, 90\): the block table holds"):
        check(parse({"tokens": [0, 90], "prefill": later, "decode": later}), one, one)


def test_a_request_that_is_none_is_told_where_the_format_is() -> None:
    with pytest.raises(BadInput) as caught:
        parse_text("{")
    assert "docs/trace.md" in caught.value.help
    with pytest.raises(BadInput) as caught:
        parse_text("[]")
    assert caught.value.help == "it needs the keys tokens, prefill, decode, and may have lengths"


def test_a_null_is_fine_before_the_first_token_only() -> None:
    check(parse(GOOD), bound(), bound())
    with pytest.raises(BadInput, match="no block at position 0"):
        check(parse({**GOOD, "tokens": [7, 20]}), bound(), bound())


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_fits_its_sides(seed: int) -> None:
    asked = sample_request(bound(), bound(), (9, 33), seed)
    check(asked, bound(), bound())
    assert plain(asked) == plain(sample_request(bound(), bound(), (9, 33), seed))


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_takes_no_more_blocks_than_the_pool_has(seed: int) -> None:
    small = replace(bound(), blocks=len(range(9 // 8, 5)) + 1)
    check(sample_request(small, small, (9, 33), seed), small, small)


def test_a_pool_that_is_too_small_for_a_sample_is_bad_input() -> None:
    said = r"decode: the sample of tokens \[9, 33\) needs \d blocks, the pool has 2"
    with pytest.raises(BadInput, match=said) as caught:
        sample_request(bound(), replace(bound(), blocks=2), (9, 33))
    assert caught.value.code == "Q021"


@pytest.mark.parametrize("keep", [1, 7, 99, 127, 511])
@pytest.mark.parametrize("sink", [0, 4])
def test_the_range_of_a_sample_leaves_tokens_before_a_window(keep: int, sink: int) -> None:
    first, end = sample_range(bound(), needing(Needs(keep=keep, sink=sink)))
    assert end - first > keep
    assert sum(b - a for a, b in Needs(keep=keep, sink=sink).ranges(first, end)) < end - first


@pytest.mark.parametrize("chunks", [(2,), (64,), (512,), (500, 8192), (8192,), (2, 3), (97,), (1,)])
def test_the_range_of_a_sample_lies_in_two_chunks(chunks: tuple[int, ...]) -> None:
    first, end = sample_range(bound(), needing(*(Needs(chunk=chunk) for chunk in chunks)))
    assert end // max(chunks) * max(chunks) > first
    assert all(end % chunk for chunk in chunks if chunk > 1)
    assert end - first < 1024


def needing(*needs: Needs) -> BoundSide:
    """The side with caches like its first one for each of `needs`."""
    one = bound().caches[0]
    return replace(bound(), caches=tuple(replace(one, name=f"c{i}", needs=each) for i, each in enumerate(needs)))
