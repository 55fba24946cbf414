"""Compile two sides of a model into the text of a plan, proved on that text. The caller writes the file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from kvplan.compiler import digests as digest
from kvplan.compiler.bind.bind import bind, held_as
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.compat import Files, check_pair
from kvplan.compiler.cost.cost import PlanCost, plan_cost
from kvplan.compiler.cost.limit import check_spans
from kvplan.compiler.cost.strategy import staged, with_strategies
from kvplan.compiler.cost.times import times_us
from kvplan.compiler.emit.emit import emit
from kvplan.compiler.emit.header import HERE
from kvplan.compiler.errors import BadInput, ProofFailed, Refused
from kvplan.compiler.options import AUTO, DIRECT, MACHINE, OPTIONS
from kvplan.compiler.paging.paging import check_rows
from kvplan.compiler.pair.groups import pair_groups
from kvplan.compiler.pair.reads import elections, notified, reads
from kvplan.compiler.placement.placed import PlacedSide, placed
from kvplan.compiler.placement.sides import plan_side
from kvplan.compiler.prove.prove import Proof, claim, prove
from kvplan.compiler.side.text import nearest, sides
from kvplan.compiler.words import many
from kvplan.dsl.check import model_doubts
from kvplan.dsl.schema.fields import guarded
from kvplan.dsl.stored_layers import stored_layers
from kvplan.dsl.text.diagnostics import Sink, listed
from kvplan.plan.errors import KvplanError
from kvplan.plan.files.loader import parse
from kvplan.plan.types import FORMAT, Plan, Side

if TYPE_CHECKING:
    from kvplan.dsl.library import Library
    from kvplan.dsl.schema.machine import MachineProfile
    from kvplan.dsl.schema.model import Model

LONGEST = 200
# A faster strategy is worth a hint from `MUCH` times on; the hint names at most `FEW` plans.
MUCH, FEW = 3, 3
# A note that repeats a doubt about the model begins with this.
DOUBT = "in doubt: "


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled plan and its facts. `plan` is parsed from `text`; `path` is relative to the folder of plans."""

    path: str
    text: str
    plan: Plan
    prefill: BoundSide
    decode: BoundSide
    facts: PlanCost
    proof: Proof


def compile_pair(
    library: Library, model: str, prefill: str, decode: str, options: Mapping[str, str] | None = None
) -> Compiled:
    """Compile one pair of sides of a model. Raises DslError, BadInput, Refused, ProofFailed."""
    found = library.model(model)
    try:
        sides_of = bind(library, found, prefill), bind(library, found, decode)
    except Refused as error:
        raise _with_command(error, library, found, prefill, decode) from error
    profile = library.machine((options or {}).get(MACHINE, library.default_machine))
    extra = _own_layouts(library, profile.name, *sides_of)
    used = [library.engine(name) for name in sorted({side.engine for side in sides_of})]
    doubts = [f"{doubt.message.rstrip('.')} ({doubt.code})" for doubt in model_doubts(library, found, used)]
    layers = stored_layers(found, {cache.name for side in sides_of for cache in side.caches})
    return compile_bound(*sides_of, options, found.title, extra, doubts, profile, layers, (library, found))


def compile_bound(
    prefill: BoundSide,
    decode: BoundSide,
    options: Mapping[str, str] | None = None,
    title: str = "",
    extra: Sequence[str] = (),
    doubts: Sequence[str] = (),
    profile: MachineProfile | None = None,
    layers: str = "",
    files: Files | None = None,
) -> Compiled:
    """Compile two bound sides. A machine's `profile` chooses and costs strategies; by default it is the shipped one.

    `extra` are further words of the command that compiles the plan again; the header repeats `doubts` about the model.
    `layers` says which layers store what. The `files` that the sides are bound from make advice better.
    """
    chosen = settled(options or {})
    skipped = check_pair(prefill, decode, files)
    for side in (prefill, decode):
        check_rows(side)
    here, there = placed(prefill), placed(decode)
    plan = _plan(here, there, chosen, skipped, title or prefill.model)
    check_spans(plan)
    machine = None if chosen["strategy"] == DIRECT else profile or _shipped_machine()
    plan = digest.sealed(staged(plan, chosen["strategy"], machine)) if machine else plan
    sides = (("prefill", prefill), ("decode", decode))
    notes = tuple(f"{name}: {note}" for name, side in sides for note in (*side.notes, *_unprobed(side)))
    notes = (*(f"{DOUBT}{doubt}" for doubt in doubts), *notes)
    proved = claim(there, skipped)
    about = plan_cost(plan, proved=proved, notes=notes)
    about = replace(with_strategies(about, plan, machine) if machine else about, layers=layers)
    text = emit(plan, about, command=" ".join([command(plan), *extra]))
    parsed = _read_back(text, plan.model)
    proof = prove(parsed, here, there)
    if proof.sentence not in " ".join(text.split()):
        raise ProofFailed("P018", "the plan does not say what was proved")
    return Compiled(path(plan), text, parsed, prefill, decode, about, proof)


