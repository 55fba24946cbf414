"""Match the blocks of a request for the two groups of a pair; runs of rows of tokens as arrays.

A plan has no function of its own: its groups and its pair decide everything, so that the digest covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np

from kvplan.plan.blocks import NO_RUNS, Blocks, Ints, Positions, Runs, both, cuts, fixed, slots, turns
from kvplan.plan.needs import ALL, Needs
from kvplan.plan.spans import group_named
from kvplan.plan.types import Group, GroupPair, Interval, Plan

# The shapes of requests to cache, and the most runs of a cached one: 20 MB in all.
SHAPES, LONGEST_SHAPE = 32, 1 << 14


@dataclass(frozen=True, slots=True)
class MatchRule:
    """All inputs for matching the blocks of two groups; rows are of `rows` tokens."""

    prefill: Group
    decode: Group
    needs: Needs = ALL
    rows: int = 1
    # Runs are cut at multiples of these numbers of rows; a state has none.
    steps: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        state = self.decode.store == "state"
        steps = () if state else _needed_steps(_step(self.prefill) // self.rows, _step(self.decode) // self.rows)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "_hash", hash((self.prefill, self.decode, self.needs, self.rows)))

    def __hash__(self) -> int:
        """Return the cached hash, because each request asks for it."""
        return self._hash

    def __reduce__(self) -> tuple[type[MatchRule], tuple[Group, Group, Needs, int]]:
        """Pickle without the hash, because texts have other hashes in another process."""
        return MatchRule, (self.prefill, self.decode, self.needs, self.rows)

    def runs(self, tokens: Interval, prefill: Blocks, decode: Blocks, shards: tuple[int, int] = (0, 0)) -> Runs:
        """Return runs of the needed rows of `tokens`. Raises as `runs_of` does."""
        return self.runs_of(self.needs.ranges(*tokens, self.rows), prefill, decode, shards)

    def runs_of(
        self, needed: Sequence[Interval], prefill: Blocks, decode: Blocks, shards: tuple[int, int] = (0, 0)
    ) -> Runs:
        """Return runs of whole rows of tokens, each within one kernel block of either side.

        `shards` are the two workers' turns if workers take turns of tokens. A state has one run, its slot, for any
        range. Raises BlockTableError if a table has no block for a row, or a state has not exactly one slot.
        """
        if self.decode.store == "state":
            return slots(prefill, decode)
        if not needed:
            return NO_RUNS
        rows = sum([stop - start for start, stop in needed]) // self.rows
        shape = _kept_shape if rows // self.steps[0] < LONGEST_SHAPE else _shape
        there, here, count = shape(self, tuple(needed), shards)
        return Runs(there.kernel_blocks(prefill), there.row, here.kernel_blocks(decode), here.row, count)

    def shape(self, needed: Sequence[Interval], shards: tuple[int, int]) -> Shape:
        """Return the places of these ranges' runs, independent of the blocks that hold them."""
        cut = [self._cut(start // self.rows, stop // self.rows, shards) for start, stop in needed]
        row, count = cut[0] if len(cut) == 1 else both(*cut)
        if self.prefill.shards > 1:
            row, count = _of_shard(self.prefill, self.rows, shards[0], row, count)
        if self.decode.shards > 1:
            row, count = _of_shard(self.decode, self.rows, shards[1], row, count)
        return _places(self.prefill, self.rows, row), _places(self.decode, self.rows, row), fixed(count)

    def _cut(self, first: int, end: int, shards: tuple[int, int]) -> tuple[Ints, Ints]:
        """Return first row and length of every run, cut at the ends of either side's kernel blocks and shard turns."""
        if self.prefill.shards == self.decode.shards == 1:
            return cuts(first, end, *self.steps)
        sides = zip((self.prefill, self.decode), shards, strict=True)
        uneven = [_turns(group, self.rows, shard, first, end) for group, shard in sides if is_uneven(group)]
        return cuts(first, end, *self.steps, *uneven)


def rule_of(plan: Plan, pair: GroupPair) -> MatchRule:
    """Return the rule of a pair of a plan's groups."""
    groups = group_named(plan.prefill, pair.prefill), group_named(plan.decode, pair.decode)
    return MatchRule(*groups, pair.needs, pair.rows)


@cache
def _needed_steps(one: int, other: int) -> tuple[int, ...]:
    """Return both steps, or only the smaller one: a step that is a multiple of another adds no cut."""
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
    """Return the runs on the worker that takes turn `shard` of the tokens."""
    keep = row // (group.chunk // rows) % group.shards == shard
    return row[keep], count[keep]


@dataclass(frozen=True, slots=True)
class Places:
    """The places of rows on one side: positions in its block table, which of `ratio` kernel blocks, rows inside."""

    blocks: Positions
    ratio: int
    kernel: Ints
    row: Ints

    def kernel_blocks(self, table: Blocks) -> Ints:
        """Return the kernel block of every row by a worker's block table. Raises BlockTableError if one is missing."""
        ids = table.at(self.blocks)
        return ids if self.ratio == 1 else ids * self.ratio + self.kernel


# Places on the prefill side, places on the decode side, and the length of every run in rows.
Shape = tuple[Places, Places, Ints]


def _shape(rule: MatchRule, needed: tuple[Interval, ...], shards: tuple[int, int]) -> Shape:
    return rule.shape(needed, shards)


# Repeated lengths of requests then cost only a look into their tables.
_kept_shape = lru_cache(maxsize=SHAPES)(_shape)
forget_shapes = _kept_shape.cache_clear


def _places(group: Group, rows: int, row: Ints) -> Places:
    """Return the places of runs' first rows in a worker's memory."""
    if group.ring:
        row = row % (group.ring // rows)
    if group.shards > 1:
        chunk = group.chunk // rows
        row = row // (chunk * group.shards) * chunk + row % chunk
    position, place = np.divmod(row, group.kernel // rows)
    return Places(Positions(position // group.ratio), group.ratio, fixed(position % group.ratio), fixed(place))
