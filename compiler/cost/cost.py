"""The costs of a plan, computed from the plan alone: spans, descriptors and bytes of every pair of groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kvplan.dsl.text.grouped import grouped
from kvplan.plan import expand as rows
from kvplan.plan import planes as names
from kvplan.plan import spans
from kvplan.plan.match import MatchRule
from kvplan.plan.types import (
    Blocks,
    Group,
    GroupPair,
    Ints,
    Loop,
    Needs,
    Nest,
    Place,
    Plan,
    Planes,
    Read,
    Runs,
    Side,
    Table,
    Worker,
)

TOKENS = 1024
DIRECT = "direct, every span is copied straight to its place in the decode pages"
UNPACK = "with `unpack`, ranges of prefill pages are moved whole and decode copies them into place"
PACK = "with `pack`, prefill first copies into the order of decode pages"
BOTH = "if a table has both, pull uses `unpack` and push uses `pack`"
OTHERS = "all other spans are copied straight to their place"
# The units for which the spans of a pair are counted.
STATE, BLOCK, RUN, TILE = "state", "block", "run of tokens", "tile"


@dataclass(frozen=True, slots=True)
class StagedMoves:
    """The cost of `Moves` through decode's buffer (`unpack`) or prefill's (`pack`): descriptors and bytes on the wire.

    `us` are microseconds by the profile that the plan was compiled for, `direct_us` those without a buffer.
    """

    strategy: str
    descriptors: int
    bytes: int
    us: float
    direct_us: float


@dataclass(frozen=True, slots=True)
class Moves:
    """The cost of one pair of groups for one decode worker (each of the identical `workers`), straight or `staged`.

    `spans` are rows of its tables for each `unit`, from one shard of the tokens.
    `descriptors` and `bytes` are per 1024 tokens from token 0, or per request for a state, in the worst case: no two
    logical blocks are adjacent.
    """

    workers: tuple[int, ...]
    groups: str
    store: str
    paged: bool
    reads: int
    spans: int
    descriptors: int
    bytes: int
    staged: tuple[StagedMoves, ...] = ()
    unit: str = STATE
    # The units of these 1024 tokens if each has `spans` spans; 0 if their numbers differ. If only whole blocks
    # have as many, `times` counts these.
    times: int = 0


@dataclass(frozen=True, slots=True)
class PlanCost:
    """The facts in a plan's header that the plan lacks: costs, notes, strategy, the proved sentence.

    `layers` says how many layers of the model store what. `shortest` is the bytes of the shortest span of 1024 tokens
    and of the states, before spans are joined; 0 for none.
    """

    moves: tuple[Moves, ...]
    shortest: int = 0
    proved: str = ""
    notes: tuple[str, ...] = ()
    strategy: str = DIRECT
    layers: str = ""


def plan_cost(plan: Plan, proved: str = "", notes: Iterable[str] = (), tokens: int = TOKENS) -> PlanCost:
    """Compute the facts of `plan`. `proved` is the prover's sentence, `notes` name the overridden values; costs are
    those of a request of `tokens`.
    """
    by_pair = [grouped((read.groups, read) for read in reads) for reads in plan.reads]
    ends = ends_of(plan, tokens)
    costs = [
        _moves(plan, worker, pair, reads[pair.name], ends)
        for pair in plan.group_pairs
        for worker, reads in enumerate(by_pair)
        if pair.name in reads
    ]
    shortest = min((size for _, size in costs if size), default=0)
    return PlanCost(merged([moves for moves, _ in costs]), shortest, proved, tuple(notes), _strategy(plan))


def _strategy(plan: Plan) -> str:
    """Return the strategy and the ways that bytes go by a plan's tables."""
    said = ways(plan)
    return DIRECT if said == DIRECT else f"{dict(plan.options)['strategy']}, {said}"


def ways(plan: Plan) -> str:
    """Return the ways that bytes go by the tables of a plan, and no others."""
    tables = [read.table for reads in plan.reads for read in reads]
    unpack, pack = any(table.unpack for table in tables), any(table.pack for table in tables)
    both = any(table.unpack and table.pack for table in tables)
    said = [text for holds, text in ((unpack, UNPACK), (pack, PACK), (both, BOTH)) if holds]
    return "; ".join((*said, OTHERS)) if said else DIRECT


def merged(moves: Iterable[Moves]) -> tuple[Moves, ...]:
    """Merge the equal figures of several decode workers, in order of first use."""
    alike: dict[Moves, tuple[int, ...]] = {}
    for move in moves:
        key = replace(move, workers=())
        alike[key] = alike.get(key, ()) + move.workers
    return tuple(replace(key, workers=workers) for key, workers in alike.items())