def _read_back(text: str, model: str) -> Plan:
    """Parse the emitted text the way a runtime loads it. Raises ProofFailed (P023)."""
    try:
        return parse(text, model)
    except KvplanError as error:
        raise ProofFailed("P023", f"the text of the plan cannot be loaded: {error}") from error


def _fitting_side(library: Library, model: Model, text: str) -> str:
    """Return the side if it can hold the model, else with the keys its engine needs for that; "" if neither can."""
    try:
        bind(library, model, text)
    except Refused:
        return held_as(library, model, text)
    return text


def _with_command(error: Refused, library: Library, model: Model, prefill: str, decode: str) -> Refused:
    """Add the command that works to a refusal, if the model's file has the keys that its engines need."""
    texts = [_fitting_side(library, model, text) for text in (prefill, decode)]
    if not all(texts):
        return error
    says = f"this works: kvplan compile {model.name} --prefill {texts[0]} --decode {texts[1]}"
    return Refused(error.code, error.message, says)


def _unprobed(side: BoundSide) -> tuple[str, ...]:
    """Return a note on the caches whose page layout was not verified on a running engine."""
    if not side.unprobed:
        return ()
    caches = f"cache{'s' if len(side.unprobed) > 1 else ''} {listed(side.unprobed, 'and')}"
    return (
        f"the page layout of {caches} comes from {side.engine}'s engine file; not yet verified on a running engine: "
        "the --probe of kvplan from-cache verifies it",
    )


def _own_layouts(library: Library, machine: str, *both: BoundSide) -> tuple[str, ...]:
    """Return the words that a command needs if it uses a file of the user's own folder of layouts."""
    used = {("model", side.model) for side in both} | {("engine", side.engine) for side in both}
    used |= {("kind", cache.kind) for side in both for cache in side.caches} | {("machine", machine)}
    return () if all(library.shipped(sort, name) for sort, name in used) else (HERE,)


def side_of(bound: BoundSide) -> tuple[Side, str]:
    """Return a side as plans contain it, and the digest of its model. Raises Refused (C10x)."""
    side = plan_side(placed(bound))
    return replace(side, digest=digest.side(side)), digest.model(bound)


def settled(options: Mapping[str, str]) -> dict[str, str]:
    """Return the value of every compile option; the machine only if it is given. Raises BadInput (S015)."""
    named = {MACHINE: options[MACHINE]} if MACHINE in options else {}
    if named and options.get("strategy", DIRECT) == DIRECT:
        raise BadInput("S015", "a machine, and nothing to be chosen by it", "give strategy=auto, too")
    for name, value in options.items() - named.items():
        allowed = OPTIONS.get(name)
        if allowed is None:
            known = sorted((*OPTIONS, MACHINE))
            raise BadInput("S015", f"unknown compile option {name!r}", nearest(name, known))
        if value not in allowed:
            raise BadInput("S015", f"{name}={value} is not a choice", nearest(value, allowed))
    return {**{name: options.get(name, values[0]) for name, values in OPTIONS.items()}, **named}


