"""The simulator says right to copies worked out by hand, and finds every way in which they may be wrong."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import ask, block_table

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.request import Copy
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies as trace
from kvplan.plan.block_tables import Slot

TEXT = "layer { block { head { token { k[dim] } pad(2) } } }"
STRIDE, ROW = 20, 10
# Four tokens of a head are 8 bytes, then 2 of padding; a decode page has the two heads that two prefill workers hold.
REQUEST = ask((1, 8), {"c": block_table(0, (5, 3)), "s": Slot(2, 8)}, {"c": block_table(0, (0, 6)), "s": Slot(1, 8)})
PLAN: Any = SimpleNamespace(reads=())


def bound(tp: int, state: bool = True) -> BoundSide:
    c = cache(TEXT, tensor("k", 1, {"head": "tp"}, head=2, token=0, dim=2), layers=(0, 2), kernel=4)
    s = cache("layer { block { z[st] } }", tensor("z", 4, st=3), name="s", layers=(1,))
    caches = [c, s] if state else [c]
    return side(caches, [group((each, each.layers)) for each in caches], tp=tp)


def good() -> list[Copy]:
    """Tokens 1-3 of block 5 to block 0, tokens 4-7 of block 3 to block 6, for both layers and heads; and the state."""
    found = [Copy(0, "s.1", 24, 0, "s.1", 12, 12)]
    for layer in (0, 2):
        for head in (0, 1):
            name = f"c.{layer}"
            found.append(Copy(head, name, 5 * ROW + 2, 0, name, head * ROW + 2, 6))
            found.append(Copy(head, name, 3 * ROW, 0, name, 6 * STRIDE + head * ROW, 8))
    return found


def run(copies: list[Copy]) -> Verdict:
    return simulate(PLAN, bound(2), bound(1), copies, REQUEST)


def test_right_copies_are_right() -> None:
    report = run(good())
    assert report.right, report.text()
    assert (report.bytes, report.planes, report.workers, report.copies) == (2 * 2 * 14 + 12, 3, 1, 9)
    assert report.text() == (
        "OK: 68 needed bytes in 3 KV cache tensors of 1 decode worker, 9 copies: "
        "each written once, from its own coordinate"
    )


@pytest.mark.parametrize("number", range(9))
def test_a_copy_less_is_missing(number: int) -> None:
    copies = good()
    gone = copies.pop(number)
    report = run(copies)
    assert (report.right, report.missing, report.double, report.wrong) == (False, gone.bytes, 0, 0)


@pytest.mark.parametrize("number", range(9))
def test_a_copy_twice_is_double(number: int) -> None:
    report = run([*good(), good()[number]])
    assert (report.right, report.missing, report.double) == (False, 0, good()[number].bytes)


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("by", [-1, 1, ROW, -ROW, 1000])
def test_a_copy_from_elsewhere_is_wrong(number: int, by: int) -> None:
    copies = good()
    copies[number] = copies[number]._replace(from_offset=copies[number].from_offset + by)
    report = run(copies)
    assert not report.right
    assert report.wrong > 0
    assert report.missing == report.double == report.outside == 0


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("by", [-1, 1, ROW, STRIDE, 1000])
def test_a_copy_to_elsewhere_is_outside_and_missing(number: int, by: int) -> None:
    copies = good()
    copies[number] = copies[number]._replace(to_offset=copies[number].to_offset + by)
    report = run(copies)
    assert not report.right
    assert report.missing > 0


@pytest.mark.parametrize(
    "change",
    [
        {"from_worker": 1},
        {"from_worker": 7},
        {"from_plane": "c.2"},
        {"from_plane": "nowhere"},
        {"to_plane": "c.2"},
        {"to_plane": "nowhere"},
        {"to_worker": 3},
        {"bytes": 5},
        {"bytes": 7},
        {"bytes": 0},
    ],
)
def test_a_copy_of_another_worker_plane_or_length_is_found(change: dict[str, Any]) -> None:
    copies = good()
    copies[1] = copies[1]._replace(**change)
    assert not run(copies).right


def test_tokens_before_the_first_one_asked_for_may_not_be_written() -> None:
    extra = Copy(0, "c.0", 5 * ROW, 0, "c.0", 0, 2)
    report = run([*good(), extra])
    assert (report.right, report.before, report.missing, report.loose) == (False, 2, 0, 2)
    assert [finding.line() for finding in report.findings] == [
        "decode worker 0 · layer 0 · c.k · head 0 · token 0 · dim 0: is written, and lies before the first token asked "
        "for; 2 bytes like it (copy 9)",
        "decode worker 0 · layer 0 · c.k · head 0 · token 0 · dim 0: a copy begins or ends here, where nothing is "
        "needed; 2 bytes like it (copy 9)",
    ]


def test_tokens_beyond_the_last_one_asked_for_may_not_be_written() -> None:
    request = ask((1, 7), {**REQUEST.prefill, "s": Slot(2, 7)}, {**REQUEST.decode, "s": Slot(1, 7)})
    report = simulate(PLAN, bound(2), bound(1), good(), request)
    assert (report.right, report.faults, report.beyond, report.loose) == (False, ("beyond", "loose"), 8, 4)


def test_a_copy_lies_in_one_page_on_either_side() -> None:
    """Blocks that are neighbours on both sides: the bytes would be right, but only by the choice of blocks."""
    c = cache("layer { block { token { k[dim] } } }", tensor("k", 1, token=0, dim=2), kernel=4)
    both, tables = (side([c]), side([c])), {"c": block_table(0, (1, 2))}
    request = ask((0, 8), tables, tables)
    assert simulate(
        PLAN, *both, [Copy(0, "c.0", 8, 0, "c.0", 8, 8), Copy(0, "c.0", 16, 0, "c.0", 16, 8)], request
    ).right
    assert not simulate(PLAN, *both, [Copy(0, "c.0", 8, 0, "c.0", 8, 16)], request).right


def test_padding_may_be_crossed_where_it_faces_padding() -> None:
    pair = bound(2), bound(2)
    copies = [Copy(0, "s.1", 24, w, "s.1", 12, 12) for w in (0, 1)]
    ids: Any = {"c": block_table(0, (5, 6)), "s": Slot(2, 8)}
    request = ask((0, 8), ids, {"c": block_table(0, (1, 2)), "s": Slot(1, 8)})
    whole = [Copy(w, f"c.{n}", 5 * ROW, w, f"c.{n}", ROW, 8) for w in (0, 1) for n in (0, 2)]
    whole += [Copy(w, f"c.{n}", 6 * ROW, w, f"c.{n}", 2 * ROW, 8) for w in (0, 1) for n in (0, 2)]
    assert simulate(PLAN, *pair, copies + whole, request).right
    into_padding = [c._replace(bytes=10) for c in whole]
    report = simulate(PLAN, *pair, copies + into_padding, request)
    assert (report.right, report.faults, report.loose, report.padding) == (False, ("loose",), 8, 16)
    inside = cache("layer { block { head { k[dim] pad(2) } } }", tensor("k", 1, head=2, dim=2), layers=(0,))
    state = side([inside])
    asked = ask((0, 8), {"c": Slot(0, 8)}, {"c": Slot(0, 8)})
    bridge = simulate(PLAN, state, state, [Copy(0, "c.0", 0, 0, "c.0", 0, 6)], asked)
    assert (bridge.right, bridge.padding, bridge.bytes) == (True, 2, 4)


def test_padding_may_not_be_written_from_data() -> None:
    text = "layer { block { a[dim] pad(2) b[dim] } }"
    dense = cache("layer { block { a[dim] b[dim] } }", tensor("a", 1, dim=2), tensor("b", 1, dim=2))
    both = side([dense]), side([cache(text, tensor("a", 1, dim=2), tensor("b", 1, dim=2))])
    tables = {"c": Slot(0, 4)}
    made = [Copy(0, "c.0", 0, 0, "c.0", 0, 2), Copy(0, "c.0", 2, 0, "c.0", 4, 2)]
    request = ask((0, 4), tables, tables)
    assert simulate(PLAN, *both, made, request).right
    report = simulate(PLAN, *both, [made[0]._replace(bytes=4), made[1]], request)
    assert (report.right, report.spilled, report.loose) == (False, 2, 1)
    assert report.findings[0].text == "plane c.0 · offset 2 · padding: is written, and not from padding"


def test_caches_that_prefill_lacks_are_not_needed_and_not_written() -> None:
    assert simulate(PLAN, bound(2, state=False), bound(1), good()[1:], REQUEST).right
    report = simulate(PLAN, bound(2, state=False), bound(1), good(), REQUEST)
    assert (report.faults, report.outside) == (("outside",), 12)


def test_readers_that_crowd_on_one_of_equal_holders_are_seen() -> None:
    c = cache(TEXT, tensor("k", 1, head=2, token=0, dim=2), kernel=4)
    sides = side([c], tp=4), side([c], tp=4)
    request = ask((0, 8), {"c": block_table(0, (5, 3))}, {"c": block_table(0, (0, 6))})
    plan = compile_bound(*sides).plan
    assert simulate(plan, *sides, trace(plan, request), request).right
    crowded = replace(plan, reads=tuple(tuple(replace(read, worker=1) for read in reads) for reads in plan.reads))
    report = simulate(crowded, *sides, trace(crowded, request), request)
    assert (report.right, report.faults) == (False, ())
    assert report.crowded == ("c.k: readers of workers that hold the same: {0: 0, 1: 4, 2: 0, 3: 0}",)
    assert report.text().endswith(f"1 crowded\n  {report.crowded[0]}")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict(1, 1, 1, 1), "OK: 1 needed byte in 1 KV cache tensor of 1 decode worker, 1 copy: "),
        (
            Verdict(2, 1000, 1234, 68),
            "OK: 68 needed bytes in 1,000 KV cache tensors of 2 decode workers, 1,234 copies: ",
        ),
        (Verdict(1, 0, 0, 0), "OK: 0 needed bytes in 0 KV cache tensors of 1 decode worker, 0 copies: "),
    ],
)
def test_counts_agree_with_their_words(verdict: Verdict, words: str) -> None:
    assert verdict.right
    assert verdict.text().startswith(words)
