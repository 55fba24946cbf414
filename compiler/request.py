"""One request, as `trace` and `simulate` read it: a token range, and each side's block tables and state slots.

Codes Q0xx. Every shape that the format does not have is refused by name; whether the tables fit a pair of sides is
asked by `check`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kvplan.compiler.bound import BoundGroup, BoundSide
from kvplan.compiler.errors import BadInput
from kvplan.compiler.side import nearest

WHOLE_IS = "write a whole number from 0 up"
LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Ids:
    """A block table: `ids[i]` is the logical block that holds block position `first + i`, None where there is none."""

    first: int
    ids: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A state: its slot, and the number of tokens it stands after."""

    slot: int
    at: int


Table = Ids | Slot


@dataclass(frozen=True, slots=True)
class Request:
    """`tokens` is [first needed, end); tables by group, of either side."""

    tokens: tuple[int, int]
    prefill: Mapping[str, Table]
    decode: Mapping[str, Table]


class Copy(NamedTuple):
    """One copy of a trace: from a plane of a prefill worker to one of a decode worker; offsets from the plane."""

    from_worker: int
    from_plane: str
    from_offset: int
    to_worker: int
    to_plane: str
    to_offset: int
    bytes: int


def parse_text(text: str) -> Request:
    """A request from JSON text. Raises BadInput (Q001..Q006)."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadInput("Q001", f"the request is not JSON: {error}", "see docs for the format of a request") from None
    return parse(value)


def parse(value: object) -> Request:
    """A request from plain values, as JSON gives them. Raises BadInput (Q002..Q006)."""
    found = _keys(value, "the request", ("tokens", "prefill", "decode"))
    return Request(_range(found["tokens"]), _tables("prefill", found["prefill"]), _tables("decode", found["decode"]))


def check(asked: Request, prefill: BoundSide, decode: BoundSide) -> None:
    """Refuse tables that do not fit the sides. Raises BadInput (Q007..Q013)."""
    met = _meet(prefill, decode)
    for word, side, tables, needed in (
        ("prefill", prefill, asked.prefill, {p for p, _ in met}),
        ("decode", decode, asked.decode, {d for _, d in met}),
    ):
        groups = {g.name: g for g in side.groups}
        for name in tables:
            if name not in groups:
                raise BadInput("Q007", f"{word} has no group {name!r}", nearest(name, sorted(groups)))
        for name in sorted(needed):
            if name not in tables:
                raise BadInput("Q008", f"{word} group {name!r} has no table", "give its block ids or its slot")
            _fits(f"{word} group {name!r}", side, groups[name], tables[name], asked.tokens)
    _repeated("prefill", prefill, asked.prefill)
    _repeated("decode", decode, asked.decode)


def _meet(prefill: BoundSide, decode: BoundSide) -> list[tuple[str, str]]:
    """The pairs of groups that have a layer of a cache in common."""
    return [(p.name, d.name) for p in prefill.groups for d in decode.groups if set(p.members) & set(d.members)]


def _fits(who: str, side: BoundSide, group: BoundGroup, table: Table, tokens: tuple[int, int]) -> None:
    if isinstance(table, Slot) != (group.store != "tokens"):
        need = '{"first": …, "ids": […]}' if group.store == "tokens" else '{"slot": …, "at": …}'
        raise BadInput("Q009", f"{who} has a table of the wrong sort", f"it stores {group.store}: write {need}")
    if isinstance(table, Slot):
        _state_fits(who, side, table, tokens[1])
    else:
        _blocks_fit(who, side, group, table, tokens)


def _state_fits(who: str, side: BoundSide, table: Slot, end: int) -> None:
    if table.at != end:
        raise BadInput(
            "Q010", f"{who} stands after {table.at} tokens, asked for after {end}", "use the state at the end"
        )
    _in_pool(who, side, (table.slot,))


def _blocks_fit(who: str, side: BoundSide, group: BoundGroup, table: Ids, tokens: tuple[int, int]) -> None:
    span = group.tokens * dict(side.sizes).get(side.tokens_over or "", 1)
    first, end = tokens
    need = range(first // span, -(-end // span)) if end > first else range(0)
    have = range(table.first, table.first + len(table.ids))
    if need and (need[0] not in have or need[-1] not in have):
        text = f"{who} holds block positions [{have.start}, {have.stop}), tokens [{first}, {end}) need"
        raise BadInput("Q011", f"{text} [{need.start}, {need.stop})", f"a block holds {span} tokens")
    for position in need:
        if table.ids[position - table.first] is None:
            raise BadInput("Q011", f"{who} has no block at position {position}, where tokens are needed", "give its id")
    _in_pool(who, side, table.ids)


def _in_pool(who: str, side: BoundSide, ids: Iterable[int | None]) -> None:
    for block in ids:
        if block is not None and block >= (LARGEST if side.blocks is None else side.blocks):
            raise BadInput("Q012", f"{who} names block {block}, the pool has {side.blocks or LARGEST}", "raise blocks=")


def _repeated(who: str, side: BoundSide, tables: Mapping[str, Table]) -> None:
    """A block holds one position of one group; groups of an arena overlay the same memory."""
    seen: dict[tuple[int, int], str] = {}
    for group in side.groups:
        table = tables.get(group.name)
        ids = () if table is None else table.ids if isinstance(table, Ids) else (table.slot,)
        for block in (b for b in ids if b is not None):
            if (group.arena, block) in seen:
                both = f"{seen[group.arena, block]!r} and {group.name!r}"
                raise BadInput("Q013", f"{who} block {block} is given twice, in groups {both}", "give it once")
            seen[group.arena, block] = group.name


def _tables(word: str, value: object) -> dict[str, Table]:
    if not isinstance(value, dict):
        raise BadInput(
            "Q003", f"{word} is {_name(value)}, not a mapping from group to table", "see `explain` for groups"
        )
    return {name: _table(f"{word} group {name!r}", table) for name, table in value.items()}


def _table(who: str, value: object) -> Table:
    if isinstance(value, dict) and "slot" in value:
        found = _keys(value, who, ("slot", "at"))
        return Slot(_whole(f"{who}: slot", found["slot"]), _whole(f"{who}: at", found["at"]))
    found = _keys(value, who, ("first", "ids"))
    ids = found["ids"]
    if not isinstance(ids, list):
        raise BadInput("Q005", f"{who}: ids is {_name(ids)}, not a list", "list block ids by position, null where none")
    return Ids(
        _whole(f"{who}: first", found["first"]),
        tuple(None if b is None else _whole(f"{who}: ids[{i}]", b) for i, b in enumerate(ids)),
    )


def _range(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise BadInput("Q004", f"tokens is {_name(value)}, not [first needed, end]", "write for example [0, 5000]")
    first, end = (_whole(f"tokens[{i}]", v) for i, v in enumerate(value))
    if first > end:
        raise BadInput("Q004", f"tokens [{first}, {end}) ends before it begins", "write [first needed, end]")
    return first, end


def _keys(value: object, what: str, keys: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadInput("Q002", f"{what} is {_name(value)}, not a mapping", f"it has the keys {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise BadInput("Q002", f"{what} has an unknown key {key!r}", nearest(str(key), keys))
    for key in keys:
        if key not in value:
            raise BadInput("Q002", f"{what} has no {key!r}", f"it has the keys {', '.join(keys)}")
    return value


def _whole(what: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadInput("Q006", f"{what} is {json.dumps(value, default=str)}", WHOLE_IS)
    if value > LARGEST:
        raise BadInput("Q006", f"{what} is {value}, more than {LARGEST}", WHOLE_IS)
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))
        raise BadInput("Q002", f"the request has the key {twice!r} twice in one mapping", "give it once")
    return found


def _name(value: object) -> str:
    words = {dict: "a mapping", list: "a list", str: "a string", bool: "true or false", int: "a number"}
    return "null" if value is None else words.get(type(value), "a number")
