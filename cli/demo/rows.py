"""Which rows of a cache there are on a worker, which must have arrived, and where they lie: rules of the demo's own.

They ask token by token, and share nothing with the plan's match functions or with the compiler's simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Blocks

if TYPE_CHECKING:
    from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide

Ints = npt.NDArray[np.int64]
Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RequestShare:
    """Worker `number` of a side in a request: `tables` by group, `asked` by length; `skipped` caches do not move."""

    side: BoundSide
    number: int
    tables: Mapping[str, Blocks]
    asked: Ranges
    skipped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Where rows lie on one worker: kernel block (or slot), row in it, global number of the row; equally long."""

    block: Ints
    row: Ints
    number: Ints


Rule = Callable[[RequestShare, "BoundCache", int], Ints]


def held(share: RequestShare, cache: BoundCache, unit: int) -> Ints:
    """The rows of `unit` tokens that a worker which computed the request has had, but for those a ring overwrote."""
    end = share.asked[cache.length][1]
    last = last_tokens(end, unit)
    return last[last >= end - (cache.ring or end)] // unit


def arrived(share: RequestShare, cache: BoundCache, unit: int) -> Ints:
    """The rows of `unit` tokens that a transfer must bring: those needed, if their last token is in the range."""
    if cache.name in share.skipped:
        return np.empty(0, np.int64)
    first, end = share.asked[cache.length]
    last = last_tokens(end, unit)
    return last[(last >= first) & needed(cache, end, last, unit)] // unit


def last_tokens(end: int, unit: int) -> Ints:
    """The last token of every row of `unit` tokens that is full before token `end`."""
    return np.arange(unit - 1, end, unit, dtype=np.int64)


def needed(cache: BoundCache, end: int, last: Ints, unit: int) -> npt.NDArray[np.bool_]:
    """Which rows, by their last tokens, a reader that goes on at token `end` needs: late ones, and those of sinks."""
    needs = cache.needs
    late = np.ones(last.shape, np.bool_)
    if needs.keep is not None:
        late &= end - last <= needs.keep
    if needs.chunk is not None:
        late &= last >= end - end % needs.chunk
    return late | (last - (unit - 1) < needs.sink)


def places(side: BoundSide, group: BoundGroup, token: Ints) -> Ints:
    """The place of tokens among those that a block table has: in its ring, or of those whose turn a worker has."""
    if group.ring:
        return token - token // group.ring * group.ring
    ways = side.token_shards if group.shared else 1
    return token // (ways * side.interleave_tokens) * side.interleave_tokens + token % side.interleave_tokens


def spot(share: RequestShare, group: BoundGroup, number: Ints, unit: int) -> RowPlaces:
    """Where a worker keeps rows of `unit` tokens; left out are those of others' turns and of blocks not there."""
    side, table = share.side, share.tables[group.name]
    turn = side.workers[share.number].token_shard if group.shared else 0
    token = number * unit + unit - 1
    mine = token // side.interleave_tokens % (side.token_shards if group.shared else 1) == turn
    position, within = np.divmod(places(side, group, token), group.tokens)
    index = position - table.first
    there = mine & (index >= 0) & (index < table.ids.size)
    there[there] = table.ids[index[there]] >= 0
    block = table.ids[index[there]] * group.ratio + within[there] // group.kernel
    return RowPlaces(block, within[there] % group.kernel // unit, number[there])


def slot(share: RequestShare, cache: BoundCache, group: BoundGroup, rule: Rule) -> RowPlaces:
    """The one spot of a state; none where its rule lets nothing of it move."""
    number = rule(share, cache, 1)[:1] * 0
    return RowPlaces(number + share.tables[group.name].ids[0], number, number)
