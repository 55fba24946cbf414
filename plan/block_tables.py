"""The tables of a request: blocks by position, the slot of a state, the blocks of a ring; each checked by itself."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvplan.plan.blocks import FEW, Ids, Positions, bounds, distinct, held_before, in_order, row_of, without_null
from kvplan.plan.errors import BadRequestError, BlockTableError, RequestFault
from kvplan.plan.needs import oldest
from kvplan.plan.types import Blocks, Group, Interval, Ints, Side

TOP = 1 << 63


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of a state whose content is the state after `at` tokens."""

    slot: int
    at: int


@dataclass(frozen=True, slots=True, init=False)
class Ring:
    """All blocks of a ring in order, -1 for a missing one. It holds the last of `at` tokens.

    Token t lies where token t % (the tokens of all blocks) would lie in a block table. `null` is another number
    that the engine has for a missing block. Ids are converted like those of Blocks.
    """

    ids: Ints
    at: int

    def __init__(self, ids: Ids, at: int, null: int | None = None) -> None:
        object.__setattr__(self, "ids", without_null(row_of(ids), null))
        object.__setattr__(self, "at", at)


class AnyBlock(Blocks):
    """A block at every position, for prefill tables that are not known yet and checks that do not depend on them."""

    def __init__(self) -> None:
        Blocks.__init__(self, 0, np.zeros(1, np.int64))

    def at(self, positions: Positions) -> Ints:
        return np.zeros_like(positions.each)


Table = Blocks | Slot | Ring
Tables = Mapping[str, Table]


def block_ids(ids: Iterable[int | None]) -> Ints:
    """Return a row of block ids, None for a missing block."""
    return np.array([-1 if block is None else block for block in ids], np.int64)


def blocks(table: Table) -> Blocks:
    """Return a table as block ids; a slot is a table of one."""
    if isinstance(table, Blocks):
        return table
    return Blocks(0, table.ids if isinstance(table, Ring) else np.array([table.slot], np.int64))


def positions(group: Group, tokens: Interval, shard: int) -> list[range]:
    """Return the block positions in which the worker of a token shard holds tokens [first, end)."""
    first, end = tokens
    if group.shards > 1:
        first, end = (held_before(token, group.chunk, group.shards, shard) for token in tokens)
    start, stop = first // group.tokens, -(-end // group.tokens)
    if first >= end:
        return []
    if not group.ring:
        return [range(start, stop)]
    # After a ring's last block comes its first again.
    count = group.ring // group.tokens
    low, high = start % count, (stop - 1) % count + 1
    return (
        [range(count)]
        if stop - start >= count
        else [range(low, high)]
        if low < high
        else [range(low, count), range(high)]
    )


def whole(value: object, what: str) -> int:
    """Return `value` as an int. Raises BadRequestError."""
    try:
        number = TOP if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = TOP
    if not -TOP <= number < TOP:
        raise BadRequestError(f"{what} is no whole number below 2^63, but of type {type(value).__name__}")
    return number


def checked(group: Group, table: object, end: int, pool: int | None, side: str, *, exact: bool = True) -> Table:
    """Check the table of one group of a request that ends at token `end`; convert its numbers. Raises BadRequestError.

    A state must stand after exactly `end` tokens, or, if not `exact`, after that many or more.
    """
    if not isinstance(table, _kind(group)):
        stored = "a ring" if group.ring else group.store
        message = f"{side} group {group.name!r} holds {stored}: give {_wanted(group)}, not {type(table).__name__}"
        raise BadRequestError(message, RequestFault.OTHER_TABLE)
    where = f"{side} group {group.name!r}"
    if isinstance(table, Blocks):
        first = table.first if type(table.first) is int else whole(table.first, f"{where}: the first position")
        if not 0 <= first < TOP:
            raise BadRequestError(f"{where}: the first position is {first}")
        return Blocks.checked(first, _ids(table.ids, pool, where))
    if isinstance(table, Slot):
        return _slot(table, (end, exact), pool, where)
    assert isinstance(table, Ring)
    return _ring(group, table, end, pool, side)


def own(side: Side, tables: object, pools: Mapping[str, int]) -> dict[str, Table]:
    """Check and copy a prefill worker's own tables. Raises BadRequestError."""
    if not isinstance(tables, Mapping):
        raise BadRequestError(f"tables are a mapping by group, not {type(tables).__name__}")
    groups = {group.name: group for group in side.groups}
    if strange := sorted(str(name) for name in tables if name not in groups):
        raise BadRequestError(f"this side has no group {strange[0]!r}: it has {sorted(groups)}")
    return {
        name: checked(groups[name], table, getattr(table, "at", 0), pools.get(name), "prefill")
        for name, table in tables.items()
    }


def check_repeats(word: str, groups: Iterable[Group], tables: Tables) -> None:
    """Check that no block is used twice among all groups of an arena; groups of one table count as one.

    Raises BadRequestError.
    """
    for named in arenas(group for group in groups if group.name in tables):
        ids = [_ids_of(word, alike, tables) for alike in named.values()]
        every = ids[0] if len(ids) == 1 else np.concatenate(ids)
        _check_once(word, [group for alike in named.values() for group in alike], every, tables)