def _moves(plan: Plan, worker: int, pair: GroupPair, reads: list[Read], ends: EndsOf) -> tuple[Moves, int]:
    """Return the cost of one decode worker's reads of a pair, and the bytes of its shortest span."""
    costs = [_count(read.table, ends(worker, read)) for read in reads]
    paged = all(read.table.per_page for read in reads)
    # A run lies on one shard of the tokens, so other shards have other runs. Every shard has all of a ring.
    ring = spans.group_named(plan.prefill, pair.prefill).ring
    shards: Counter[int] = Counter()
    # The units of one read of every shard, and those that are whole pages.
    units: dict[int, int] = {}
    whole: dict[int, int] = {}
    store = spans.group_named(plan.decode, pair.decode).store
    unit = store if store == STATE else BLOCK if paged else _unit(pair, reads)
    for read, cost in zip(reads, costs, strict=True):
        shard = 0 if ring else plan.prefill.workers[read.worker].shard
        shards[shard] += rows.size(read.table.per_page if paged else read.table.per_token)
        units[shard] = cost.rows if unit == _token(pair) else cost.runs
        whole[shard] = cost.whole
    count, times = max(shards.values()), sum(units.values())
    descriptors, size = sum(cost.descriptors for cost in costs), sum(cost.bytes for cost in costs)
    shortest = min((cost.shortest for cost in costs if cost.shortest), default=0)
    if descriptors != count * times:
        times = sum(whole.values()) if unit == BLOCK and descriptors > count * sum(whole.values()) else 0
    return Moves((worker,), pair.name, store, paged, len(reads), count, descriptors, size, (), unit, times), shortest


def _unit(pair: GroupPair, reads: Iterable[Read]) -> str:
    """Return the tokens that have a span of their own: those of a run only if all of them adjoin on both sides."""
    nests = [nest for read in reads for nest in read.table.per_token]
    found = {(TILE if nest.hops else RUN) if rows.is_joined(nest) else _token(pair) for nest in nests}
    return " or ".join(unit for unit in (RUN, TILE, _token(pair)) if unit in found)


def _token(pair: GroupPair) -> str:
    return "token" if pair.rows == 1 else f"row of {pair.rows:,} tokens"


@dataclass(frozen=True, slots=True)
class TableEnds:
    """All that the cost of a table depends on besides the table: planes as (block stride, page), and the tokens of a
    request.
    """

    prefill: Group
    decode: Group
    needs: Needs
    rows: int
    shards: tuple[int, int]
    page: int
    prefill_planes: tuple[tuple[int, int], ...]
    decode_planes: tuple[tuple[int, int], ...]
    tokens: int = TOKENS


# The costs' inputs, by decode worker and one of its reads.
EndsOf = Callable[[int, Read], TableEnds]


def ends_of(plan: Plan, tokens: int = TOKENS) -> EndsOf:
    """Return a function that gives the inputs of every read's cost besides its table."""
    pairs = {pair.name: pair for pair in plan.group_pairs}
    prefill, decode = _unnamed(plan.prefill), _unnamed(plan.decode)
    # Workers with equal layouts share their planes. By identity, because there may be thousands of either.
    planes = {id(worker.planes): worker.planes for side in (plan.prefill, plan.decode) for worker in side.workers}
    sizes = {number: _sizes(entries) for number, entries in planes.items()}

    def ends(worker: int, read: Read) -> TableEnds:
        pair, reach = pairs[read.groups], _reach(read.table)
        ours, theirs = plan.decode.workers[worker], plan.prefill.workers[read.worker]
        first, last = read.first, (read.first[0] + reach[0], read.first[1] + reach[1])
        return TableEnds(
            prefill[pair.prefill],
            decode[pair.decode],
            pair.needs,
            pair.rows,
            (theirs.shard, ours.shard),
            pair.page_rows,
            sizes[id(theirs.planes)][first[0] : last[0]],
            sizes[id(ours.planes)][first[1] : last[1]],
            tokens,
        )

    return ends


def _unnamed(side: Side) -> dict[str, Group]:
    """Return groups by name, but without a name, because identical groups cost the same."""
    return {group.name: replace(group, name="") for group in side.groups}


def table_cost(table: Table, ends: TableEnds) -> tuple[int, int]:
    """Return (descriptors, bytes) of one read, of a request or of one state."""
    cost = _count(table, ends)
    return cost.descriptors, cost.bytes


@lru_cache(maxsize=1024)
def _reach(table: Table) -> Place:
    """Return how many planes a table reaches from its first one, on either side."""
    nests = (*table.per_page, *table.per_token)
    prefill = (nest.prefill[0] + sum((loop.count - 1) * loop.prefill[0] for loop in nest.loops) for nest in nests)
    decode = (nest.decode[0] + sum((loop.count - 1) * loop.decode[0] for loop in nest.loops) for nest in nests)
    return 1 + max(prefill, default=0), 1 + max(decode, default=0)


def _sizes(entries: tuple[Planes, ...]) -> tuple[tuple[int, int], ...]:
    """Return (block stride, page) of every plane of a worker, by number."""
    return tuple((plane.stride, plane.page) for plane in names.planes(Worker(entries)))


class _ReadCost(NamedTuple):
    """The figures of one read of a request, or of one state: `shortest` has the bytes of its shortest span.

    `runs` counts its runs of tokens, `whole` those that are whole pages, `rows` the rows of all: tokens, unless one row
    has several.
    """

    descriptors: int
    bytes: int
    shortest: int
    runs: int
    whole: int
    rows: int


