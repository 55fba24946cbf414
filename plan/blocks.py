"""Block tables, and runs of tokens that lie in one kernel block on either side."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kvplan.plan.errors import BlockTableError

Ints = npt.NDArray[np.int64]
INT32, INT64 = 2**31 - 1, 2**63 - 1
FEW = 32


class ArrayLike(Protocol):
    """An object that numpy takes as an array without a copy, such as a tensor of torch on the host."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]: ...


# A mask over a row of ids; a checked row of ids, in 64 bits or in 32.
Mask = npt.NDArray[np.bool_]
BlockIds = Ints | npt.NDArray[np.int32]
# Rows of block ids in an engine's form: lists, arrays, buffers.
Ids = Ints | Sequence[int] | ArrayLike


def row_of(given: Ids) -> Ints:
    """Return a row of ids as an array. Arrays and buffers are not copied; a list of whole numbers is converted once.

    Anything else stays as it is, for its check to refuse.
    """
    if isinstance(given, np.ndarray):
        return given
    try:
        if not isinstance(given, list | tuple):
            return np.asarray(given)
        # This takes a third of numpy's time, and refuses values that numpy would truncate or parse from a text.
        ids = np.frombuffer(struct.pack(f"={len(given)}q", *given), np.int64)
        # A 0 or 1 may be a boolean.
        doubtful = np.flatnonzero(ids.view(np.uint64) < 2).tolist()
        return given if bool in map(type, map(given.__getitem__, doubtful)) else ids  # type: ignore[return-value]
    except (struct.error, TypeError, ValueError, RuntimeError):
        return given  # type: ignore[return-value]


def in_order(ids: Ints) -> Ints:
    """Sort ids of -1 or more. Sorting 32-bit ids takes a third of the time."""
    if len(ids) < 2:
        return ids
    return np.sort(ids.astype(np.int32)).astype(np.int64) if ids.max() <= INT32 else np.sort(ids)


def distinct(ids: Ints) -> Ints:
    """Return ids of -1 or more sorted and without repeats. `np.unique` hashes integers, and takes ten times as long."""
    if len(ids) < 2:
        return ids
    ordered = in_order(ids)
    fresh = ordered[1:] != ordered[:-1]
    return ordered if fresh.all() else ordered[np.concatenate(([True], fresh))]


def bounds(ids: Ints) -> tuple[int, int]:
    """Return the least and the greatest of some ids. For a few, a list is faster than numpy's microsecond."""
    if ids.size > FEW:
        return int(ids.min()), int(ids.max())
    few = ids.tolist()
    return min(few), max(few)


class Positions:
    """Positions in a block table from `low` to before `stop`: all of them, in order, if `side_by_side`."""

    __slots__ = ("each", "low", "side_by_side", "stop")

    def __init__(self, each: Ints) -> None:
        self.each = each
        low, high = bounds(each) if each.size else (0, -1)
        self.low, self.stop = low, high + 1
        each.flags.writeable = False
        self.side_by_side = each.size == self.stop - self.low and bool((np.diff(each) == 1).all())


@dataclass(frozen=True, slots=True, init=False)
class Blocks:
    """One side's block table of a group: `ids[i]` holds block position `first + i`; -1 is a missing block.

    `null` is another number that an engine has for a missing block; the table then has -1 in its place. Ids may be
    lists, arrays, buffers, or tensors on the host.
    """

    first: int
    ids: Ints

    def __init__(self, first: int, ids: Ids, null: int | None = None) -> None:
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "ids", without_null(row_of(ids), null))

    @classmethod
    def checked(cls, first: int, ids: Ints) -> Blocks:
        """Return a table whose numbers are checked, with nothing to convert."""
        made = object.__new__(Blocks)
        object.__setattr__(made, "first", first)
        object.__setattr__(made, "ids", ids)
        return made

    def at(self, positions: Positions) -> Ints:
        """Return the block ids at `positions`. Raises BlockTableError if the table has no block there."""
        if not positions.each.size:
            return positions.each
        low, stop = positions.low - self.first, positions.stop - self.first
        if low < 0 or stop > self.ids.size:
            have = f"[{self.first}, {self.first + self.ids.size})"
            asked = f"{positions.low}..{positions.stop - 1}"
            raise BlockTableError(f"the block table holds positions {have}, asked for {asked}")
        ids = self.ids[low:stop] if positions.side_by_side else self.ids[positions.each - self.first]
        if ids.size and bounds(ids)[0] < 0:
            raise BlockTableError(f"no block at position {positions.each[ids.argmin()]}, where tokens are needed")
        return ids


