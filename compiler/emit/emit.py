"""Emit a plan as the text of a module that people review. jinja2 makes the frame, `pylit` every value in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from kvplan.compiler.cost.cost import PlanCost
from kvplan.compiler.emit.constants import Constants, hoisted
from kvplan.compiler.emit.header import docstring, sharing
from kvplan.compiler.emit.match_text import match_text
from kvplan.compiler.emit.names import Names
from kvplan.compiler.emit.pylit import STEP, ConstructorCall, NameRef, assign, comment, lit
from kvplan.compiler.words import part_name
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.files.module import FUNCTIONS, IMPORTS
from kvplan.plan.types import Nest, Plan, Planes, Read, Side, Worker

# The indent of the values that a function returns.
INNER = 2 * STEP
STAGES = (
    "A staged read moves ranges of pages whole: of prefill pages, from which decode copies (`unpack`), or of decode "
    "pages, into which prefill copies (`pack`)."
)


def emit(plan: Plan, facts: PlanCost, command: str = "") -> str:
    """Return the text of the module of `plan`. `command` is the command line that compiles it again."""
    found = hoisted(plan)
    text = _template().render(
        header=docstring(plan, facts, command),
        imports="IMPORTS",
        returns=FUNCTIONS,
        workers=[_reads(found, number, reads) for number, reads in enumerate(plan.reads)],
        notify=assign("NOTIFY", plan.notify) if any(plan.notify) else "",
        lists=_assigned(found.ints),
        rows=_assigned(found.rows),
        tables=_constants(found, found.fields[Nest, "loops"], found.fields[Read, "table"]),
        about_tables=comment(_about_tables(plan)),
        readers=_constants(found, found.readers),
        match=match_text(plan),
        states=any(group.store == "state" for group in plan.decode.groups),
        group_pairs=assign("GROUP_PAIRS", found.shown(plan.group_pairs)),
        sides={"prefill": _side(found, plan.prefill), "decode": _side(found, plan.decode)},
        views=_constants(found, found.fields[Planes, "views"]),
        planes=_constants(found, found.fields[Worker, "planes"]),
        parts=_about_parts(plan),
        arenas=any(map(sharing, (plan.prefill, plan.decode))),
        whole=assign("PLAN", _whole(plan)),
    )
    return text.replace("IMPORTS", imports(text), 1)


def imports(text: str) -> str:
    """Return the import of the names that `text` uses, sorted as isort does."""
    body = text.partition("IMPORTS")[2]
    # A fast substring test first: the regular expression would take most of the time on long plans.
    used = [name for name in IMPORTS if name in body and re.search(rf"\b{name}\b", body)]
    return f"from kvplan.plan.types import {', '.join(used)}"


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
    return environment.get_template("plan.py.j2")


def _about_tables(plan: Plan) -> str:
    """Explain the tables of a plan, without anything that it does not have."""
    tokens = [nest for reads in plan.reads for read in reads for nest in read.table.per_token]
    joined = any(nest.token_step == (nest.bytes, nest.bytes) for nest in tokens)
    run = ", or for each token of a run (`per_token`)" if tokens else ""
    step = "`token_step` is the step from one token to the next on each side"
    step += "; if both steps equal `bytes`, all tokens of a run are one span. " if joined else ". "
    hops = (
        "Hops, for tokens in tiles, are (rows, prefill bytes, decode bytes): after so many rows, so many bytes further."
    )
    stages = any(read.table.unpack or read.table.pack for reads in plan.reads for read in reads)
    return (
        f"What a read copies for one block (`per_page` of a Table){run}. A Nest is a span of `bytes` bytes at (plane, "
        "byte in the page) on each side, (0, 0) if left out; its loops repeat it with steps of (planes, bytes). "
        f"{step if tokens else ''}{f'{hops} ' if any(nest.hops for nest in tokens) else ''}{STAGES if stages else ''}"
    )


def _about_parts(plan: Plan) -> str:
    """Explain parts, and say which tensors lie in allocations that have only a number."""
    workers = (worker for side in (plan.prefill, plan.decode) for worker in side.workers)
    every = [entry for worker in workers for entry in worker.planes if entry.part]
    named = ((entry, part_name(entry.part, (view.tensor for view in entry.views))) for entry in every)
    alike = grouped((f'part "{entry.part}" has {name}', entry.cache) for entry, name in named if entry.part != name)
    said = [f"{text} ({', '.join(dict.fromkeys(caches))})" for text, caches in alike.items()]
    numbers = f" Allocations by number: {', '.join(said)}." if said else ""
    return comment(f"`part`: an allocation of a cache that has several.{numbers}") if every else ""


def _assigned(values: Names) -> str:
    return "\n".join(assign(name, value) for value, name in values.items())


def _constants(found: Constants, *values: Names) -> str:
    return "\n".join(assign(name, found.shown(value)) for names in values for value, name in names.items())


def _reads(found: Constants, number: int, reads: tuple[Read, ...]) -> str:
    """Return the reads of a decode worker, with its number."""
    said = f"# decode worker {number}"
    if reads in found.readers:
        return f"{found.readers[reads]},  {said}"
    shown = found.shown(reads)
    assert isinstance(shown, tuple)
    if len(shown) < 2:
        return f"{said}\n{' ' * INNER}{lit(shown, INNER, 0, 1)},"
    lines = (f"{' ' * (INNER + STEP)}{lit(value, INNER + STEP, 0, 1)}," for value in shown)
    return "\n".join([f"(  {said}", *lines, f"{' ' * INNER}),"])


def _side(found: Constants, side: Side) -> str:
    items = (
        ("key", side.key),
        ("digest", side.digest),
        ("groups", found.shown(side.groups)),
        ("workers", found.shown(side.workers)),
        *((("needs", found.shown(side.needs)),) if side.needs else ()),
    )
    return lit(ConstructorCall("Side", kwargs=items), STEP, len("return "))


def _whole(plan: Plan) -> ConstructorCall:
    values: Iterable[tuple[str, object]] = (
        ("format", plan.format),
        ("title", plan.title),
        ("model", plan.model),
        ("model_digest", plan.model_digest),
        ("digest", plan.digest),
        ("options", plan.options),
        ("prefill", ConstructorCall("prefill")),
        ("decode", ConstructorCall("decode")),
        ("group_pairs", NameRef("GROUP_PAIRS")),
        ("reads", ConstructorCall("reads")),
        *((("notify", NameRef("NOTIFY")),) if any(plan.notify) else ()),
        *((("skipped", plan.skipped),) if plan.skipped else ()),
    )
    return ConstructorCall("Plan", kwargs=tuple(values))
