"""What a caller asks for: a range of tokens, and every group's blocks on both sides, checked before bytes move."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvplan.plan.block_tables import (
    AnyBlock,
    Ring,
    Slot,
    Table,
    Tables,
    blocks,
    check_kept,
    check_repeats,
    checked,
    whole,
)
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.errors import BadRequestError, BlockTableError
from kvplan.plan.spans import group_named
from kvplan.plan.types import CONTEXT, Group, Pair, Plan, Runs, Side

__all__ = ["Request", "Ring", "Slot", "Tables", "blocks", "check", "runs"]

LONGEST_ID = 256


@dataclass(frozen=True, slots=True)
class Request:
    """Tokens [first, end) of a request, and by group the logical blocks, the slot or the ring of either side.

    `lengths` has the ranges of caches with a length of their own, such as a cross attention's, by the length's name.
    """

    id: str
    tokens: tuple[int, int]
    prefill: Tables
    decode: Tables
    lengths: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def range_of(self, group: Group) -> tuple[int, int]:
        """The tokens of this request that count for a group."""
        return self.tokens if group.length == CONTEXT else self.lengths[group.length]


def check(
    plan: Plan, request: Request, prefill: Mapping[str, int], decode: Mapping[str, int], *, fed: bool = False
) -> Request:
    """The request with every number an int and every block id an int64, copied, so that nobody changes it later.

    Raises BadRequestError where it does not fit; `prefill` and `decode` are pool sizes by group. A pool that is not
    known (a group that this worker holds nothing of) bounds nothing. Of a request that is `fed` in chunks, prefill
    tables may lack: chunks bring them.
    """
    check_id(request.id)
    asked = Request(request.id, checked_range(request.tokens), {}, {}, _lengths(plan, request.lengths))
    ends = {CONTEXT: asked.tokens[1]} | {name: end for name, (_, end) in asked.lengths.items()}
    theirs = _side(plan, "prefill", request.prefill, ends, prefill, whole_request=True)
    ours = _side(plan, "decode", request.decode, ends, decode, whole_request=True)
    for name, tables in (("decode", ours), *([] if fed else [("prefill", theirs)])):
        _check_all(plan, name, tables)
    check_repeats(plan.decode, ours)
    return replace(asked, prefill=theirs, decode=ours)


def brought(plan: Plan, request: Request, tables: object, end: int, pools: Mapping[str, int], *, final: bool) -> Tables:
    """The prefill tables that a chunk of a checked request brings, checked and copied; the chunk ends at token `end`.

    Where it is not the `final` one, states may stand after more tokens than it has. Raises BadRequestError.
    """
    ends = {CONTEXT: end} | {name: last for name, (_, last) in request.lengths.items()}
    return _side(plan, "prefill", tables, ends, pools, whole_request=final)


def runs(
    plan: Plan, pair: Pair, request: Request, shards: tuple[int, int], tokens: tuple[int, int] | None = None
) -> Runs:
    """The runs of one pair of groups, of `tokens` only where they are given.

    Raises BadRequestError where a table is missing, short, or null where tokens are.
    """
    first, end = tokens or request.range_of(group_named(plan.decode, pair.decode))
    if first >= end:
        return NO_RUNS
    prefill = blocks(_table(request.prefill, "prefill", pair.prefill))
    decode = blocks(_table(request.decode, "decode", pair.decode))
    try:
        _check_covers(plan, pair, request, (first, end))
        return pair.match(first, end, prefill, decode, *shards)
    except BlockTableError as error:
        raise BadRequestError(f"request {request.id}, groups {pair.prefill} -> {pair.decode}: {error}") from error


def _table(tables: Tables, side: str, group: str) -> Table:
    if group not in tables:
        raise BadRequestError(f"group {group!r} of the {side} side is missing from the request and from this chunk")
    return tables[group]


def check_id(name: object) -> None:
    """Raises BadRequestError where `name` is no text of 1 to 256 bytes."""
    if not isinstance(name, str) or not name:
        raise BadRequestError("a request's id is a text that is not empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise BadRequestError(f"the request's id {name!a} is no UTF-8: {error.reason}") from error
    if size > LONGEST_ID:
        raise BadRequestError(f"the request's id has {size} bytes, at most {LONGEST_ID}")


def checked_range(tokens: object) -> tuple[int, int]:
    """Tokens [first, end) as ints. Raises BadRequestError."""
    if not isinstance(tokens, tuple | list) or len(tokens) != 2:
        raise BadRequestError("tokens are two whole numbers: the first, and the one behind the last")
    first, end = (whole(token, "a token") for token in tokens)
    if not 0 <= first <= end:
        raise BadRequestError(f"tokens [{first}, {end}) are no range")
    return first, end


def _side(
    plan: Plan, name: str, tables: object, ends: Mapping[str, int], pools: Mapping[str, int], *, whole_request: bool
) -> Tables:
    """The tables of one side, which stand after the tokens in `ends`, by length; states may stand after more tokens

    where it is not the whole request.
    """
    side: Side = getattr(plan, name)
    groups = {group.name: group for group in side.groups}
    if not isinstance(tables, Mapping):
        raise BadRequestError(f"the {name} side is a mapping by group, not {type(tables).__name__}")
    given = dict(tables)
    for key in given:
        _check_group(groups, key, name)
    after = {key: ends.get(groups[key].length, ends[CONTEXT]) for key in given}
    return {
        key: checked(groups[key], table, after[key], pools.get(key), name, exact=whole_request)
        for key, table in given.items()
    }


def _check_all(plan: Plan, name: str, given: Tables) -> None:
    for needed in sorted({getattr(pair, name) for pair in plan.pairs}):
        if needed not in given:
            raise BadRequestError(f"group {needed!r} of the {name} side is missing from the request")


def _check_group(groups: Mapping[str, Group], key: object, name: str) -> None:
    if not isinstance(key, str):
        raise BadRequestError(f"a group of the {name} side is a name, not {type(key).__name__}")
    if key not in groups:
        near = difflib.get_close_matches(key, groups, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {sorted(groups)}"
        raise BadRequestError(f"the {name} side has no group {key!r}{hint}")


def _check_covers(plan: Plan, pair: Pair, request: Request, tokens: tuple[int, int]) -> None:
    """Before anything as long as the range is made. A share of the tokens may end before the whole does."""
    theirs, ours = group_named(plan.prefill, pair.prefill), group_named(plan.decode, pair.decode)
    lowest = max(tokens[0], pair.needs.low(tokens[1]))
    first, end = (token // pair.rows * pair.rows for token in (lowest, tokens[1]))
    slack = max(1 + group.chunk // group.tokens if group.shards > 1 else 0 for group in (theirs, ours))
    for group, table in ((theirs, request.prefill[pair.prefill]), (ours, request.decode[pair.decode])):
        if isinstance(table, Slot | AnyBlock) or first >= end or not group.tokens:
            continue
        if isinstance(table, Ring):
            check_kept(group, table, pair.rows, first)
            continue
        low, high = (_position(group, token) for token in (first, end - 1))
        if low + slack < table.first or high - slack >= table.first + table.ids.size:
            have = f"[{table.first}, {table.first + table.ids.size})"
            raise BlockTableError(f"the block table holds positions {have}, asked for {low}..{high}")


def _position(group: Group, token: int) -> int:
    """The block position of a token, to within a turn where tokens are shared out."""
    return (
        token // (group.chunk * group.shards) * group.chunk // group.tokens
        if group.shards > 1
        else token // group.tokens
    )


def _lengths(plan: Plan, given: object) -> dict[str, tuple[int, int]]:
    groups = {group.name: group.length for group in plan.decode.groups}
    known = {groups[pair.decode] for pair in plan.pairs} - {CONTEXT}
    if not isinstance(given, Mapping):
        raise BadRequestError(f"lengths are a mapping by name, not {type(given).__name__}")
    if unlike := sorted(map(str, known ^ set(given))):
        raise BadRequestError(f"lengths need exactly {sorted(known)}; missing or unknown: {', '.join(unlike)}")
    return {name: checked_range(tokens) for name, tokens in given.items()}
