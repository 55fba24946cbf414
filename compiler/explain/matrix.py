"""Every pair of some prefill and some decode sides of a model, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan.compiler.api import compile_bound, settled
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.cost.cost import PlanCost
from kvplan.compiler.cost.times import moved
from kvplan.compiler.errors import ProofFailed, Refused

if TYPE_CHECKING:
    from kvplan.dsl.library import Library
    from kvplan.dsl.schema.model import Model

Watched = Callable[[Sequence[tuple[str, str]]], Iterable[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class PairCost:
    """What one request of 1024 tokens, from token 0, takes: all decode workers and all caches together, states too.

    `descriptors` are posted if no two logical blocks are adjacent, `bytes` are on the wire; `shortest_span` is in
    bytes, of what goes straight before adjoining spans are joined into one descriptor; 0 where nothing moves.
    """

    descriptors: int
    bytes: int
    shortest_span: int


@dataclass(frozen=True, slots=True)
class RefusalReason:
    """Why a pair has no plan, as `Refused` says it, or ProofFailed: that is a fault of the compiler."""

    code: str
    message: str
    help: str
    fault: bool = False


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One pair of sides as they were written, with its cost, or with the reason why it is refused."""

    prefill: str
    decode: str
    outcome: PairCost | RefusalReason


def matrix(
    library: Library,
    model: str,
    prefills: Sequence[str],
    decodes: Sequence[str],
    options: Mapping[str, str] | None = None,
    watched: Watched = iter,
) -> tuple[MatrixCell, ...]:
    """A cell for every pair, prefill sides outermost, in the order given; each plan is proved.

    A refused pair is a cell, and so is one whose proof fails. `watched` hands on each pair, (prefill, decode), as it is
    begun. Raises DslError and BadInput, before a pair is compiled.
    """
    chosen, found = settled(options or {}), library.model(model)
    sides = {text: _bound(library, found, text) for text in (*prefills, *decodes)}
    pairs = watched([(p, d) for p in prefills for d in decodes])
    return tuple(MatrixCell(p, d, _outcome(sides[p], sides[d], chosen)) for p, d in pairs)


def _bound(library: Library, model: Model, text: str) -> BoundSide | RefusalReason:
    """A side, bound once for all its pairs, or why it is refused."""
    try:
        return bind(library, model, text)
    except Refused as error:
        return _reason(error)


def _outcome(
    prefill: BoundSide | RefusalReason, decode: BoundSide | RefusalReason, options: Mapping[str, str]
) -> PairCost | RefusalReason:
    if isinstance(prefill, RefusalReason):
        return prefill
    if isinstance(decode, RefusalReason):
        return decode
    try:
        compiled = compile_bound(prefill, decode, options)
    except (Refused, ProofFailed) as error:
        return _reason(error)
    return cost(compiled.facts)


def _reason(error: Refused | ProofFailed) -> RefusalReason:
    return RefusalReason(error.code, error.message, error.help, isinstance(error, ProofFailed))


def cost(facts: PlanCost) -> PairCost:
    """What a request of 1024 tokens costs that is pulled by a plan with these figures, staged where it is."""
    return PairCost(*moved(facts.moves, "unpack"), facts.shortest)
