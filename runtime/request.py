"""What a caller asks for: a range of tokens, and every group's blocks on both sides, checked before bytes move."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvplan.runtime.errors import BadRequestError, BlockTableError
from kvplan.runtime.plan import Blocks, Group, Pair, Plan, Runs, Side


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of a state, which stands after `at` tokens."""

    slot: int
    at: int


Tables = Mapping[str, Blocks | Slot]


@dataclass(frozen=True, slots=True)
class Request:
    """Tokens [first, end) of a request, and by group the logical blocks or the slot of either side."""

    id: str
    tokens: tuple[int, int]
    prefill: Tables
    decode: Tables


def check(plan: Plan, request: Request, prefill: Mapping[str, int], decode: Mapping[str, int]) -> None:
    """Raises BadRequestError where a request does not fit; `prefill` and `decode` are pool sizes by group.

    A pool that is not known (a group that this worker holds nothing of) bounds nothing.
    """
    first, end = request.tokens
    if not 0 <= first <= end:
        raise BadRequestError(f"tokens [{first}, {end}) are no range")
    _check_side(plan, plan.prefill, "prefill", request.prefill, end, prefill)
    _check_side(plan, plan.decode, "decode", request.decode, end, decode)
    _check_repeats(plan.decode, request.decode)


def runs(plan: Plan, pair: Pair, request: Request, shards: tuple[int, int]) -> Runs:
    """The runs of one pair of groups. Raises BadRequestError where a table is short or null where tokens are."""
    first, end = request.tokens
    prefill, decode = blocks(request.prefill[pair.prefill]), blocks(request.decode[pair.decode])
    try:
        return pair.match(first, end, prefill, decode, *shards)
    except BlockTableError as error:
        raise BadRequestError(f"request {request.id}, groups {pair.prefill} -> {pair.decode}: {error}") from error


def blocks(table: Blocks | Slot) -> Blocks:
    """A table as block ids; a slot is a table of one."""
    return Blocks(0, np.array([table.slot], np.int64)) if isinstance(table, Slot) else table


def _check_side(plan: Plan, side: Side, name: str, tables: Tables, end: int, pools: Mapping[str, int]) -> None:
    groups = {group.name: group for group in side.groups}
    for key in tables:
        if key not in groups:
            near = difflib.get_close_matches(key, groups, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {sorted(groups)}"
            raise BadRequestError(f"the {name} side has no group {key!r}{hint}")
    for needed in sorted({getattr(pair, name) for pair in plan.pairs}):
        if needed not in tables:
            raise BadRequestError(f"group {needed!r} of the {name} side is missing from the request")
    for key, table in tables.items():
        where = f"{name} group {key!r}"
        _check_kind(groups[key], table, end, where)
        _check_ids(table, pools.get(key), where)


def _check_kind(group: Group, table: Blocks | Slot, end: int, where: str) -> None:
    if isinstance(table, Slot) != (group.store == "state"):
        want = "a Slot" if group.store == "state" else "Blocks"
        raise BadRequestError(f"{where} holds {group.store}: give {want}, not {type(table).__name__}")
    if isinstance(table, Slot) and table.at != end:
        raise BadRequestError(f"{where} stands after {table.at} tokens, the request ends at {end}: a state is whole")


def _check_ids(table: Blocks | Slot, pool: int | None, where: str) -> None:
    ids = blocks(table).ids
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise BadRequestError(f"{where}: block ids are one row of integers, an absent block is -1")
    lowest = 0 if isinstance(table, Slot) else -1
    if ids.size and (ids.min() < lowest or (pool is not None and ids.max() >= pool)):
        raise BadRequestError(f"{where}: ids from {ids.min()} to {ids.max()}, the pool has {pool} from 0")
    if isinstance(table, Blocks) and table.first < 0:
        raise BadRequestError(f"{where}: the first position is {table.first}")


def _check_repeats(side: Side, tables: Tables) -> None:
    arenas: dict[int, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {}
    for group in side.groups:
        if group.name in tables:
            arenas.setdefault(group.arena, []).append(blocks(tables[group.name]).ids)
    for arena in arenas.values():
        ids = np.sort(np.concatenate(arena))
        ids = ids[ids >= 0]
        twice = ids[1:][ids[1:] == ids[:-1]]
        if twice.size:
            raise BadRequestError(f"decode block {twice[0]} is named twice: one block holds one thing at a time")
