"""Damage to the ranges of stages: refused by the proof, unless a simulation of both hops gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.random_sides.draw import Case, case
from tests.shares import later

from kvplan.compiler.api import compile_bound
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.prove.prove import prove
from kvplan.plan.types import PageRange, Plan, Read

Ranges = tuple[PageRange, ...]
SEEDS = 6


def _from(part: PageRange, offset: int) -> PageRange:
    """The range with another first byte and the same last one."""
    return replace(part, offset=offset, bytes=part.offset + part.bytes - offset)


DAMAGES: dict[str, Callable[[Ranges], Ranges]] = {
    "none": lambda every: every[:-1],
    "twice": lambda every: (*every, every[0]),
    "begins later": lambda every: (replace(every[0], offset=every[0].offset + 2, bytes=every[0].bytes - 2), *every[1:]),
    "begins earlier": lambda every: (replace(every[0], offset=every[0].offset - 2), *every[1:]),
    "further on": lambda every: (*every[:-1], replace(every[-1], offset=every[-1].offset + 2)),
    "ends earlier": lambda every: (*every[:-1], replace(every[-1], bytes=every[-1].bytes - 1)),
    "ends later": lambda every: (*every[:-1], replace(every[-1], bytes=every[-1].bytes + 2)),
    "empty": lambda every: (*every[:-1], replace(every[-1], bytes=0)),
    "before the page": lambda every: (_from(every[0], -2), *every[1:]),
    "beyond the page": lambda every: (replace(every[0], bytes=1 << 30), *every[1:]),
    "the last beyond the page": lambda every: (*every[:-1], replace(every[-1], bytes=1 << 30)),
    "another plane": lambda every: (replace(every[0], plane=every[0].plane + 1), *every[1:]),
    "no plane": lambda every: (replace(every[0], plane=-every[0].plane - 999), *every[1:]),
    "a plane less": lambda every: (replace(every[0], planes=every[0].planes - 1), *every[1:]),
    "a plane more": lambda every: (replace(every[0], planes=every[0].planes + 1), *every[1:]),
    "another step": lambda every: (replace(every[0], step=every[0].step + 1), *every[1:]),
}


@pytest.mark.parametrize("way", ["unpack", "pack"])
@pytest.mark.parametrize("first", [0, *later(range(SEEDS, 5 * SEEDS, SEEDS))])
def test_a_damaged_stage_is_refused_or_moves_the_same_bytes(first: int, way: str) -> None:
    verdicts = {
        (seed, name): _verdict(drawn, plan, way, damage)
        for seed in range(first, first + SEEDS)
        for drawn, plan in [_staged(seed, way)]
        for name, damage in DAMAGES.items()
    }
    assert [key for key, found in verdicts.items() if found == "not seen"] == []
    refused = {name for (_, name), found in verdicts.items() if found == "refused"}
    assert refused >= DAMAGES.keys() - {"none", "ends later", "begins earlier", "a plane more", "another step"}


def _staged(seed: int, way: str) -> tuple[Case, Plan]:
    drawn = case(seed)
    return drawn, compile_bound(drawn.prefill, drawn.decode, {"strategy": way}).plan


def _verdict(drawn: Case, plan: Plan, way: str, damage: Callable[[Ranges], Ranges]) -> str:
    mutant = _damaged(plan, way, damage)
    if mutant == plan:
        return "none"
    try:
        prove(mutant, placed(drawn.prefill), placed(drawn.decode))
    except ProofFailed:
        return "refused"
    moves = copies(mutant, drawn.request, way)
    right = simulate(mutant, drawn.prefill, drawn.decode, moves, drawn.request).right
    return "the same" if right else "not seen"


def _damaged(plan: Plan, way: str, damage: Callable[[Ranges], Ranges]) -> Plan:
    """The plan with the first staged read of every decode worker damaged."""
    reads = []
    for each in plan.reads:
        at = next((n for n, read in enumerate(each) if getattr(read.table, way)), None)
        reads.append(each if at is None else (*each[:at], _read(each[at], way, damage), *each[at + 1 :]))
    return replace(plan, reads=tuple(reads))


def _read(read: Read, way: str, damage: Callable[[Ranges], Ranges]) -> Read:
    table = read.table
    other = replace(table, unpack=damage(table.unpack)) if way == "unpack" else replace(table, pack=damage(table.pack))
    return replace(read, table=other)
