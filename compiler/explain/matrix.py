"""Every pair of some prefill and some decode sides of a model, and what each costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvplan.compiler.api import compile_bound, settled
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.emit.cost import TOKENS, PlanCost
from kvplan.compiler.errors import Refused
from kvplan.plan import spans
from kvplan.plan.spans import group_named
from kvplan.plan.types import Blocks, Nest, Pair, Plan, Runs, Table

if TYPE_CHECKING:
    from kvplan.dsl.library import Library
    from kvplan.dsl.model import Model


@dataclass(frozen=True, slots=True)
class PairCost:
    """What one request of 1024 tokens, from token 0, takes: all decode workers and all caches together, states too.

    `requests` are posted where no two logical blocks are neighbours, `bytes` are written; `shortest_span` is in bytes,
    before spans that follow each other are joined into one request; 0 where nothing moves.
    """

    requests: int
    bytes: int
    shortest_span: int


@dataclass(frozen=True, slots=True)
class RefusalReason:
    """Why a pair is refused, as `Refused` says it."""

    code: str
    message: str
    help: str


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
) -> tuple[MatrixCell, ...]:
    """A cell for every pair, prefill sides outermost, in the order given; each plan is proved.

    A refused pair is a cell. Raises DslError, BadInput and ProofFailed; the first two before a pair is compiled.
    """
    chosen, found = settled(options or {}), library.model(model)
    sides = {text: _bound(library, found, text) for text in (*prefills, *decodes)}
    return tuple(MatrixCell(p, d, _outcome(sides[p], sides[d], chosen)) for p in prefills for d in decodes)


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
    except Refused as error:
        return _reason(error)
    return cost(compiled.plan, compiled.facts)


def _reason(error: Refused) -> RefusalReason:
    return RefusalReason(error.code, error.message, error.help)


def cost(plan: Plan, facts: PlanCost) -> PairCost:
    """What a request of 1024 tokens costs by `plan`, whose facts are `facts`."""
    requests = sum(move.requests * len(move.workers) for move in facts.moves)
    size = sum(move.bytes * len(move.workers) for move in facts.moves)
    return PairCost(requests, size, _shortest(plan))


def _shortest(plan: Plan) -> int:
    """Bytes of the shortest span of 1024 tokens from token 0, and of the states; 0 where nothing moves."""
    seen = {
        (read.pair, read.table, (plan.prefill.workers[read.worker].shard, plan.decode.workers[number].shard))
        for number, reads in enumerate(plan.reads)
        for read in reads
    }
    pairs = {pair.name: pair for pair in plan.pairs}
    runs = {(name, shards): _runs(plan, pairs[name], shards) for name, _, shards in seen}
    lengths = [_span(pairs[name].page, table, runs[name, shards]) for name, table, shards in seen]
    return min((length for length in lengths if length), default=0)


def _runs(plan: Plan, pair: Pair, shards: tuple[int, int]) -> Runs:
    """The runs of 1024 tokens, or of one state, on two workers that hold these shares of the tokens."""
    blocks = 1 if group_named(plan.decode, pair.decode).store == "state" else TOKENS
    table = Blocks(0, np.arange(blocks, dtype=np.int64))
    return pair.match(0, TOKENS, table, table, *shards)


def _span(page: int, table: Table, runs: Runs) -> int:
    """Bytes of the shortest span that `table` gives for `runs`, 0 where it gives none."""
    whole = spans.whole_pages(page, table, runs)
    paged = [nest.bytes for nest in table.page] if whole.any() else []
    rest = spans.pick(runs, ~whole)
    return min([*paged, *(_in_tokens(nest, rest) for nest in table.token if len(rest.count))], default=0)


def _in_tokens(nest: Nest, runs: Runs) -> int:
    """A token's bytes, or the shortest run's where the tokens of a run lie together on both sides."""
    if nest.token != (nest.bytes, nest.bytes):
        return nest.bytes
    return nest.bytes * int(spans.in_tiles(runs, nest.hops).count.min())
