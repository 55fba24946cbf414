"""Rings: the last tokens of a request in a fixed number of blocks, on one side or on both, of different sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.random_sides.sides import cache, group, side, tensor

from kvplan.compiler.api import Compiled, compile_bound, compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.audit.audit import audit
from kvplan.compiler.check.request import check
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate, uneven
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.explain.describe import describe_side
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.files.loader import parse
from kvplan.plan.needs import oldest, room
from kvplan.plan.request import Request
from kvplan.plan.types import ALL, Needs
from kvplan.review.changes import changes

KIND = """kvplan: 1
kind: last
title: The last tokens
params: {{window: {{default: 5}}, dim: {{default: 3}}}}
{head}
split: {{head: tp}}
tensors: {{k: {{axes: {{head: 2, token: ~, dim: dim}}, dtype: u8}}}}
storage: {{LBHNC: "layer {{ block {{ head {{ token {{ k[dim] }} }} }} }}"}}
"""
HEAD = "store: ring\nring: window - 1 + draft_tokens\nneeds: {window: window}"
ENGINE = """kvplan: 1
engine: ringed
extends: custom
title: Rings of one block, where a side does not say otherwise
options: {last: {type: name, default: wraps, values: [wraps, pages]}}
derive:
  tokens: ring if ring and last == 'wraps' else block
"""
MODEL = """kvplan: 1
model: lasts
title: The last tokens, and all of them
dtype: bf16
layers: 3
caches:
  all:  {kind: gqa, layers: all, heads: 4, dim: 8}
  last: {kind: last, layers: [0, 2]}
"""
WRAP = "ring if last == 'wraps' else 0"
Make = Callable[..., Library]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A library with a kind `last`, an engine that keeps it in a ring, and a model."""

    def _make(head: str = HEAD, wrap: str = WRAP) -> Library:
        engine = ENGINE + (f'  wrap: "{wrap}"\n' if wrap else "")
        files = {"last": KIND.format(head=head), "ringed": engine, "lasts": MODEL}
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return load([tmp_path / f"{name}.yaml" for name in files])

    return _make


def pair(library: Library, prefill: str, decode: str) -> Compiled:
    return compile_pair(library, "lasts", f"engine=ringed,{prefill}", f"engine=ringed,{decode}")


def moved(made: Compiled, tokens: tuple[int, int], seed: int = 0) -> Request:
    """The request, executed and audited."""
    request = sample_request(made.prefill, made.decode, tokens, seed)
    check(request, made.prefill, made.decode)
    found = copies(made.plan, request)
    report = simulate(made.plan, made.prefill, made.decode, found, request)
    assert report.right, report.text()
    verdict = audit(made.prefill, made.decode, request, found)
    assert verdict.right, verdict.text()
    return request


@pytest.mark.parametrize(
    ("prefill", "decode", "rings"),
    [
        ("tp=1", "tp=2", (4, 4)),
        ("tp=2", "tp=1,draft_tokens=7", (4, 11)),
        ("tp=1,draft_tokens=4,tokens.last=2", "tp=1,draft_tokens=5,tokens.last=3", (8, 9)),
        ("tp=1,draft_tokens=4,tokens.last=4,kernel_block.last=2", "tp=4,draft_tokens=2", (8, 6)),
        ("tp=1,last=pages", "tp=1", (0, 4)),
        ("tp=2,draft_tokens=1", "tp=1,last=pages,block=3", (5, 0)),
        ("tp=1,last=pages", "tp=1,last=pages", (0, 0)),
        ("tp=2", "tp=4,draft_tokens=1,form=by_tokens", (4, 5)),
    ],
)
def test_sides_keep_their_own_rings(make: Make, prefill: str, decode: str, rings: tuple[int, int]) -> None:
    made = pair(make(), prefill, decode)
    groups = [next(g for g in s.groups if "last" in g.name) for s in (made.plan.prefill, made.plan.decode)]
    assert tuple(g.ring for g in groups) == rings
    assert all(("a ring of" in made.text) == any(rings) for _ in rings)
    for first, end in ((0, 1), (0, 4), (0, 5), (3, 31), (29, 31), (30, 31), (17, 40), (40, 40)):
        moved(made, (first, end), first + end)