def without_null(ids: Ints, null: int | None) -> Ints:
    """Return a copy of `ids` with -1 for the engine's null block; invalid ids stay, for their check to refuse.

    Raises TypeError if `null` is no whole number.
    """
    if null is None:
        return ids
    number = operator.index(null)
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu" or (ids.size and int(ids.max()) > INT64):
        return ids
    return np.where(ids == number, -1, ids.astype(np.int64))


class Runs(NamedTuple):
    """Runs of rows of tokens that lie in one kernel block on either side: kernel block ids, rows in them, lengths."""

    prefill_block: Ints
    prefill_token: Ints
    decode_block: Ints
    decode_token: Ints
    count: Ints  # type: ignore[assignment]  # a tuple's own `count` is of no use here


NO_RUNS = Runs(*(np.empty(0, np.int64),) * 5)


def cuts(first: int, end: int, *steps: int | Ints) -> tuple[Ints, Ints]:
    """Cut tokens [first, end) at every multiple of each step, or at the tokens given: (first of each run, length)."""
    edges = [_multiples(first, end, step) if isinstance(step, int) else step for step in steps]
    start = np.concatenate(([first], *edges)) if end > first else np.empty(0, np.int64)
    start = distinct(start) if len(steps) > 1 else start
    return start, np.diff(start, append=end)


def _multiples(first: int, end: int, step: int) -> Ints:
    return np.arange(-(-(first + 1) // step) * step, end, step, dtype=np.int64)


def turns(first: int, end: int, kernel: int, chunk: int, shards: int, shard: int) -> Ints:
    """Return the tokens between `first` and `end` at which kernel blocks begin on the worker with turn `shard`.

    Its tokens are [(i * shards + shard) * chunk, … + chunk) for i = 0, 1 …, one turn after the other.
    """
    low, high = (held_before(token, chunk, shards, shard) for token in (first, end))
    local = np.arange(-(-low // kernel) * kernel, high, kernel, dtype=np.int64)
    token = (local // chunk * shards + shard) * chunk + local % chunk
    return token[(token > first) & (token < end)]


def held_before(token: int, chunk: int, shards: int, shard: int) -> int:
    """Return how many of the tokens before `token` the worker of turn `shard` holds."""
    whole, rest = divmod(token, chunk * shards)
    return whole * chunk + min(max(rest - shard * chunk, 0), chunk)


def both(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return the runs of two ranges, one after the other."""
    return np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1]))


def fixed(row: Ints) -> Ints:
    """Make numbers read-only, because several requests share them."""
    row.flags.writeable = False
    return row


ZERO, ONE = fixed(np.zeros(1, np.int64)), fixed(np.ones(1, np.int64))


def slots(prefill: Blocks, decode: Blocks) -> Runs:
    """Return the one run of a state, slot to slot. Raises BlockTableError if a side has not exactly one."""
    for side, table in (("prefill", prefill), ("decode", decode)):
        if table.ids.size != 1 or table.ids[0] < 0:
            raise BlockTableError(f"a state has one slot on the {side} side, got {table.ids.tolist()}")
    return Runs(prefill.ids, ZERO, decode.ids, ZERO, ONE)


def following(p: BlockIds, d: BlockIds) -> Mask:
    """Return a mask of the block pairs that go up by one on both sides from the pair before; the first is never one."""
    follows = np.zeros(len(p), np.bool_)
    follows[1:] = (p[1:] - p[:-1] == 1) & (d[1:] - d[:-1] == 1)
    return follows


def chains(p: BlockIds, d: BlockIds) -> tuple[Ints, Ints]:
    """Return the starts and lengths of runs of block pairs that go up by one on both sides."""
    cut = np.flatnonzero(np.concatenate((~following(p, d), [True])))
    return cut[:-1], cut[1:] - cut[:-1]
