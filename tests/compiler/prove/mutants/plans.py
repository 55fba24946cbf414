"""Every damage to a plan: to its reads, and to the nests of either table of one of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.compiler.prove.mutants.nests import NESTS, OF_TOKENS, Nests, OfNests
from tests.compiler.prove.mutants.reads import READS, Damage, changed, victim, with_read

from kvplan.plan.types import Plan, Table


def in_table(plan: Plan, name: str, change: OfNests) -> Plan | None:
    """The plan with the nests of one table of its damaged read changed."""
    worker, number = victim(plan)
    table = plan.reads[worker][number].table
    nests: Nests = getattr(table, name)
    found = change(nests) if nests else None
    return None if found is None or found == nests else changed(plan, table=_with(table, name, found))


def _with(table: Table, name: str, nests: Nests) -> Table:
    return replace(table, per_page=nests) if name == "per_page" else replace(table, per_token=nests)


def _one(name: str, change: OfNests) -> Damage:
    return lambda plan: in_table(plan, name, change)


DAMAGES: dict[str, Damage] = READS | {
    f"{name}, {where}": damage
    for name, change in (NESTS | OF_TOKENS).items()
    for where, damage in (("pages", _one("per_page", change)), ("tokens", _one("per_token", change)))
    if name in NESTS or where == "tokens"
}


def anywhere(random: Random, plan: Plan) -> Plan | None:
    """Damage of a random kind, to a random nest of a random read."""
    places = [(w, i) for w, reads in enumerate(plan.reads) for i in range(len(reads))]
    if not places:
        return None
    worker, number = random.choice(places)
    read = plan.reads[worker][number]
    name = random.choice([t for t in ("per_page", "per_token") if getattr(read.table, t)])
    nests: Nests = getattr(read.table, name)
    turn = random.randrange(len(nests))
    turned = nests[turn:] + nests[:turn]
    found = random.choice(list((NESTS | OF_TOKENS).values()))(turned)
    if found is None or found == turned:
        return None
    return with_read(plan, (worker, number), replace(read, table=_with(read.table, name, found)))
