"""Damaged plans of every kind: the proof refuses each, and the simulator sees each that copies other bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from tests.compiler.prove.mutants.copies import by_tokens, traced
from tests.compiler.prove.mutants.pairs import PAIRS
from tests.compiler.prove.mutants.plans import DAMAGES
from tests.shares import later, share, with_rest

from kvplan.compiler.api import Compiled, compile_bound
from kvplan.compiler.check.audit.audit import Survey, unchecked_survey
from kvplan.compiler.check.request import Copy
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulated
from kvplan.compiler.emit.emit import emit
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.placed import PlacedSide, placed
from kvplan.compiler.prove.prove import prove
from kvplan.plan.digest import sealed
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.files.loader import parse
from kvplan.plan.request import Request
from kvplan.plan.spans import group_named, pair_named
from kvplan.plan.types import GroupPair, Nest, Plan, Side


@cache
def whole(name: str) -> tuple[Compiled, PlacedSide, PlacedSide, Request]:
    """A pair compiled and placed, with a request that has whole pages and is ragged at both ends."""
    sides = PAIRS[name]
    own = {"own": (1, 18)} if any(c.length == "own" for c in sides.decode.caches) else None
    request = sample_request(sides.prefill, sides.decode, (3, 21), 1, own)
    made = compile_bound(sides.prefill, sides.decode, sides.options)
    return made, placed(sides.prefill), placed(sides.decode), request


@cache
def right(name: str) -> list[Copy] | None:
    made, _, _, request = whole(name)
    return traced(made.plan, request)


@cache
def surveyed(name: str) -> Survey:
    made, _, _, request = whole(name)
    return unchecked_survey(made.prefill, made.decode, request)


def mutants(name: str) -> Iterator[tuple[str, Plan]]:
    """Every damage that makes sense for a pair, with the damaged plan."""
    plan = whole(name)[0].plan
    for damage, change in DAMAGES.items():
        found = change(plan)
        if found is not None:
            assert found != plan, damage
            yield damage, found


# The pairs whose damages `make test` simulates and writes out; it proves those of all.
SOME = [*PAIRS][::3]
# Every fifth damage of a pair, with another first one for each pair; `make test-all` runs the others.
FIFTH = with_rest("fifth")


def drawn(name: str, rest: bool) -> list[tuple[str, Plan]]:
    found = list(mutants(name))
    assert len(found) >= 30
    return share(found, list(PAIRS).index(name), 5, rest)


def proved(plan: Plan, name: str) -> bool:
    _, prefill, decode, _ = whole(name)
    try:
        prove(plan, prefill, decode)
    except ProofFailed:
        return False
    return True


def seems_right(plan: Plan, name: str, moves: list[Copy]) -> bool:
    return simulated(plan, surveyed(name), moves).right


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_plan_is_proved_and_seems_right(name: str) -> None:
    plan, moves = whole(name)[0].plan, right(name)
    assert moves
    assert proved(plan, name)
    assert seems_right(plan, name, moves)


@FIFTH
@pytest.mark.parametrize("name", PAIRS)
def test_the_proof_refuses_every_damage(name: str, rest: bool) -> None:
    assert [damage for damage, plan in drawn(name, rest) if proved(plan, name)] == []


@FIFTH
@pytest.mark.parametrize("name", [*SOME, *later(name for name in PAIRS if name not in SOME)])
def test_the_simulator_sees_every_damage_that_changes_a_copy(name: str, rest: bool) -> None:
    found = [(damage, plan, traced(plan, whole(name)[3])) for damage, plan in drawn(name, rest) if not by_tokens(plan)]
    unlike = [(damage, plan, moves) for damage, plan, moves in found if moves is not None and moves != right(name)]
    assert len(unlike) >= 5
    assert [damage for damage, plan, moves in unlike if seems_right(plan, name, moves)] == []


def test_every_damage_is_done_to_some_plan_and_most_to_many() -> None:
    done = {damage: sum(bool(change(whole(name)[0].plan)) for name in PAIRS) for damage, change in DAMAGES.items()}
    assert [damage for damage, count in done.items() if not count] == []
    assert sum(count > len(PAIRS) // 2 for count in done.values()) > len(DAMAGES) * 3 // 4


@pytest.mark.parametrize("name", [*SOME, *later(name for name in PAIRS if name not in SOME)])
def test_the_text_of_a_damaged_plan_is_refused_by_its_digest_and_once_sealed_by_its_numbers_or_the_proof(
    name: str,
) -> None:
    made = whole(name)[0]
    chosen = list(mutants(name))[::17]
    assert chosen
    for damage, plan in chosen:
        with pytest.raises(PlanFormatError, match="digest"):
            parse(emit(plan, made.facts), name)
        try:
            found = parse(emit(sealed(plan), made.facts), name)
        except PlanFormatError:  # A number of it leads nowhere.
            continue
        assert not proved(found, name), damage


def two_rows(nest: Nest, rows: int) -> Nest:
    """The nest with hops that lead to the second and to the last of `rows` rows of a page, and astray between them."""
    last = rows - 1
    return replace(nest, hops=tuple((last, last // size * p, last // size * d) for size, p, d in nest.hops))


def test_every_row_of_a_page_in_tiles_is_looked_at() -> None:
    damaged = 0
    for name in PAIRS:
        plan = whole(name)[0].plan
        for read in (read for reads in plan.reads for read in reads if any(n.hops for n in read.table.per_token)):
            pair = pair_named(plan, read.groups)
            rows = {group_named(s, g).kernel // pair.rows for s, g in sides_of(plan, pair)}
            token = tuple(two_rows(nest, max(rows)) for nest in read.table.per_token)
            if len(rows) > 1 or token == read.table.per_token:
                continue
            other = replace(read, table=replace(read.table, per_token=token))
            every = tuple(tuple(other if each is read else each for each in reads) for reads in plan.reads)
            assert not proved(replace(plan, reads=every), name)
            damaged += 1
    assert damaged


def sides_of(plan: Plan, pair: GroupPair) -> tuple[tuple[Side, str], tuple[Side, str]]:
    return (plan.prefill, pair.prefill), (plan.decode, pair.decode)
