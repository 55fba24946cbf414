"""Candidates: the pairs of sides of a fleet file, compiled, with what a simulation needs of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvplan.compiler.api import compile_pair
from kvplan.compiler.errors import CompileError, Refused
from kvplan.compiler.options import DIRECT, MACHINE
from kvplan.compiler.side.text import sides
from kvplan.dsl.library import Library
from kvplan.dsl.schema.fleet import FleetCandidate, FleetFile
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.dsl.text.diagnostics import Diagnostic, DslError
from kvplan.plan.types import Plan, Side
from kvplan.runtime.transfer.limits import Limits
from kvplan.traffic.loads import loads_of
from kvplan.traffic.runs import SimulatedPair


def pairs_of(fleet: FleetFile) -> list[FleetCandidate]:
    """Return every candidate, which may stand for several, as pairs of one side each, in order, with unique names.

    Raises DslError with the place of unreadable text.
    """
    return [pair for candidate in fleet.candidates for pair in _located(candidate)]


def _located(candidate: FleetCandidate) -> list[FleetCandidate]:
    try:
        return list(_pairs(candidate))
    except CompileError as error:
        raise _placed(error, candidate) from error


def _pairs(candidate: FleetCandidate) -> Iterator[FleetCandidate]:
    every = [(prefill, decode) for prefill in sides(candidate.prefill) for decode in sides(candidate.decode)]
    for prefill, decode in every:
        said = f"{prefill} -> {decode}{_ways(candidate)}"
        name = said if not candidate.name else candidate.name if len(every) == 1 else f"{candidate.name}: {said}"
        yield replace(candidate, name=name, prefill=prefill, decode=decode)


def _ways(candidate: FleetCandidate) -> str:
    """Return the options that differ from the defaults."""
    words = [word for word in candidate.options.values() if word not in (DIRECT, "one")]
    words += [candidate.mode] if candidate.mode != "pull" else []
    words += ["layer by layer"] if candidate.layer_by_layer else []
    return "".join(f", {word}" for word in words)


def simulated_pair(library: Library, fleet: FleetFile, pair: FleetCandidate, profile: MachineProfile) -> SimulatedPair:
    """Compile and prove a pair. Raises Refused, and DslError with its place for other errors."""
    options = dict(pair.options)
    if options["strategy"] != DIRECT:
        options[MACHINE] = profile.name
    try:
        made = compile_pair(library, fleet.model, pair.prefill, pair.decode, options)
    except Refused:
        raise
    except CompileError as error:
        raise _placed(error, pair) from error
    return SimulatedPair(
        prefill=pair.engines.prefill,
        decode=pair.engines.decode,
        prefill_block=block_of(made.plan.prefill),
        decode_block=block_of(made.plan.decode),
        loads=loads_of(made.plan, profile, pair.mode),
        mode=pair.mode,
        pieces=_layers(made.plan) if pair.layer_by_layer else 1,
        router=fleet.router,
        limits=Limits(**fleet.limits.given_values),
        cores=fleet.cores,
        profile=profile,
    )


def block_of(side: Side) -> int:
    """Return the tokens of a block, by the side's first group of tokens; 1 if all are states."""
    return next((group.tokens for group in side.groups if group.store == "tokens"), 1)


def _layers(plan: Plan) -> int:
    return len({layer for reads in plan.reads for read in reads for layer in read.layers})


def _placed(error: CompileError, candidate: FleetCandidate) -> DslError:
    return DslError(Diagnostic(error.code, error.message, candidate.span, (), error.help))
