"""What a plan costs, computed from the plan alone: spans, requests and bytes of every pair of groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from kvplan.plan import expand as rows
from kvplan.plan import planes as names
from kvplan.plan import spans
from kvplan.plan.match import MatchRule
from kvplan.plan.types import (
    Blocks,
    Group,
    Ints,
    Loop,
    Needs,
    Nest,
    Pair,
    Place,
    Plan,
    Planes,
    Read,
    Runs,
    Table,
    Worker,
)

TOKENS = 1024
DIRECT = "direct, every span goes straight to its place in the decode pages: nothing is staged or permuted"
STAGED = (
    "where a table has ranges, prefill pages travel as they lie and decode copies them into place (`unpack`), or "
    "prefill copies into the order of decode pages first (`pack`): where a table has both, what is pulled the one and "
    "what is pushed the other; all else goes straight to its place"
)


@dataclass(frozen=True, slots=True)
class StagedMoves:
    """What `Moves` comes to by way of decode's stage (`unpack`) or prefill's (`pack`): requests and bytes on the wire,
    and microseconds, beside those of going direct, by the profile that the plan was compiled for."""

    strategy: str
    requests: int
    bytes: int
    us: float
    direct_us: float


@dataclass(frozen=True, slots=True)
class Moves:
    """What one decode worker (each of `workers`, which are alike) moves for one pair of groups, straight or `staged`.

    `spans` are rows of its tables per page (per run of tokens where pages are unlike), from one shard of the tokens.
    `requests` and `bytes` are
    per 1024 tokens from token 0, or per request for a state, where no two logical blocks are neighbours.
    """

    workers: tuple[int, ...]
    pair: str
    store: str
    paged: bool
    reads: int
    spans: int
    requests: int
    bytes: int
    staged: tuple[StagedMoves, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What the header of a plan says beside the plan: costs, notes of overridden values, strategy, what was proved.

    `shortest` is the bytes of the shortest span of 1024 tokens and of the states, before any are joined; 0 for none.
    """

    moves: tuple[Moves, ...]
    shortest: int = 0
    proved: str = ""
    notes: tuple[str, ...] = ()
    strategy: str = DIRECT


def plan_cost(plan: Plan, proved: str = "", notes: Iterable[str] = ()) -> PlanCost:
    """The facts of `plan`. `proved` is the sentence of the prover, `notes` name the values that were overridden."""
    costs = [cost for pair in plan.pairs for worker in range(len(plan.reads)) for cost in _moves(plan, worker, pair)]
    shortest = min((size for _, size in costs if size), default=0)
    return PlanCost(merged([moves for moves, _ in costs]), shortest, proved, tuple(notes), _strategy(plan))


def _strategy(plan: Plan) -> str:
    """What the tables of a plan say of the way that bytes go."""
    tables = (read.table for reads in plan.reads for read in reads)
    staged = any(table.unpack or table.pack for table in tables)
    return f"{dict(plan.options)['strategy']}, {STAGED}" if staged else DIRECT


def merged(moves: Iterable[Moves]) -> tuple[Moves, ...]:
    """Equal figures of several decode workers are said once, in order of first use."""
    alike: dict[Moves, tuple[int, ...]] = {}
    for move in moves:
        key = replace(move, workers=())
        alike[key] = alike.get(key, ()) + move.workers
    return tuple(replace(key, workers=workers) for key, workers in alike.items())


def _moves(plan: Plan, worker: int, pair: Pair) -> list[tuple[Moves, int]]:
    """What one decode worker moves for a pair, and its shortest span: one entry, none where it reads nothing."""
    reads = [read for read in plan.reads[worker] if read.pair == pair.name]
    if not reads:
        return []
    costs = [_count(read.table, ends_of(plan, worker, read)) for read in reads]
    paged = all(read.table.page for read in reads)
    # A run lies on one shard of the tokens: what is read from the others is other runs. A ring has all of them.
    ring = spans.group_named(plan.prefill, pair.prefill).ring
    shards: Counter[int] = Counter()
    for read in reads:
        shard = 0 if ring else plan.prefill.workers[read.worker].shard
        shards[shard] += rows.size(read.table.page if paged else read.table.token)
    count = max(shards.values())
    requests, size = sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)
    shortest = min((cost[2] for cost in costs if cost[2]), default=0)
    store = spans.group_named(plan.decode, pair.decode).store
    return [(Moves((worker,), pair.name, store, paged, len(reads), count, requests, size), shortest)]


