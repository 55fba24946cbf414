"""Rows of tokens: those that a reader needs, and their places by a block table, computed row by row.

A row has `per_row` tokens, and its number is its first token divided by that. It counts by its last token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.plan.block_tables import Ring, Slot, Table
from kvplan.plan.blocks import Positions
from kvplan.plan.errors import BadRequestError, BlockTableError, PlanFormatError
from kvplan.plan.types import Blocks, Group, Interval, Ints, Needs
from kvplan.runtime.checksum.elements import hashes, name_hash


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of tokens for checksums: one in `every`, chosen by a hash of its number and `seed`. States are complete.

    The last token of a row decides. Raises BadRequestError for an `every` below 1.
    """

    every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise BadRequestError(f"a sample of one token in {self.every}: give 1 or more")

    def pick(self, row: Ints, per_row: int) -> Ints:
        """Return the chosen rows among rows of `per_row` tokens."""
        if self.every == 1:
            return row
        chance = hashes(row * per_row + per_row - 1, name_hash("sample", str(self.seed)))
        chosen: Ints = row[chance % np.uint64(self.every) == 0]
        return chosen


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """The tokens among [first, end) that a reader needs and all `shards` (group, shard) hold, sampled."""

    tokens: Interval
    needs: Needs
    shards: tuple[tuple[Group, int], ...]
    sample: Sample

    def rows(self, per_row: int) -> Ints:
        """Return the rows of `per_row` tokens."""
        row = self.sample.pick(needed(self.tokens, self.needs, per_row), per_row)
        for group, shard in self.shards:
            row = in_shard(row, per_row, group, shard)
        return row


def needed(tokens: Interval, needs: Needs, per_row: int) -> Ints:
    """Return the rows that a reader of tokens [first, end) must have."""
    first, end = tokens[0], tokens[1] - tokens[1] % needs.whole
    row = np.arange(first // per_row, max(end // per_row, first // per_row), dtype=np.int64)
    last, late = row * per_row + per_row - 1, np.ones(row.shape, np.bool_)
    if needs.keep is None and needs.chunk is None:
        return row
    if needs.keep is not None:
        late &= last >= end - needs.keep
    if needs.chunk is not None:
        late &= last // needs.chunk == end // needs.chunk
    kept: Ints = row[late | (row * per_row < needs.sink)]
    return kept


def in_shard(row: Ints, per_row: int, group: Group, shard: int) -> Ints:
    """Return the rows that the workers of a shard hold, if the tokens of `group` are interleaved over shards."""
    if group.shards == 1:
        return row
    if group.chunk % per_row:
        raise PlanFormatError(f"an interleave of {group.chunk} tokens cuts rows of {per_row} in group {group.name!r}")
    held: Ints = row[row * per_row // group.chunk % group.shards == shard]
    return held


def place(row: Ints, per_row: int, group: Group, table: Table) -> tuple[Ints, Ints]:
    """Return the kernel block of every row of tokens and the row's number in it, by `table`.

    Raises BadRequestError if the table is of another kind or too short, or a ring has overwritten a row.
    """
    if isinstance(table, Slot):
        raise BadRequestError(f"group {group.name!r} holds {group.store}, its table is a slot")
    try:
        return _place(row * per_row, per_row, group, table)
    except BlockTableError as error:
        raise BadRequestError(f"group {group.name!r}: {error}") from error


def slot(group: Group, table: Table) -> Ints:
    """Return the single block of a state. Raises BadRequestError if the table is not a slot."""
    if not isinstance(table, Slot):
        raise BadRequestError(f"group {group.name!r} holds {group.store}, its table is of blocks")
    return np.array([table.slot], np.int64)


def _place(token: Ints, per_row: int, group: Group, table: Blocks | Ring) -> tuple[Ints, Ints]:
    if isinstance(table, Ring) != bool(group.ring):
        raise BlockTableError(f"a ring of {group.ring} tokens, and a {type(table).__name__}")
    if isinstance(table, Ring):
        _check_ring(token, per_row, group, table)
        local = token % group.ring
    else:
        local = token // (group.chunk * group.shards) * group.chunk + token % group.chunk
    held = Blocks(0, table.ids) if isinstance(table, Ring) else table
    block = held.at(Positions(local // group.tokens)) * group.ratio + local % group.tokens // group.kernel
    return block, local % group.kernel // per_row


def _check_ring(token: Ints, per_row: int, group: Group, table: Ring) -> None:
    oldest = -(-table.at // per_row) * per_row - group.ring
    if token.size and (token.min() < oldest or token.max() >= table.at):
        asked = f"{token.min()}..{token.max()}"
        raise BlockTableError(f"a ring with tokens from {oldest} to {table.at}, asked for those of {asked}")