def test_the_engine_has_the_last_word(make: Make) -> None:
    """Without a rule of its own it keeps to the kind's ring; with one it turns windows into rings, too."""
    plain = bind(make(wrap=""), load().model("qwen3-0.6b"), "engine=custom")
    assert [c.ring for c in plain.caches] == [0]
    library = make(wrap="")
    assert {c.name: c.ring for c in bind(library, library.model("lasts"), "engine=ringed").caches} == {
        "all": 0,
        "last": 4,
    }
    paged = make(head="store: tokens\nneeds: {window: window}", wrap="ceildiv(window, tokens) * tokens")
    assert {c.name: c.ring for c in bind(paged, paged.model("lasts"), "engine=ringed").caches} == {"all": 0, "last": 16}
    moved(pair(paged, "block=2", "block=3,wrap.last=12"), (0, 33))


REFUSED: dict[str, tuple[str, str, str, str, str]] = {
    "blocks that do not divide it": ("C119", HEAD, WRAP, "tokens.last=3", "the ring of 4 tokens of 'last' is no whole"),
    "a window that is larger": ("C120", HEAD, "ring - 1 if ring else 0", "tokens.last=1", "the last 4 tokens"),
    "all tokens": ("C120", "store: ring\nring: 4", WRAP, "", "its readers need all tokens"),
    "the first tokens": ("C120", f"{HEAD[:-1]}, sink: 1}}", WRAP, "", "the first 1 token and the last 4"),
    "a chunk that is larger": ("C120", "store: ring\nring: 4\nneeds: {chunk: 6}", WRAP, "", "last multiple of 6"),
    "nothing kept for a full cache": ("C120", HEAD, "16", "", "ring of 'all' keeps the last 16 tokens"),
    "a wrap that is no number": ("C114", HEAD, "ring == 4", "", "wrap of 'all' comes out as False"),
    "a wrap below 0": ("C114", HEAD, "ring - 9", "", "wrap of 'all' comes out as -9"),
    "a ring below 0": ("S018", "store: ring\nring: 0 - draft_tokens", WRAP, "draft_tokens=1", "ring is -1"),
    "a ring that is no number": ("S018", "store: ring\nring: window == 5", WRAP, "", "ring is True"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rings_that_cannot_be(make: Make, name: str) -> None:
    code, head, wrap, text, said = REFUSED[name]
    library = make(head=head, wrap=wrap)
    with pytest.raises((Refused, BadInput)) as caught:
        bind(library, library.model("lasts"), f"engine=ringed,{text}".rstrip(","))
    assert caught.value.code == code
    assert said in caught.value.message
    assert caught.value.help


@pytest.mark.parametrize(
    ("code", "head"),
    [
        ("K002", "store: ring\nneeds: {window: window}"),
        ("K015", "store: tokens\nring: 4"),
        ("K015", "store: state\nring: 4"),
        ("E005", "store: ring\nring: windw"),
        ("E023", "store: ring\nring: [4]"),
        ("K010", "store: rings\nring: 4"),
    ],
)
def test_kinds_that_are_wrong(make: Make, code: str, head: str) -> None:
    with pytest.raises(DslError) as caught:
        make(head=head).kind("last")
    assert code in {each.code for each in caught.value.diagnostics}


def kept(ring: int, at: int, unit: int) -> set[int]:
    """The whole rows of `unit` tokens that a ring holds once tokens [0, at) were written into it one by one."""
    place: dict[int, int] = {}
    for token in range(at):
        place[token % ring] = token
    return {
        row for row in range(at // unit) if all(place.get(t % ring) == t for t in range(row * unit, (row + 1) * unit))
    }


@pytest.mark.parametrize("unit", [1, 2, 3])
@pytest.mark.parametrize("needs", [*(Needs(keep=n) for n in range(9)), *(Needs(chunk=n) for n in range(1, 10))])
def test_what_a_ring_must_have_room_for(needs: Needs, unit: int) -> None:
    """A ring that is as large has everything that is needed after any number of tokens; a smaller one lacks some."""

    def enough(ring: int) -> bool:
        every = ((end, range(max(0, needs.low(end)) // unit, end // unit)) for end in range(4 * ring + 40))
        return all(kept(ring, end, unit).issuperset(rows) for end, rows in every)

    least = room(needs, unit)
    assert least is not None
    rings = [ring for ring in range(unit, 25, unit) if ring >= least]
    assert all(enough(ring) for ring in rings)
    # A chunk that cuts rows may ask for a row more than it ever needs.
    if needs.keep is not None or (needs.chunk or 0) % unit == 0:
        assert not any(enough(ring) for ring in range(unit, min(rings), unit))


@pytest.mark.parametrize("unit", [1, 2, 4])
def test_the_oldest_token_kept(unit: int) -> None:
    for ring in (4, 8, 12):
        for at in range(30):
            rows = kept(ring, at, unit)
            assert [row * unit for row in rows if row * unit < oldest(at, ring, unit)] == []
            assert {*range(-(-oldest(at, ring, unit) // unit), at // unit)} == rows


def test_nothing_else_needs_room() -> None:
    assert room(ALL) is None


def test_a_plan_with_another_ring_is_none(make: Make) -> None:
    made = pair(make(), "tp=1", "tp=1,draft_tokens=7")
    for old, new in (("ring=11", "ring=22"), (", ring=11", ""), ("kernel=11", "kernel=1")):
        assert old in made.text
        with pytest.raises(PlanFormatError):
            parse(made.text.replace(old, new), "lasts")


def test_what_is_said_of_a_ring(make: Make) -> None:
    library = make()
    old, new = pair(library, "tp=1", "tp=1"), pair(library, "tp=1", "tp=1,draft_tokens=7")
    rings: Mapping[str, int] = {g["group"]: g["ring"] for g in describe_side(new.plan.decode)["groups"]}
    assert rings == {"all": 0, "last": 11}
    said = {(change.before, change.after) for change in changes(old.plan, new.plan) if change.rule == "RING"}
    assert said == {(4, 11)}
    assert "11 tokens; a ring of 11 tokens; a KV cache tensor for each of 2 layer" in new.text


def test_workers_that_take_turns_have_all_of_a_ring() -> None:
    """On either side, against a ring and against blocks that are shared out."""
    k = tensor("k", 2, token=0, dim=2)
    c = replace(cache("layer { block { token { k[dim] } } }", k, kernel=4), needs=Needs(keep=6))
    ringed = [side([replace(c, ring=8)], [replace(group((c, (0,))), ring=8)], tp=n, dcp=n, chunk=3) for n in (3, 2)]
    paged = side([c], tp=2, dcp=2, chunk=8)
    for both in ((ringed[0], ringed[1]), (ringed[0], paged), (paged, ringed[1])):
        for end in (5, 21, 40):
            request = sample_request(*both, (2, end), end)
            plan = compile_bound(*both).plan
            report = simulate(plan, *both, copies(plan, request), request)
            assert report.right, report.text()
            assert report.bytes


def test_rings_are_read_evenly_whoever_has_which_turn() -> None:
    k = tensor("k", 2, token=0, dim=2)
    c = replace(cache("layer { block { token { k[dim] } } }", k, kernel=4), needs=Needs(keep=6), ring=8)
    groups = [replace(group((c, (0,))), ring=8)]
    both = side([c], groups, tp=2, dcp=2, chunk=3), side([c], groups, tp=4)
    plan = compile_bound(*both).plan
    assert uneven(plan, *both) == []
    all_of_one = tuple(tuple(replace(read, worker=0) for read in reads) for reads in plan.reads)
    assert len(uneven(replace(plan, reads=all_of_one), *both)) == 1
