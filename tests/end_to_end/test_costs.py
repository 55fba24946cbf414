"""What a plan says that 1,024 tokens cost is what the runtime posts, where no two logical blocks are neighbours."""

from __future__ import annotations

import pytest
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.dimensions import Case, cases
from tests.end_to_end.worlds import runtime_request, world

from kvplan.compiler.bound import BoundGroup, BoundSide
from kvplan.compiler.check.request import Ids, Request, Ring, Slot, Table
from kvplan.compiler.check.request_fits import positions
from kvplan.compiler.emit.cost import TOKENS, plan_cost
from kvplan.plan.types import CONTEXT


def tables(side: BoundSide) -> dict[str, Table]:
    """Every second block of the pool, group by group; a state's slot at the end."""
    taken: dict[int, int] = {}
    found: dict[str, Table] = {}
    for group in side.groups:
        start = taken.get(group.arena, 0)
        found[group.name] = table(side, group, start)
        size = 1 if group.store == "state" else len(found[group.name].ids)  # type: ignore[union-attr]
        taken[group.arena] = start + 2 * size
    return found


def table(side: BoundSide, group: BoundGroup, start: int) -> Table:
    if group.store == "state":
        return Slot(start, TOKENS)
    if group.ring:
        return Ring(tuple(range(start, start + 2 * group.ring // group.tokens, 2)), TOKENS)
    count = max(each.stop for each in positions(side, group, 0, TOKENS))
    return Ids(0, tuple(range(start, start + 2 * count, 2)))


@pytest.mark.parametrize("case", cases()[::3], ids=lambda case: str(case.number))
def test_facts_are_what_is_posted(case: Case) -> None:
    plan, both = compiled(case), sides(case)
    lengths = {g.length: (0, TOKENS) for g in both[1].groups if g.length != CONTEXT}
    request = Request((0, TOKENS), tables(both[0]), tables(both[1]), lengths)
    said = [sum(m.requests for m in plan_cost(plan).moves if n in m.workers) for n in range(len(plan.reads))]
    with world(plan, both, [request]) as made:
        posted = [sum(reader.predict(runtime_request(request, "r")).values()) for reader, _ in made.decode]
    assert posted == said