@lru_cache(maxsize=4096)
def _count(table: Table, ends: TableEnds) -> _ReadCost:
    runs = sample(ends)
    page, token, repeat = _one_plane(table)
    whole = spans.whole_pages(ends.page, table, runs)
    strides = np.array(ends.prefill_planes)[:, 0], np.array(ends.decode_planes)[:, 0]
    found = np.concatenate([
        spans.page_spans(rows.expand(page if whole.any() else ()), spans.pick(runs, whole), *strides),
        spans.token_spans(rows.tokens(token if not whole.all() else ()), spans.pick(runs, ~whole), *strides),
    ])  # fmt: skip
    size = found[:, rows.BYTES]
    shortest = int(size.min()) if len(size) else 0
    descriptors, total = _descriptors(found, ends) * repeat, int(size.sum()) * repeat
    return _ReadCost(descriptors, total, shortest, len(runs.count), int(whole.sum()), int(runs.count.sum()))


def spans_of(table: Table, ends: TableEnds) -> int:
    """Bound the number of spans that the cost of a read would expand, without expanding them."""
    runs = sample(ends)
    page, token, _ = _one_plane(table)
    whole = spans.whole_pages(ends.page, table, runs)
    few, many = int((~whole).sum()), int(runs.count[~whole].sum())
    joined = rows.size(tuple(nest for nest in token if rows.is_joined(nest) and not nest.hops))
    return rows.size(page) * max(1, int(whole.sum())) + joined * few + (rows.size(token) - joined) * many


def sample(ends: TableEnds) -> Runs:
    """Return the runs of a request's tokens from token 0, or of one state; its logical blocks lie two apart."""
    blocks = 1 if ends.decode.store == "state" else ends.tokens
    table = Blocks(0, 2 * np.arange(blocks, dtype=np.int64))
    rule = MatchRule(ends.prefill, ends.decode, ends.needs, ends.rows)
    return rule.runs((0, ends.tokens), table, table, ends.shards)


def _one_plane(table: Table) -> tuple[tuple[Nest, ...], tuple[Nest, ...], int]:
    """Return the nests without the loops over planes that all share, and those loops' turns: planes never merge."""
    nests = (*table.per_page, *table.per_token)
    # Each turn of these loops reaches other planes on either side, so no span continues one of another turn.
    every = [
        loop for nest in nests[:1] for loop in nest.loops
        if any(planes and not size for planes, size in (loop.prefill, loop.decode))
    ]  # fmt: skip
    shared = [loop for loop in every if all(loop in nest.loops for nest in nests)]
    if not _reach_distinct_planes(nests, shared):
        return table.per_page, table.per_token, 1
    bare = [replace(nest, loops=tuple(loop for loop in nest.loops if loop not in shared)) for nest in nests]
    repeat = math.prod(loop.count for loop in shared)
    return tuple(bare[: len(table.per_page)]), tuple(bare[len(table.per_page) :]), repeat


def _reach_distinct_planes(nests: tuple[Nest, ...], loops: list[Loop]) -> bool:
    """Whether no two turns of `loops` reach the same plane of both sides, in any nests."""
    reached = np.unique([_planes(nest.prefill, nest.decode) for nest in nests])
    for loop in loops:
        reached = (reached[:, None] + np.arange(loop.count) * _planes(loop.prefill, loop.decode)).reshape(-1)
    return len(np.unique(reached)) == len(reached)


def _planes(prefill: Place, decode: Place) -> int:
    """Return the planes of both sides as one number."""
    return (prefill[0] << 32) + decode[0]


def _descriptors(found: Ints, ends: TableEnds) -> int:
    """Count the descriptors of the spans `found` after spans that are consecutive on both sides are joined."""
    if not len(found):
        return 0
    # Column by column, because there may be millions of rows.
    order = np.lexsort((found[:, rows.D_OFFSET], found[:, rows.D_PLANE]))
    end = _next_starts(found, ends)[order[:-1]]
    joined = np.ones(len(found) - 1, np.bool_)
    for plane, offset in ((rows.P_PLANE, rows.P_OFFSET), (rows.D_PLANE, rows.D_OFFSET)):
        joined &= np.diff(found[order, plane]) == 0
        joined &= np.diff(found[order, offset]) == end
    return len(found) - int(joined.sum())


def _next_starts(found: Ints, ends: TableEnds) -> Ints:
    """Return where a span must begin to be joined with each span: behind its bytes, or if it is a whole page and both
    sides' pages and strides are equal, behind the gap to the next page."""
    size = found[:, rows.BYTES]
    if all(stride == page for stride, page in ends.decode_planes):
        return size
    prefill = np.array(ends.prefill_planes)[found[:, rows.P_PLANE]]
    decode = np.array(ends.decode_planes)[found[:, rows.D_PLANE]]
    whole = (prefill == decode).all(axis=1) & (size == decode[:, 1])
    return np.where(whole, size + decode[:, 0] - decode[:, 1], size)
