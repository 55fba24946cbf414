"""Which rows of tokens a reader needs, and where a block table puts them, by asking for every row.

A row is of `unit` tokens, has the number of its first one over `unit`, and counts with the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.plan.block_tables import Ring, Slot, Table
from kvplan.plan.errors import BadRequestError, BlockTableError, PlanFormatError
from kvplan.plan.types import Blocks, Group, Interval, Ints, Needs
from kvplan.runtime.checksum import keys


@dataclass(frozen=True, slots=True)
class Sample:
    """Which tokens are summed: one in `every`, chosen by a hash of its number and `seed`; states are always whole.

    A row of several tokens is chosen by its last one. Raises BadRequestError for an `every` below 1.
    """

    every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise BadRequestError(f"a sample of one token in {self.every}: give 1 or more")

    def pick(self, row: Ints, unit: int) -> Ints:
        """The chosen ones of some rows of `unit` tokens."""
        if self.every == 1:
            return row
        chance = keys.of_numbers(row * unit + unit - 1, keys.named("sample", str(self.seed)))
        found: Ints = row[chance % np.uint64(self.every) == 0]
        return found


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """Tokens [first, end) as a reader needs them, on some turns (group, shard) of them, sampled."""

    tokens: Interval
    needs: Needs
    turns: tuple[tuple[Group, int], ...]
    sample: Sample

    def rows(self, unit: int) -> Ints:
        """The rows of `unit` tokens."""
        found = self.sample.pick(needed(self.tokens, self.needs, unit), unit)
        for group, shard in self.turns:
            found = on_turn(found, unit, group, shard)
        return found


def needed(tokens: Interval, needs: Needs, unit: int) -> Ints:
    """The rows that a reader of tokens [first, end) must have."""
    first, end = tokens
    row = np.arange(first // unit, max(end // unit, first // unit), dtype=np.int64)
    last, late = row * unit + unit - 1, np.ones(row.shape, np.bool_)
    if needs.keep is None and needs.chunk is None:
        return row
    if needs.keep is not None:
        late &= last >= end - needs.keep
    if needs.chunk is not None:
        late &= last // needs.chunk == end // needs.chunk
    found: Ints = row[late | (row * unit < needs.sink)]
    return found


def on_turn(row: Ints, unit: int, group: Group, shard: int) -> Ints:
    """The rows that the worker of turn `shard` holds, where workers take turns of the tokens of `group`."""
    if group.shards == 1:
        return row
    if group.chunk % unit:
        raise PlanFormatError(f"turns of {group.chunk} tokens cut rows of {unit} in group {group.name!r}")
    found: Ints = row[row * unit // group.chunk % group.shards == shard]
    return found


def place(row: Ints, unit: int, group: Group, table: Table) -> tuple[Ints, Ints]:
    """The kernel block and the row in it of every row of tokens, as `table` says it.

    Raises BadRequestError where the table is of another sort, short, or has overwritten what is asked for.
    """
    if isinstance(table, Slot):
        raise BadRequestError(f"group {group.name!r} holds {group.store}, its table is a slot")
    try:
        return _place(row * unit, unit, group, table)
    except BlockTableError as error:
        raise BadRequestError(f"group {group.name!r}: {error}") from error


def slot(group: Group, table: Table) -> Ints:
    """The one block of a state. Raises BadRequestError where the table is no slot."""
    if not isinstance(table, Slot):
        raise BadRequestError(f"group {group.name!r} holds {group.store}, its table is of blocks")
    return np.array([table.slot], np.int64)


def _place(token: Ints, unit: int, group: Group, table: Blocks | Ring) -> tuple[Ints, Ints]:
    if isinstance(table, Ring) != bool(group.ring):
        raise BlockTableError(f"a ring of {group.ring} tokens, and a {type(table).__name__}")
    if isinstance(table, Ring):
        _check_ring(token, unit, group, table)
        local = token % group.ring
    else:
        local = token // (group.chunk * group.shards) * group.chunk + token % group.chunk
    held = Blocks(0, table.ids) if isinstance(table, Ring) else table
    block = held.at(local // group.tokens) * group.ratio + local % group.tokens // group.kernel
    return block, local % group.kernel // unit


def _check_ring(token: Ints, unit: int, group: Group, table: Ring) -> None:
    oldest = -(-table.at // unit) * unit - group.ring
    if token.size and (token.min() < oldest or token.max() >= table.at):
        asked = f"{token.min()}..{token.max()}"
        raise BlockTableError(f"a ring with tokens from {oldest} to {table.at}, asked for those of {asked}")
