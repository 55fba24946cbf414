"""A caller's request: a range of tokens, and every group's blocks on both sides, checked before bytes move."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from kvplan.plan.block_tables import Ring, Slot, Table, Tables, blocks, check_covers, check_repeats, checked, whole
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.errors import BadRequestError, BlockTableError, RequestFault
from kvplan.plan.last_page import completed
from kvplan.plan.match import MatchRule
from kvplan.plan.types import CONTEXT, Group, Interval, Plan, Runs

__all__ = ["Request", "RequestRules", "Ring", "Slot", "Tables", "blocks", "check", "runs"]

LONGEST_ID = 256
# The tokens of a request, and the ranges of its lengths by name.
AskedRanges = tuple[Interval, Mapping[str, Interval]]


class HasLength(Protocol):
    """A group or a cache, with the name of the length that counts its tokens."""

    @property
    def length(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Request:
    """Tokens [first, end) of a request, and by group the logical blocks, the slot or the ring of either side.

    `lengths` has the ranges of caches with a length of their own, such as a cross attention's, by the length's name.
    With `whole_last_page` decode needs nothing behind the last token in a group's last block, so a last page that is
    not full may be copied whole.
    """

    id: str
    tokens: tuple[int, int]
    prefill: Tables
    decode: Tables
    lengths: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    whole_last_page: bool = False

    def range_of(self, group: HasLength) -> Interval:
        """Return the tokens of this request that count for a group. Raises BadRequestError if they are missing."""
        if group.length == CONTEXT:
            return self.tokens
        if group.length not in self.lengths:
            message = f"the request has no tokens for the length {group.length!r}"
            raise BadRequestError(message, RequestFault.MISSING_LENGTH)
        return self.lengths[group.length]

    def ranges(self) -> list[Interval]:
        return [self.tokens, *self.lengths.values()]

    @property
    def whole_hit(self) -> bool:
        """Whether decode already has all of its range: nothing moves, and no table is needed."""
        first, end = self.tokens
        return first == end and all(first == end for first, end in self.lengths.values())


class RequestRules:
    """The rules that check all requests of a plan, looked up once."""

    def __init__(self, plan: Plan) -> None:
        self._groups = {group.name: group for group in plan.prefill.groups}, {g.name: g for g in plan.decode.groups}
        self._needed = (
            frozenset(pair.prefill for pair in plan.group_pairs),
            frozenset(pair.decode for pair in plan.group_pairs),
        )
        self._lengths = {self._groups[1][name].length for name in self._needed[1]} - {CONTEXT}

    def check(
        self, request: Request, prefill: Mapping[str, int], decode: Mapping[str, int], *, fed: bool = False
    ) -> Request:
        """Return a copy of the request that its caller cannot change, with ints for numbers and int64 for block ids.

        Raises BadRequestError if it does not fit; `prefill` and `decode` are pool sizes by group. A pool that is not
        known (a group that this worker holds nothing of) sets no bound. Prefill tables of a request that is `fed`
        in chunks may be missing: chunks bring them. All tables of a whole hit may be missing.
        """
        check_id(request.id)
        tokens, lengths = checked_range(request.tokens), checked_lengths(self._lengths, request.lengths)
        theirs = checked_tables("prefill", self._groups[0], request.prefill, (tokens, lengths), prefill)
        ours = checked_tables("decode", self._groups[1], request.decode, (tokens, lengths), decode)
        asked = Request(request.id, tokens, theirs, ours, lengths, checked_whole(request.whole_last_page))
        if not asked.whole_hit:
            check_complete("decode", self._needed[1], ours)
            check_complete("prefill", frozenset() if fed else self._needed[0], theirs)
        check_repeats("decode", self._groups[1].values(), ours)
        return asked


def check(
    plan: Plan, request: Request, prefill: Mapping[str, int], decode: Mapping[str, int], *, fed: bool = False
) -> Request:
    """Check a request by the rules of a plan, as `RequestRules.check` does. Raises BadRequestError."""
    return RequestRules(plan).check(request, prefill, decode, fed=fed)


def brought(plan: Plan, request: Request, tables: object, end: int, pools: Mapping[str, int], *, final: bool) -> Tables:
    """Check and copy the prefill tables that a chunk of a checked request brings; the chunk ends at token `end`.

    If it is not the `final` one, states may stand after more tokens than it has. Raises BadRequestError.
    """
    groups = {group.name: group for group in plan.prefill.groups}
    return checked_tables("prefill", groups, tables, ((0, end), request.lengths), pools, exact=final)


def checked_tables(
    side: str,
    groups: Mapping[str, Group],
    tables: object,
    asked: AskedRanges,
    pools: Mapping[str, int],
    *,
    exact: bool = True,
) -> Tables:
    """Check the tables of one side, each by itself; `groups` are by name. States must stand after the requested tokens,
    or after more if not `exact`. Raises BadRequestError."""
    if not isinstance(tables, Mapping):
        raise BadRequestError(f"the {side} side is a mapping by group, not {type(tables).__name__}")
    for name in tables:
        _check_group(groups, name, side)
    (_, end), lengths = asked
    found = dict[str, Table]()
    for name, table in tables.items():
        group = groups[name]
        ends = lengths[group.length][1] if group.length in lengths else end
        found[name] = checked(group, table, ends, pools.get(name), side, exact=exact)
    return found


def check_complete(side: str, needed: Set[str], tables: Tables) -> None:
    """Raises BadRequestError if a needed group has no table."""
    if needed <= tables.keys():
        return
    for name in sorted(needed - tables.keys()):
        raise BadRequestError(
            f"group {name!r} of the {side} side is missing from the request", RequestFault.MISSING_GROUP
        )


def runs(
    rule: MatchRule,
    request: Request,
    shards: tuple[int, int],
    some: Sequence[Interval] | None = None,
    whole_from: int = 0,
) -> Runs:
    """Return the runs of one pair of groups: of all tokens that it needs, or only of `some`, in whole rows.

    A last page that may be copied whole is, if it has `whole_from` rows. Raises BadRequestError if a table is
    missing, short, or null at needed tokens.
    """
    theirs, ours = rule.prefill, rule.decode
    first, end = request.range_of(ours)
    if first >= end:
        return NO_RUNS
    state = ours.store == "state"
    needed = () if state else rule.needs.ranges(first, end, rule.rows) if some is None else some
    if not (state or needed):
        return NO_RUNS
    tables = _table(request.prefill, "prefill", theirs.name), _table(request.decode, "decode", ours.name)
    try:
        for asked in needed:
            _check_covers(rule, tables, asked, shards)
        found = rule.runs_of(needed, blocks(tables[0]), blocks(tables[1]), shards)
    except BlockTableError as error:
        message = f"request {request.id}, groups {theirs.name} -> {ours.name}: {error}"
        raise BadRequestError(message, error.fault) from error
    # Sinks may be the only needed tokens, and chunks end before the request.
    ends = bool(needed) and needed[-1][1] == rule.needs.stop(end) // rule.rows * rule.rows
    return completed(found, ours.kernel // rule.rows, whole_from) if ends and request.whole_last_page else found


def _check_covers(rule: MatchRule, tables: tuple[Table, Table], tokens: Interval, shards: tuple[int, int]) -> None:
    """Check that the tables of both sides cover needed tokens. Raises BlockTableError."""
    for group, table, shard in zip((rule.prefill, rule.decode), tables, shards, strict=True):
        if group.tokens:
            check_covers(group, table, tokens, rule.rows, shard)


def _table(tables: Tables, side: str, group: str) -> Table:
    if group not in tables:
        message = f"group {group!r} of the {side} side is missing from the request and from this chunk"
        raise BadRequestError(message, RequestFault.MISSING_GROUP)
    return tables[group]


def check_id(name: object) -> None:
    """Raises BadRequestError unless `name` is a text of 1 to 256 bytes."""
    if not isinstance(name, str) or not name:
        raise BadRequestError("a request's id is a text that is not empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise BadRequestError(f"the request's id {name!a} is no UTF-8: {error.reason}") from error
    if size > LONGEST_ID:
        raise BadRequestError(f"the request's id has {size} bytes, at most {LONGEST_ID}")


def checked_whole(given: object) -> bool:
    """Whether the last page may be copied whole. Raises BadRequestError unless that is true or false."""
    if not isinstance(given, bool):
        raise BadRequestError(f"whole_last_page is true or false, not of type {type(given).__name__}")
    return given


def checked_range(tokens: object) -> tuple[int, int]:
    """Return tokens [first, end) as ints. Raises BadRequestError."""
    if not isinstance(tokens, tuple | list) or len(tokens) != 2:
        raise BadRequestError("tokens are two whole numbers: the first, and the one behind the last")
    first, end = whole(tokens[0], "a token"), whole(tokens[1], "a token")
    if not 0 <= first <= end:
        raise BadRequestError(f"tokens [{first}, {end}) are no range")
    return first, end


def _check_group(groups: Mapping[str, Group], key: object, side: str) -> None:
    if not isinstance(key, str):
        raise BadRequestError(f"a group of the {side} side is a name, not {type(key).__name__}")
    if key not in groups:
        near = difflib.get_close_matches(key, groups, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {sorted(groups)}"
        raise BadRequestError(f"the {side} side has no group {key!r}{hint}", RequestFault.UNKNOWN_GROUP)


def checked_lengths(own: Set[str], given: object) -> dict[str, Interval]:
    """Return the ranges of a request's own lengths; it must give all of them. Raises BadRequestError."""
    if not isinstance(given, Mapping):
        raise BadRequestError(f"lengths are a mapping by name, not {type(given).__name__}")
    if not (own or given):
        return {}
    names = set(given)
    if wrong := sorted(map(str, own ^ names)):
        fault = RequestFault.UNKNOWN_LENGTH if names - own else RequestFault.MISSING_LENGTH
        raise BadRequestError(f"lengths need exactly {sorted(own)}; missing or unknown: {', '.join(wrong)}", fault)
    return {name: checked_range(tokens) for name, tokens in given.items()}