def arenas(groups: Iterable[Group]) -> list[dict[str, list[Group]]]:
    """Return the groups of each arena, those of one table together."""
    found: dict[int, dict[str, list[Group]]] = {}
    for group in groups:
        found.setdefault(group.arena, {}).setdefault(group.table or group.name, []).append(group)
    return list(found.values())


def _ids_of(word: str, alike: Sequence[Group], tables: Tables) -> Ints:
    """Return the ids of groups of one table, shared ids once."""
    found = [blocks(tables[group.name]).ids for group in alike]
    if len(found) == 1:
        return found[0]
    for group, ids in zip(alike, found, strict=True):
        _check_once(word, [group], ids, tables)
    return distinct(np.concatenate(found))


def _check_once(word: str, groups: Sequence[Group], ids: Ints, tables: Tables) -> None:
    if len(ids) < 2 or (len(ids) <= FEW and _are_distinct(ids.tolist())):
        return
    ordered = in_order(ids)
    again = (ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)
    if again.any():
        twice = int(ordered[1:][again][0])
        names = ", ".join(repr(group.name) for group in groups if twice in blocks(tables[group.name]).ids)
        message = f"{word} block {twice} is named twice, in {names}: one block holds one thing at a time"
        raise BadRequestError(message, RequestFault.REPEATED_BLOCK)


def _are_distinct(ids: list[int]) -> bool:
    """Whether no block is named twice among a few ids; numpy would take three times as long."""
    named = [block for block in ids if block >= 0]
    return len(set(named)) == len(named)


def check_covers(group: Group, table: Table, tokens: Interval, rows: int, shard: int) -> None:
    """Check that a table covers the needed tokens [first, end), without building arrays of that length.

    Raises BlockTableError for positions beyond it, and if token `first` was overwritten in a ring.
    """
    if isinstance(table, Slot | AnyBlock):
        return
    if isinstance(table, Ring):
        return _check_kept(group, table, rows, tokens[0])
    for asked in positions(group, tokens, shard):
        if asked.start < table.first or asked.stop > table.first + table.ids.size:
            have = f"[{table.first}, {table.first + table.ids.size})"
            raise BlockTableError(f"the block table holds positions {have}, asked for {asked.start}..{asked.stop - 1}")


def _check_kept(group: Group, ring: Ring, rows: int, first: int) -> None:
    """Check that a ring still holds the row of `rows` tokens that contains token `first`."""
    kept = oldest(ring.at, group.ring, rows)
    if first < kept:
        held = f"the ring of {group.ring} tokens stands after {ring.at} and holds those from {kept} on"
        raise BlockTableError(f"{held}, asked for {first}", RequestFault.OVERWRITTEN)


def _kind(group: Group) -> type[Table]:
    if group.ring:
        return Ring
    return Slot if group.store == "state" else Blocks


def _wanted(group: Group) -> str:
    """Return what to give for a group."""
    kind = _kind(group)
    return "Blocks" if kind is Blocks else f"a {kind.__name__}"


def _slot(table: Slot, asked: tuple[int, bool], pool: int | None, where: str) -> Slot:
    end, exact = asked
    slot, at = whole(table.slot, f"{where}: the slot"), whole(table.at, f"{where}: its number of tokens")
    if at < end or (exact and at > end):
        what = "request" if exact else "chunk"
        message = f"{where} stands after {at} tokens, the {what} ends at {end}: a state is whole"
        raise BadRequestError(message, RequestFault.STANDS_ELSEWHERE)
    _check_within(slot, slot, 0, pool, where)
    return Slot(slot, at)


def _ring(group: Group, table: Ring, end: int, pool: int | None, side: str) -> Ring:
    """Check a ring: one to write stands after exactly the requested tokens, one to read may stand after more."""
    where, count = f"{side} group {group.name!r}", group.ring // group.tokens
    at, ids = whole(table.at, f"{where}: its number of tokens"), _ids(table.ids, pool, where)
    if ids.size != count:
        have = f"a ring of {group.ring} tokens in blocks of {group.tokens}"
        raise BadRequestError(f"{where} is {have}: give {count} ids, not {ids.size}", RequestFault.RING_SIZE)
    if at < end or (at > end and side == "decode"):
        message = f"{where} stands after {at} tokens, the request ends at {end}"
        raise BadRequestError(message, RequestFault.STANDS_ELSEWHERE)
    # Also for a ring that is read: a block that occurs twice was overwritten for one of its positions.
    check_repeats(side, (group,), {group.name: Ring(ids, at)})
    return Ring(ids, at)


def _ids(given: object, pool: int | None, where: str) -> Ints:
    # Narrow ids would wrap in later multiplications and shifts, so they are widened here, after the check.
    ids = np.array(given) if isinstance(given, np.ndarray) and not isinstance(given, np.ma.MaskedArray) else None
    if ids is None or ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise BadRequestError(f"{where}: block ids are one row of integers, an absent block is -1")
    if ids.size:
        _check_within(*bounds(ids), -1, pool, where)
    return ids if ids.dtype == np.int64 else ids.astype(np.int64)


def _check_within(least: int, most: int, lowest: int, pool: int | None, where: str) -> None:
    """Raises BadRequestError unless ids from `least` to `most` lie between `lowest` and the end of the pool."""
    if least < lowest or most >= (TOP if pool is None else pool):
        text = f"{where}: ids from {least} to {most}, the pool has {pool} from 0"
        raise BadRequestError(text, RequestFault.OUT_OF_POOL)
