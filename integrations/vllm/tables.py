"""The plan's tables from an engine's blocks, for all of a request or for some of its tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from kvplan.integrations.vllm.metadata import NULL_BLOCK, BlockIds, GroupName
from kvplan.plan.block_tables import Ring, Slot, Table
from kvplan.plan.types import Blocks, Interval, Side


class BlockTables:
    """The plan's tables from an engine's blocks. `names` are its groups, `spans` by name the tokens of a block."""

    def __init__(self, names: Sequence[GroupName], spans: Mapping[str, int]) -> None:
        self._names, self._spans = tuple(names), spans
        self._paged = tuple(group for group in self._names if group.name and group.store == "tokens")
        self._step = math.lcm(*(spans[group.name] for group in self._paged))

    def of(self, blocks: BlockIds, tokens: int, first: int = 0) -> dict[str, Table]:
        """Return tables of blocks that hold `tokens` tokens, without the blocks that end before token `first`."""
        return {
            group.name: table(group.store, ids, tokens, first // self._spans[group.name])
            for group, ids in stored(self._names, blocks)
        }

    def part(self, blocks: BlockIds, tokens: Interval) -> dict[str, Table]:
        """Return tables of the blocks that hold tokens [first, end), only for groups of tokens."""
        first, end = tokens
        return {
            group.name: table(group.store, ids[: -(-end // span)], end, first // span)
            for group, ids in stored(self._names, blocks)
            if group in self._paged and (span := self._spans[group.name])
        }

    def whole(self, tokens: int) -> int:
        """Return how many of the first `tokens` tokens fill blocks of every group."""
        return tokens // self._step * self._step


def stored(names: Sequence[GroupName], blocks: BlockIds) -> list[tuple[GroupName, tuple[int, ...]]]:
    """Return groups with their blocks, without groups that store nothing: a request that needs them is refused."""
    return [(group, ids) for group, ids in zip(names, blocks, strict=True) if group.name and ids]


def table(store: str, ids: Sequence[int], tokens: int, start: int = 0) -> Table:
    """Return one group's table, of its blocks from position `start` on; ids stand by position, 0 for no block."""
    if store == "state":
        return Slot(ids[0], tokens)
    if store == "ring":
        return Ring(np.array(ids, np.int64), tokens, null=NULL_BLOCK)
    return Blocks(start, np.array(ids[start:], np.int64), null=NULL_BLOCK)


def spans(side: Side) -> dict[str, int]:
    """Return the tokens of one position of a block table, by group; for a state 1."""
    return {group.name: max(group.tokens * group.shards, 1) for group in side.groups}
