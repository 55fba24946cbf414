"""Hand-made plans: heads of a token cache and of a state, shared out over different numbers of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kvplan.compiler.cost.ranges import DECODE, PREFILL, filled, touched
from kvplan.plan.digest import sealed
from kvplan.plan.match import MatchRule
from kvplan.plan.spans import group_named
from kvplan.plan.types import (
    FORMAT,
    Blocks,
    Group,
    GroupPair,
    Loop,
    Nest,
    Plan,
    Planes,
    Read,
    Runs,
    Side,
    Table,
    View,
    Worker,
)

ROW = 8
STATE = 24
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Shape:
    """One side: workers, tokens per kernel block, kernel blocks per logical block, bytes of tail padding."""

    workers: int
    kernel: int = 4
    ratio: int = 1
    tail: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    heads: int = 2
    layers: tuple[int, ...] = (3, 7)
    state: bool = True
    states_overlay: bool = False


def plan(prefill: Shape, decode: Shape, model: Model = Model()) -> Plan:
    pairs = [GroupPair("kv", "kv", "kv", prefill.kernel if prefill.kernel == decode.kernel else 0)]
    if model.state:
        pairs.append(GroupPair("state"))
    reads = tuple(_reads(prefill, decode, model, number) for number in range(decode.workers))
    notify = tuple(_rest(prefill, found) for found in reads)
    sides = side("p", prefill, model), side("d", decode, model)
    return sealed(Plan(FORMAT, "hand-made", "m", "md", "", (), *sides, tuple(pairs), reads, notify))


def with_ranges(made: Plan, *ways: str) -> Plan:
    """The plan with all its tables staged by these ways, unpack and pack, as far as they can be."""
    rows = {pair.name: _page_rows(made, pair) for pair in made.group_pairs}
    reads = tuple(
        tuple(replace(read, table=_ranged(read.table, rows[read.groups], ways)) for read in some) for some in made.reads
    )
    return sealed(replace(made, reads=reads))


def _page_rows(made: Plan, pair: GroupPair) -> tuple[int, int]:
    return max(group_named(made.prefill, pair.prefill).kernel, 1), max(group_named(made.decode, pair.decode).kernel, 1)


def _ranged(table: Table, rows: tuple[int, int], ways: Sequence[str]) -> Table:
    into = touched(table, DECODE, rows[1])
    into = into if "pack" in ways and filled(table, into, DECODE, rows[1]) else ()
    return replace(table, unpack=touched(table, PREFILL, rows[0]) if "unpack" in ways else (), pack=into)


def matched(tokens: tuple[int, int], p: npt.ArrayLike, d: npt.ArrayLike) -> Runs:
    """The runs of a range of tokens whose blocks of four on either side are `p` and `d`."""
    group = Group("kv", "tokens", 4, 4)
    return MatchRule(group, group).runs(tokens, Blocks(0, np.asarray(p)), Blocks(0, np.asarray(d)))


def held(model: Model, shape: Shape, worker: int) -> range:
    if shape.workers > model.heads:
        head = worker * model.heads // shape.workers
        return range(head, head + 1)
    return range(worker * model.heads // shape.workers, (worker + 1) * model.heads // shape.workers)


def side(key: str, shape: Shape, model: Model) -> Side:
    tokens = shape.kernel * shape.ratio
    groups = [Group("kv", "tokens", tokens, shape.kernel, shape.ratio, 0)]
    if model.state:
        groups.append(Group("state", "state", 0, 0, 1, 0 if model.states_overlay else 1))
    return Side(key, "", tuple(groups), tuple(_worker(shape, model, number) for number in range(shape.workers)))


def _worker(shape: Shape, model: Model, number: int) -> Worker:
    heads = len(held(model, shape, number))
    page = heads * shape.kernel * ROW
    axes = (("head", heads, shape.kernel * ROW), ("token", shape.kernel, ROW), ("dim", ROW // 2, 2))
    loops = (("layer", model.layers, 1),)
    found = [Planes("kv", "kv", None, 0, loops, page, page + shape.tail, (View("k", "bf16", 0, axes),))]
    if model.state:
        size = heads * STATE
        view = View("s", "u8", 0, (("head", heads, STATE), ("dim", STATE, 1)))
        stride = (page + shape.tail) * shape.ratio if model.states_overlay else size
        found.append(Planes("state", "state", None, len(model.layers), loops, size, stride, (view,)))
    here = held(model, shape, number)
    caches = ("kv", "state") if model.state else ("kv",)
    return Worker(tuple(found), holds=tuple((cache, "head", (here.start, here.stop)) for cache in caches))


def _reads(prefill: Shape, decode: Shape, model: Model, number: int) -> tuple[Read, ...]:
    mine, found, have = held(model, decode, number), [], set[int]()
    for worker in range(prefill.workers):
        theirs = held(model, prefill, worker)
        heads = range(max(mine.start, theirs.start), min(mine.stop, theirs.stop))
        if not heads or heads.start in have:
            continue
        have.add(heads.start)
        first = len(model.layers), len(model.layers)
        at = heads.start - theirs.start, heads.start - mine.start
        interval = (("head", (heads.start, heads.stop)),)
        found.append(Read(worker, "kv", "kv", model.layers, interval, _tokens(prefill, decode, model, at, len(heads))))
        if model.state:
            found.append(Read(worker, "state", "state", model.layers, interval, _state(model, at, len(heads)), first))
    return tuple(found)


def _tokens(prefill: Shape, decode: Shape, model: Model, at: tuple[int, int], heads: int) -> Table:
    row = prefill.kernel * ROW, decode.kernel * ROW
    start = (0, at[0] * row[0]), (0, at[1] * row[1])
    layer = Loop("layer", len(model.layers), (1, 0), (1, 0))
    head = Loop("head", heads, (0, row[0]), (0, row[1]))
    page = (Nest(("k",), *start, heads * row[0], (layer,)),) if row[0] == row[1] else ()
    return Table(page, (Nest(("k",), *start, ROW, (layer, head), (ROW, ROW)),))


def _state(model: Model, at: tuple[int, int], heads: int) -> Table:
    layer = Loop("layer", len(model.layers), (1, 0), (1, 0))
    return Table((Nest(("s",), (0, at[0] * STATE), (0, at[1] * STATE), heads * STATE, (layer,)),))


def _rest(prefill: Shape, reads: tuple[Read, ...]) -> tuple[int, ...]:
    """Every worker that is not read from waits for word, too."""
    return tuple(sorted(set(range(prefill.workers)) - {read.worker for read in reads}))