@dataclass(frozen=True, slots=True)
class TableEnds:
    """All that the cost of a table depends on, apart from the table: planes as (block stride, page), and how many
    tokens a request has.
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


def ends_of(plan: Plan, worker: int, read: Read, tokens: int = TOKENS) -> TableEnds:
    """What the cost of a read of decode worker `worker` depends on, apart from its table."""
    pair = spans.pair_named(plan, read.pair)
    ours, theirs = plan.decode.workers[worker], plan.prefill.workers[read.worker]
    reach = _reach(read.table)
    return TableEnds(
        replace(spans.group_named(plan.prefill, pair.prefill), name=""),
        replace(spans.group_named(plan.decode, pair.decode), name=""),
        pair.needs,
        pair.rows,
        (theirs.shard, ours.shard),
        pair.page,
        _sizes(theirs.planes)[read.first[0] : read.first[0] + reach[0]],
        _sizes(ours.planes)[read.first[1] : read.first[1] + reach[1]],
        tokens,
    )


def table_cost(table: Table, ends: TableEnds) -> tuple[int, int]:
    """(requests, bytes) of one read, of a request or of one state."""
    requests, size, _ = _count(table, ends)
    return requests, size


@lru_cache(maxsize=1024)
def _reach(table: Table) -> Place:
    """How many planes from its first one a table reaches, on either side."""
    nests = (*table.page, *table.token)
    prefill = (nest.prefill[0] + sum((loop.count - 1) * loop.prefill[0] for loop in nest.loops) for nest in nests)
    decode = (nest.decode[0] + sum((loop.count - 1) * loop.decode[0] for loop in nest.loops) for nest in nests)
    return 1 + max(prefill, default=0), 1 + max(decode, default=0)


@lru_cache(maxsize=256)
def _sizes(entries: tuple[Planes, ...]) -> tuple[tuple[int, int], ...]:
    """(block stride, page) of every plane of a worker, by number."""
    return tuple((plane.stride, plane.page) for plane in names.planes(Worker(entries)))


@lru_cache(maxsize=4096)
def _count(table: Table, ends: TableEnds) -> tuple[int, int, int]:
    """(requests, bytes, bytes of the shortest span) of one read of a request, or of one state."""
    runs = sample(ends)
    page, token, repeat = _one_plane(table)
    whole = spans.whole_pages(ends.page, table, runs)
    strides = np.array(ends.prefill_planes)[:, 0], np.array(ends.decode_planes)[:, 0]
    paged = spans.page_spans(rows.expand(page), spans.pick(runs, whole), *strides)
    short = spans.token_spans(rows.tokens(token), spans.pick(runs, ~whole), *strides)
    found = np.concatenate([paged, short])
    size = found[:, rows.BYTES]
    return _requests(found, ends) * repeat, int(size.sum()) * repeat, int(size.min()) if len(size) else 0


def sample(ends: TableEnds) -> Runs:
    """The runs of a request's tokens from token 0 on, or of one state, whose logical blocks lie two apart."""
    blocks = 1 if ends.decode.store == "state" else ends.tokens
    table = Blocks(0, 2 * np.arange(blocks, dtype=np.int64))
    rule = MatchRule(ends.prefill, ends.decode, ends.needs, ends.rows)
    return rule.runs((0, ends.tokens), table, table, ends.shards)


def _one_plane(table: Table) -> tuple[tuple[Nest, ...], tuple[Nest, ...], int]:
    """The nests without the loops over planes that all share, and how often those repeat: planes never merge."""
    nests = (*table.page, *table.token)
    every = [loop for nest in nests[:1] for loop in nest.loops if _over_planes(loop)]
    shared = [loop for loop in every if all(loop in nest.loops for nest in nests)]
    if not _apart(nests, shared):
        return table.page, table.token, 1
    bare = [replace(nest, loops=tuple(loop for loop in nest.loops if loop not in shared)) for nest in nests]
    repeat = math.prod(loop.count for loop in shared)
    return tuple(bare[: len(table.page)]), tuple(bare[len(table.page) :]), repeat


def _apart(nests: tuple[Nest, ...], loops: list[Loop]) -> bool:
    """Whether no two turns of `loops` reach the same decode plane, whichever nests they belong to."""
    starts = {nest.decode[0] for nest in nests}
    turns = [[turn * loop.decode[0] for turn in range(loop.count)] for loop in loops]
    reached = [start + sum(moves) for start in starts for moves in product(*turns)]
    return len(set(reached)) == len(reached)


def _over_planes(loop: Loop) -> bool:
    return _moves_plane(loop.prefill) and _moves_plane(loop.decode)


def _moves_plane(place: Place) -> bool:
    return place[0] != 0 and place[1] == 0


def _requests(found: Ints, ends: TableEnds) -> int:
    """How many requests `found` comes to once spans that follow each other on both sides are joined."""
    if not len(found):
        return 0
    found = found[np.lexsort((found[:, rows.D_OFFSET], found[:, rows.D_PLANE]))]
    # The bytes after each span that may be bridged: those between whole pages where both sides have them alike.
    prefill = np.array(ends.prefill_planes)[found[:, rows.P_PLANE]]
    decode = np.array(ends.decode_planes)[found[:, rows.D_PLANE]]
    whole = (prefill == decode).all(axis=1) & (found[:, rows.BYTES] == decode[:, 1])
    end = found[:, rows.BYTES] + np.where(whole, decode[:, 0] - decode[:, 1], 0)
    joined = np.ones(len(found) - 1, np.bool_)
    for plane, offset in ((rows.P_PLANE, rows.P_OFFSET), (rows.D_PLANE, rows.D_OFFSET)):
        joined &= found[1:, plane] == found[:-1, plane]
        joined &= found[1:, offset] == found[:-1, offset] + end[:-1]
    return len(found) - int(joined.sum())