def faster(plans: Mapping[str, Compiled], library: Library) -> str:
    """Return the hint at strategy auto: how much faster it is predicted to be than these direct plans, by name.

    It covers all known machines, except those whose file has errors. Empty if no plan would be much faster.
    """
    found = (guarded(Sink(), partial(library.machine, name)) for name in library.machines)
    profiles = [profile for profile in found if profile]
    direct = {name: plan for name, plan in plans.items() if dict(plan.plan.options)["strategy"] == DIRECT}
    times = {name: sorted(_speedup(plan, profile) for profile in profiles) for name, plan in direct.items()}
    much = sorted((name for name, each in times.items() if each[-1] >= MUCH), key=lambda name: -times[name][-1])
    if not much:
        return ""
    said = [f"{name} up to {_factor(times[name][-1])} times" for name in much[:FEW]]
    more = f" and {many(len(much) - FEW, 'other plan')}" if len(much) > FEW else ""
    hint = f"--strategy {AUTO} is predicted to be faster: {', '.join(said)}{more}"
    return f"{hint}, depending on the machine; `kvplan advise` has the times"


def _factor(times: float) -> str:
    return f"{times:.0f}" if times >= MUCH * MUCH else f"{times:.1f}"


def _speedup(compiled: Compiled, profile: MachineProfile) -> float:
    """Return how many times faster than the direct plan strategy auto is predicted to be on a machine."""
    moves = with_strategies(compiled.facts, staged(compiled.plan, AUTO, profile), profile).moves
    others = dict.fromkeys(stage.strategy for move in moves for stage in move.staged)
    direct, *times = (max(times_us(moves, way, profile).values(), default=0.0) for way in (DIRECT, *others))
    return max((direct / time for time in times if time), default=1.0)


@cache
def _shipped_machine() -> MachineProfile:
    from kvplan.dsl.library import load

    library = load()
    return library.machine(library.default_machine)


def command(plan: Plan) -> str:
    """Return the command line that compiles a plan again, quoted for a shell."""
    options = {"prefill": plan.prefill.key, "decode": plan.decode.key, **dict(unusual(plan))}
    given = (f"--{name} {shlex.quote(value)}" for name, value in options.items())
    return " ".join(["kvplan compile", shlex.quote(plan.model), *given])


def path(plan: Plan) -> str:
    """Return the path of a plan in the folder of plans, made of both sides' options that differ from the defaults."""
    sides = [words(side.key.split(",")) for side in (plan.prefill, plan.decode)]
    name = "__".join([f"p_{sides[0]}", f"d_{sides[1]}", *(f"{n}_{v}" for n, v in unusual(plan))])
    # File systems take 255 bytes: a longer name ends with the plan's digest instead.
    name = name if len(name) <= LONGEST else f"{name[: LONGEST - 9].rstrip('_')}_{plan.digest[:8]}"
    return f"{identifier(plan.model)}/{name}.py"


def unusual(plan: Plan) -> list[tuple[str, str]]:
    """Return the compile options that differ from their defaults."""
    return [(name, value) for name, value in plan.options if name == MACHINE or value != OPTIONS[name][0]]


def words(items: Iterable[str]) -> str:
    """Return `name=value` items as part of a file name."""
    pairs = (item.partition("=") for item in items)
    return "_".join(identifier(value if value[:1].isalpha() else f"{name}{value}") for name, _, value in pairs)


def identifier(text: str) -> str:
    """Return a text as a word for file names: lower-case letters, digits and single `_`."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _plan(
    prefill: PlacedSide, decode: PlacedSide, options: Mapping[str, str], skipped: tuple[str, ...], title: str
) -> Plan:
    chosen = elections(prefill.side, decode.side, options["elect"])
    pairs = pair_groups(prefill.side, decode.side)
    plan = Plan(
        FORMAT,
        title,
        prefill.side.model,
        digest.model(decode.side),
        "",
        tuple(sorted(options.items())),
        plan_side(prefill),
        plan_side(decode),
        tuple(pairs),
        reads(prefill, decode, chosen, pairs),
        notified(len(decode.side.workers), chosen),
        skipped,
    )
    return digest.sealed(plan)


__all__ = [
    "DOUBT",
    "OPTIONS",
    "Compiled",
    "command",
    "compile_bound",
    "compile_pair",
    "path",
    "settled",
    "side_of",
    "sides",
]
