"""Digests of engines that shard, page and order one content differently: equal as long as the content is."""

from __future__ import annotations

from random import Random

import pytest
from tests.end_to_end.asking import requests
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.dimensions import Case, cases
from tests.end_to_end.hardest import HARDEST
from tests.runtime.helpers.checksums import EVERY, ROLES, Engines, engines, needs_of, spots, unneeded
from tests.shares import later

from kvplan.compiler.bound import BoundSide
from kvplan.runtime.checksum.checksum import Sample, first_unlike
from kvplan.runtime.checksum.elements import fields
from kvplan.runtime.checksum.rows import needed

CASES = {**HARDEST, **{str(case.number): case for case in cases()[::40]}}
ASKED = ("cold", "prefix hit", "single", "whole hit")
BOTH = [(name, asked) for name in CASES for asked in ASKED]
# One request of each, by turns, and one role; the others in `make test-all`.
NOW = [one for number, one in enumerate(BOTH) if number // len(ASKED) % len(ASKED) == number % len(ASKED)]
OF_ROLE = [(name, role) for name in CASES for role in ROLES]
CHOSEN = Sample(every=3, seed=5)


def made(case: Case, name: str = "cold") -> tuple[Engines, tuple[BoundSide, BoundSide]]:
    both = sides(case)
    return engines(compiled(case), both, requests(case)[name]), both


@pytest.mark.parametrize(("name", "asked"), [*NOW, *later(one for one in BOTH if one not in NOW)])
def test_both_roles_agree(name: str, asked: str) -> None:
    both, _ = made(CASES[name], asked)
    for prefill, decode in both.links():
        for sample in (EVERY, CHOSEN):
            mine, theirs = (both.read(prefill, decode, role, sample) for role in ROLES)
            assert first_unlike(mine, theirs) is None
            read = {(r.cache, n) for r in both.plan.reads[decode] if r.worker == prefill for n in r.layers}
            assert set(mine) == read
    assert any(both.side("prefill").values()) == (asked != "whole hit")


@pytest.mark.parametrize("name", CASES)
def test_a_byte_that_is_needed_counts_once(name: str) -> None:
    """In one read of its worker, and in the whole engine if it is on the lowest worker that has it."""
    both, bound = made(CASES[name])
    whole, counted = both.side("decode"), 0
    for worker, memory in enumerate(both.memory["decode"]):
        links = [link for link in both.links() if link[1] == worker]
        before = [both.read(*link, "decode") for link in links]
        found = spots(both, bound, "decode", worker)
        for spot in Random(3).sample(found, min(3, len(found))):
            memory.planes[spot.plane][spot.block, spot.byte] ^= 0x40
            after = [both.read(*link, "decode") for link in links]
            unlike = [first_unlike(one, other) for one, other in zip(before, after, strict=True)]
            assert [one for one in unlike if one] == [(spot.cache, spot.layer)]
            counted += first_unlike(whole, both.side("decode")) == (spot.cache, spot.layer)
            memory.planes[spot.plane][spot.block, spot.byte] ^= 0x40
    assert counted


@pytest.mark.parametrize(("name", "role"), [*OF_ROLE[::3], *later(one for one in OF_ROLE if one not in OF_ROLE[::3])])
def test_no_other_byte_counts(name: str, role: str) -> None:
    both, bound = made(CASES[name], "prefix hit")
    before = [both.read(*link, role) for link in both.links()], both.side(role)
    changed = 0
    for worker, memory in enumerate(both.memory[role]):
        for allocation, free in zip(memory.allocations, unneeded(both, bound, role, worker), strict=True):
            allocation[free] ^= 0x5A
            changed += free.size
    assert changed
    assert before == ([both.read(*link, role) for link in both.links()], both.side(role))


@pytest.mark.parametrize(
    "name", ["unlike tiles of tokens, turns on one side", "rows of unlike sizes beside each other"]
)
def test_a_sample_sees_its_own_tokens_alone(name: str) -> None:
    both, bound = made(CASES[name])
    seen = set()
    for worker, memory in enumerate(both.memory["decode"]):
        links = [link for link in both.links() if link[1] == worker]
        for spot in spots(both, bound, "decode", worker)[::11]:
            before = [both.read(*link, "decode", CHOSEN) for link in links]
            memory.planes[spot.plane][spot.block, spot.byte] ^= 1
            differs = before != [both.read(*link, "decode", CHOSEN) for link in links]
            memory.planes[spot.plane][spot.block, spot.byte] ^= 1
            assert differs or spot.cache != "s"
            units = [unit for cache, unit in _units(both, worker) if cache == spot.cache]
            if spot.token is not None and len(units) == 1:
                rows = needed(both.request.tokens, needs_of(both.plan)[spot.cache], units[0])
                assert differs == (spot.token in CHOSEN.pick(rows, units[0]).tolist())
            seen.add(differs)
    assert seen == {True, False}


def _units(both: Engines, worker: int) -> list[tuple[str, int]]:
    return sorted({(field.cache, field.tokens_per_row) for field in fields(both.plan.decode, worker)})
