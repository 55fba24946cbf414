"""Match: which blocks of a request meet, for the two groups of a pair; runs of rows of tokens as arrays.

A plan has no function of its own: all that decides is in its groups and its pair, so that the digest covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from kvplan.plan.blocks import NO_RUNS, Blocks, Ints, Runs, both, cuts, slots, turns
from kvplan.plan.needs import ALL, Needs
from kvplan.plan.spans import group_named
from kvplan.plan.types import Group, Interval, Pair, Plan


@dataclass(frozen=True, slots=True)
class MatchRule:
    """All that matching the blocks of two groups depends on; rows are of `rows` tokens."""

    prefill: Group
    decode: Group
    needs: Needs = ALL
    rows: int = 1

    def runs(self, tokens: Interval, prefill: Blocks, decode: Blocks, shards: tuple[int, int] = (0, 0)) -> Runs:
        """Runs of the rows of `tokens` that are needed. Raises as `runs_of` does."""
        return self.runs_of(self.needs.ranges(*tokens, self.rows), prefill, decode, shards)

    def runs_of(
        self, needed: Sequence[Interval], prefill: Blocks, decode: Blocks, shards: tuple[int, int] = (0, 0)
    ) -> Runs:
        """Runs of whole rows of tokens, each within one kernel block of either side.

        `shards` are the two workers' turns where tokens are shared out. A state has one run, its slot, whatever the
        range. Raises BlockTableError where a table has no block for a row, or a state not one slot.
        """
        if self.decode.store == "state":
            return slots(prefill, decode)
        if not needed:
            return NO_RUNS
        cut = [self._cut(start // self.rows, stop // self.rows, shards) for start, stop in needed]
        row, count = cut[0] if len(cut) == 1 else both(*cut)
        if self.prefill.shards > 1:
            row, count = _of_shard(self.prefill, self.rows, shards[0], row, count)
        if self.decode.shards > 1:
            row, count = _of_shard(self.decode, self.rows, shards[1], row, count)
        p_block, p_row = _places(self.prefill, self.rows, prefill, row)
        d_block, d_row = _places(self.decode, self.rows, decode, row)
        return Runs(p_block, p_row, d_block, d_row, count)

    def _cut(self, first: int, end: int, shards: tuple[int, int]) -> tuple[Ints, Ints]:
        """First row and rows of every run: cut where a kernel block of either side ends, or a turn of its shards."""
        if self.prefill.shards == self.decode.shards == 1:
            return cuts(first, end, *self.steps)
        sides = zip((self.prefill, self.decode), shards, strict=True)
        uneven = [_turns(group, self.rows, shard, first, end) for group, shard in sides if is_uneven(group)]
        return cuts(first, end, *self.steps, *uneven)

    @property
    def steps(self) -> tuple[int, ...]:
        """Rows at whose multiples runs are cut."""
        return _fewest(_step(self.prefill) // self.rows, _step(self.decode) // self.rows)


def rule_of(plan: Plan, pair: Pair) -> MatchRule:
    """The rule of a pair of a plan's groups."""
    groups = group_named(plan.prefill, pair.prefill), group_named(plan.decode, pair.decode)
    return MatchRule(*groups, pair.needs, pair.rows)


@cache
def _fewest(one: int, other: int) -> tuple[int, ...]:
    """Two steps, or the smaller one: a step that is a multiple of another adds no cut."""
    low, high = sorted((one, other))
    return (low,) if high % low == 0 else (low, high)


def is_uneven(group: Group) -> bool:
    """Whether kernel blocks begin within a turn of the tokens and turns within a kernel block."""
    return group.shards > 1 and group.kernel % group.chunk != 0 and group.chunk % group.kernel != 0


def _step(group: Group) -> int:
    if group.shards == 1:
        return group.kernel
    return group.chunk if is_uneven(group) else min(group.kernel, group.chunk)


def _turns(group: Group, rows: int, shard: int, first: int, end: int) -> Ints:
    return turns(first, end, group.kernel // rows, group.chunk // rows, group.shards, shard)


def _of_shard(group: Group, rows: int, shard: int, row: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The runs that lie on the worker which takes turn `shard` of the tokens."""
    keep = row // (group.chunk // rows) % group.shards == shard
    return row[keep], count[keep]


def _places(group: Group, rows: int, table: Blocks, row: Ints) -> tuple[Ints, Ints]:
    """The kernel block of every row and its place in there, by a worker's block table."""
    if group.ring:
        row = row % (group.ring // rows)
    if group.shards > 1:
        chunk = group.chunk // rows
        row = row // (chunk * group.shards) * chunk + row % chunk
    position, place = np.divmod(row, group.kernel // rows)
    if group.ratio == 1:
        return table.at(position), place
    return table.at(position // group.ratio) * group.ratio + position % group.ratio, place
