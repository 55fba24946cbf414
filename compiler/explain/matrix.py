"""The cost of every pair of some prefill and some decode sides of a model."""

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
    """The cost of one request of 1024 tokens from token 0: all decode workers, caches and states together.

    `descriptors` are posted if no two logical blocks are adjacent, `bytes` are on the wire. `shortest_span` is in
    bytes, over direct spans before adjoining ones are joined into one descriptor; 0 if nothing moves.
    """

    descriptors: int
    bytes: int
    shortest_span: int


@dataclass(frozen=True, slots=True)
class RefusalReason:
    """The reason why a pair has no plan: `Refused`, or ProofFailed, which is a fault of the compiler."""

    code: str
    message: str
    help: str
    fault: bool = False


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One pair of sides as written, with its cost or the reason why it is refused."""

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
    """Return a cell for every pair, prefill sides outermost, in the order given; each plan is proved.

    A refused pair has a cell, and so has one whose proof fails. `watched` wraps the pairs, (prefill, decode), and
    yields each as its work begins. Raises DslError and BadInput before compiling a pair.
    """
    chosen, found = settled(options or {}), library.model(model)
    sides = {text: _bound(library, found, text) for text in (*prefills, *decodes)}
    pairs = watched([(p, d) for p in prefills for d in decodes])
    return tuple(MatrixCell(p, d, _outcome(sides[p], sides[d], chosen, (library, found))) for p, d in pairs)


def _bound(library: Library, model: Model, text: str) -> BoundSide | RefusalReason:
    """Return a side, bound once for all its pairs, or the reason why it is refused."""
    try:
        return bind(library, model, text)
    except Refused as error:
        return _reason(error)


def _outcome(
    prefill: BoundSide | RefusalReason,
    decode: BoundSide | RefusalReason,
    options: Mapping[str, str],
    files: tuple[Library, Model],
) -> PairCost | RefusalReason:
    if isinstance(prefill, RefusalReason):
        return prefill
    if isinstance(decode, RefusalReason):
        return decode
    try:
        compiled = compile_bound(prefill, decode, options, files=files)
    except (Refused, ProofFailed) as error:
        return _reason(error)
    return cost(compiled.facts)


def _reason(error: Refused | ProofFailed) -> RefusalReason:
    return RefusalReason(error.code, error.message, error.help, isinstance(error, ProofFailed))


def cost(facts: PlanCost) -> PairCost:
    """Return the cost of a 1024-token request by pull with these figures, staged if the plan is."""
    return PairCost(*moved(facts.moves, "unpack"), facts.shortest)
