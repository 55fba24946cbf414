"""The runtime posts the descriptors that a plan states for 1,024 tokens without adjacent blocks."""

from __future__ import annotations

import pytest
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.dimensions import Case, cases
from tests.end_to_end.worlds import runtime_request, world
from tests.requests import ask, block_table, ring_table
from tests.shares import later

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.request import groups_of
from kvplan.compiler.cost.cost import TOKENS, plan_cost
from kvplan.plan.block_tables import Slot, Table, positions
from kvplan.plan.types import CONTEXT, Group


def tables(side: BoundSide) -> dict[str, Table]:
    """Every second block of the pool, group by group; a state's slot at the end."""
    taken: dict[int, int] = {}
    found: dict[str, Table] = {}
    for group in groups_of(side):
        start = taken.get(group.arena, 0)
        found[group.name] = table(group, start)
        size = 1 if group.store == "state" else len(found[group.name].ids)  # type: ignore[union-attr]
        taken[group.arena] = start + 2 * size
    return found


def table(group: Group, start: int) -> Table:
    if group.store == "state":
        return Slot(start, TOKENS)
    if group.ring:
        return ring_table(tuple(range(start, start + 2 * group.ring // group.tokens, 2)), TOKENS)
    count = max(each.stop for n in range(group.shards) for each in positions(group, (0, TOKENS), n))
    return block_table(0, tuple(range(start, start + 2 * count, 2)))


@pytest.mark.parametrize("case", [*cases()[::6], *later(cases()[3::6])], ids=lambda case: str(case.number))
def test_facts_are_what_is_posted(case: Case) -> None:
    plan, both = compiled(case), sides(case)
    lengths = {g.length: (0, TOKENS) for g in both[1].groups if g.length != CONTEXT}
    request = ask((0, TOKENS), tables(both[0]), tables(both[1]), lengths)
    said = [sum(m.descriptors for m in plan_cost(plan).moves if n in m.workers) for n in range(len(plan.reads))]
    with world(plan, both, [request]) as made:
        posted = [sum(reader.predict(runtime_request(request, "r")).values()) for reader, _ in made.decode]
    assert posted == said
