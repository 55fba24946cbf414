"""Emit: a plan as the text of a module that people review. jinja2 makes the frame, `pylit` every value in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from kvplan.compiler.emit.constants import Constants, Names, hoisted
from kvplan.compiler.emit.cost import PlanCost
from kvplan.compiler.emit.header import docstring
from kvplan.compiler.emit.pylit import ConstructorCall, NameRef, assign, lit
from kvplan.plan.match_functions import WIDTH, names, render
from kvplan.plan.module import IMPORTS
from kvplan.plan.spans import group_named
from kvplan.plan.types import ALL, Nest, Pair, Plan, Planes, Read, Side, Worker


def emit(plan: Plan, facts: PlanCost, command: str = "") -> str:
    """The text of the module of `plan`. `command` is the command line that makes it again."""
    found = hoisted(plan)
    text = _template().render(
        header=docstring(plan, facts, command),
        imports="IMPORTS",
        plan=plan,
        lists=_assigned(found.ints),
        views=_constants(found, found.fields[Planes, "views"]),
        loops=_constants(found, found.fields[Planes, "loops"]),
        planes=_constants(found, found.fields[Worker, "planes"]),
        sides="\n\n".join((_side(found, "PREFILL", plan.prefill), _side(found, "DECODE", plan.decode))),
        tables=_tables(found),
        tiled=any(nest.hops for worker in plan.reads for read in worker for nest in read.table.token),
        functions=functions(plan).values(),
        readers="\n".join(assign(name, found.shown(reads)) for reads, name in found.readers.items()),
        workers=[_reads(found, reads) for reads in plan.reads],
        notify=assign("NOTIFY", found.shown(plan.notify), "tuple[tuple[int, ...], ...]"),
        whole=assign("PLAN", _whole(plan)),
        needs=any(pair.needs != ALL for pair in plan.pairs),
    )
    return text.replace("IMPORTS", imports(text), 1)


def functions(plan: Plan) -> dict[str, str]:
    """The text of every match function of a plan, by name."""
    by_pair = names(plan.pairs)
    return {
        by_pair[pair.name]: render(
            by_pair[pair.name],
            group_named(plan.prefill, pair.prefill),
            group_named(plan.decode, pair.decode),
            pair.needs,
            pair.rows,
        )
        for pair in plan.pairs
    }


def imports(text: str) -> str:
    """The import of what `text` uses, sorted as isort does."""
    body = text.partition("IMPORTS")[2]
    # Types are named in annotations, too; a helper's name may be a word of a comment where it is not called.
    used = [name for name in IMPORTS if re.search(rf"\b{name}\b" if name[0].isupper() else rf"\b{name}\(", body)]
    line = f"from kvplan.plan.types import {', '.join(used)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join(["from kvplan.plan.types import (", *(f"    {name}," for name in used), ")"])


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("kvplan.compiler.emit"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["lit"] = lit
    return environment.get_template("plan.py.j2")


def _assigned(values: Mapping[object, str]) -> str:
    return "\n".join(assign(name, value) for value, name in values.items())


def _constants(found: Constants, values: Names) -> str:
    return "\n".join(assign(name, found.shown(value)) for value, name in values.items())


def _tables(found: Constants) -> str:
    holds = found.fields.get((Read, "holds"), {})
    loops = _constants(found, found.fields[Nest, "loops"])
    return "\n".join(filter(None, (loops, _assigned(holds), _constants(found, found.fields[Read, "table"]))))


def _reads(found: Constants, reads: tuple[Read, ...]) -> str:
    name = found.readers.get(reads)
    return name or lit(found.shown(reads), indent=4, trail=1)


def _side(found: Constants, name: str, side: Side) -> str:
    items = (
        ("key", side.key),
        ("digest", NameRef(f"{name}_DIGEST")),
        ("groups", found.shown(side.groups)),
        ("workers", found.shown(side.workers)),
    )
    return assign(name, ConstructorCall("Side", kwargs=items))


def _whole(plan: Plan) -> ConstructorCall:
    by_pair = names(plan.pairs)
    pairs = tuple(_pair(pair, by_pair[pair.name]) for pair in plan.pairs)
    items = (
        ("format", plan.format),
        ("title", plan.title),
        ("model", plan.model),
        ("model_digest", NameRef("MODEL_DIGEST")),
        ("digest", NameRef("PLAN_DIGEST")),
        ("options", plan.options),
        ("prefill", NameRef("PREFILL")),
        ("decode", NameRef("DECODE")),
        ("pairs", pairs),
        ("reads", NameRef("READS")),
        ("notify", NameRef("NOTIFY")),
        *((("skipped", plan.skipped),) if plan.skipped else ()),
        *((("functions", NameRef("FUNCTIONS_DIGEST")),) if plan.functions else ()),
    )
    return ConstructorCall("Plan", kwargs=items)


def _pair(pair: Pair, match: str) -> ConstructorCall:
    needs = pair.needs
    said = tuple((f.name, getattr(needs, f.name)) for f in fields(needs) if getattr(needs, f.name) != f.default)
    rest: list[tuple[str, object]] = [("needs", ConstructorCall("Needs", kwargs=said))] if said else []
    rest += [("rows", pair.rows)] if pair.rows > 1 else []
    return ConstructorCall("Pair", (pair.name, pair.prefill, pair.decode, pair.page, NameRef(match)), tuple(rest))
