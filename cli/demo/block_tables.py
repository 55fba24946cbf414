"""The block tables of a demo's worker: blocks where an engine would have them, in no order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.cli.demo.memory import SPARE
from kvplan.cli.demo.rows import Ints, Ranges, last_tokens, needed, places
from kvplan.plan.types import Blocks

if TYPE_CHECKING:
    from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide


@dataclass(frozen=True, slots=True)
class NeededBlocks:
    """Which block positions of a table must be there: position `first + i` where `there[i]`."""

    first: int
    there: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        """How many those are."""
        return int(self.there.sum())

    def dealt(self, ids: npt.NDArray[np.int64]) -> Blocks:
        """The table with `ids` where blocks must be, -1 elsewhere."""
        found = np.full(self.there.size, -1, np.int64)
        found[self.there] = ids
        return Blocks(self.first, found)


def deal(side: BoundSide, asked: Ranges, seed: int, early: bool = False) -> dict[str, Blocks]:
    """A block table per group in no order: ids are shared by the groups of an arena, none is dealt twice.

    Blocks are there where the side's own caches need a token of them; with `early` the block before each, too.
    """
    random = np.random.default_rng(seed)
    need = {group.name: _need(side, group, asked, early) for group in side.groups}
    tables: dict[str, Blocks] = {}
    for arena in sorted({group.arena for group in side.groups}):
        tables |= _drawn({group.name: need[group.name] for group in side.groups if group.arena == arena}, random)
    return tables


def _drawn(need: Mapping[str, NeededBlocks], random: np.random.Generator) -> dict[str, Blocks]:
    """The tables of the groups of one arena, which draw from one pool of ids."""
    counts = [one.count for one in need.values()]
    drawn = np.split(random.permutation(sum(counts) + SPARE), np.cumsum(counts))
    return {name: one.dealt(ids) for (name, one), ids in zip(need.items(), drawn, strict=False)}


def _need(side: BoundSide, group: BoundGroup, asked: Ranges, early: bool) -> NeededBlocks:
    """The blocks of a group that must be there; all of a ring are, and the slot of a state."""
    if group.store == "state" or group.ring:
        return NeededBlocks(0, np.ones(group.ring // group.tokens if group.ring else 1, np.bool_))
    every = _positions(side, group, np.arange(*asked[group.length]))
    caches = [cache for cache in side.caches if any(cache.name == name for name, _ in group.members)]
    wanted = _positions(side, group, np.concatenate([_last(cache, *asked[group.length]) for cache in caches]))
    position = np.arange(every.min(), every.max() + 1)
    return NeededBlocks(int(every.min()), np.isin(position, wanted) | np.isin(position + early, wanted))


def _positions(side: BoundSide, group: BoundGroup, token: Ints) -> Ints:
    return np.unique(places(side, group, token) // group.tokens)


def _last(cache: BoundCache, first: int, end: int) -> Ints:
    """Every token that a cache needs of a range, and the last one of every row that it needs."""
    rows = [(last_tokens(end, unit), unit) for unit in {1, *(tensor.tokens_per_row for tensor in cache.tensors)}]
    return np.concatenate([last[(last >= first) & needed(cache, end, last, unit)] for last, unit in rows])
