"""Read one request for `trace`, `simulate` and `audit`: a token range, and each side's tables, as JSON.

Codes Q001 to Q006 name every deviation from the format. `check` verifies that the tables fit a pair of sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kvplan.compiler.bound import BoundGroup, BoundSide
from kvplan.compiler.errors import BadInput
from kvplan.compiler.json_input import JsonInput, shown
from kvplan.plan import request as requests
from kvplan.plan.block_tables import Ring, Slot, Table, block_ids, blocks, check_covers, check_repeats, positions
from kvplan.plan.blocks import Positions
from kvplan.plan.errors import BadRequestError, BlockTableError, RequestFault
from kvplan.plan.request import Request
from kvplan.plan.types import CONTEXT, Blocks, Group, Interval, Ints, Needs

NAME = "request"
JSON = JsonInput(NAME, "docs/trace.md", text="Q001", keys="Q002", types="Q003", numbers="Q006", most=2**31)
HELP: Mapping[RequestFault, str] = {
    RequestFault.UNKNOWN_GROUP: "`explain` lists the groups of both sides",
    RequestFault.MISSING_GROUP: "give its block ids or its slot",
    RequestFault.OTHER_TABLE: (
        'write {"first": …, "ids": […]} for blocks, {"slot": …, "at": …} for a state, {"ids": […], "at": …} for a ring'
    ),
    RequestFault.STANDS_ELSEWHERE: "use the state, or the ring, as it stands at the end",
    RequestFault.MISSING_BLOCK: "give the missing ids",
    RequestFault.OUT_OF_POOL: "give blocks= the pool's true size",
    RequestFault.REPEATED_BLOCK: "give it once",
    RequestFault.UNKNOWN_LENGTH: "leave it out",
    RequestFault.MISSING_LENGTH: 'add "lengths": {"NAME": [first needed, end]}',
    RequestFault.RING_SIZE: "give the ids of all of them, in order",
    RequestFault.OVERWRITTEN: "ask while it still has them",
}


class Copy(NamedTuple):
    """One copy of a trace: from a plane of a prefill worker to one of a decode worker; offsets count from the plane."""

    from_worker: int
    from_plane: str
    from_offset: int
    to_worker: int
    to_plane: str
    to_offset: int
    bytes: int


def parse_text(text: str) -> Request:
    """Parse a request from JSON text. Raises BadInput (Q001..Q006)."""
    return parse(JSON.read(text))


def parse(value: object) -> Request:
    """Parse a request from plain values, as JSON gives them. Raises BadInput (Q002..Q006)."""
    given = JSON.mapping(value, "the request", ("tokens", "prefill", "decode"), ("lengths",))
    tables = _tables("prefill", given["prefill"]), _tables("decode", given["decode"])
    own = JSON.mapping(given.get("lengths", {}), "lengths", free=None, code=JSON.types)
    lengths = {name: _range(f"lengths of {name!r}", tokens) for name, tokens in own.items()}
    return Request(NAME, _range("tokens", given["tokens"]), *tables, lengths)


def _tables(word: str, value: object) -> dict[str, Table]:
    tables = JSON.mapping(value, word, free=None, code=JSON.types)
    return {name: _table(f"{word} group {name!r}", table) for name, table in tables.items()}


def _table(where: str, value: object) -> Table:
    if isinstance(value, dict) and "slot" in value:
        given = JSON.mapping(value, where, ("slot", "at"))
        return Slot(JSON.whole(given["slot"], f"{where}: slot"), JSON.whole(given["at"], f"{where}: at"))
    if isinstance(value, dict) and "at" in value:
        given = JSON.mapping(value, where, ("ids", "at"))
        return Ring(_ids(where, given["ids"]), JSON.whole(given["at"], f"{where}: at"))
    given = JSON.mapping(value, where, ("first", "ids"))
    return Blocks(JSON.whole(given["first"], f"{where}: first"), _ids(where, given["ids"]))


def _ids(where: str, value: object) -> Ints:
    ids = JSON.sequence(value, f"{where}: ids", "list block ids by position, null where none", "Q005")
    return block_ids(None if b is None else JSON.whole(b, f"{where}: ids[{i}]") for i, b in enumerate(ids))


def _range(what: str, value: object) -> Interval:
    if not isinstance(value, list) or len(value) != 2:
        JSON.bad("Q004", f"{what} is {shown(value)}, not [first needed, end]", "write for example [0, 5000]")
    first, end = (JSON.whole(token, f"{what}[{i}]") for i, token in enumerate(value))
    if first > end:
        JSON.bad("Q004", f"{what} [{first}, {end}) ends before it begins", "write [first needed, end]")
    return first, end


@dataclass(frozen=True, slots=True)
class MetGroups:
    """Two groups with layers of a cache in common, the needed tokens, and the tokens of a row."""

    prefill: str
    decode: str
    needs: Needs
    rows: int


def met(prefill: BoundSide, decode: BoundSide) -> tuple[MetGroups, ...]:
    """Return all pairs of groups that share a layer, found layer by layer."""
    caches = {cache.name: cache for cache in decode.caches}
    return tuple(
        dict.fromkeys(
            MetGroups(theirs.name, ours.name, caches[name].needs, tensor.tokens_per_row)
            for ours in decode.groups
            for theirs in prefill.groups
            for name, layer in ours.members
            if (name, layer) in theirs.members
            for tensor in caches[name].tensors
        )
    )


def groups_of(side: BoundSide) -> tuple[Group, ...]:
    """Return the groups of a side in a plan's type."""
    return tuple(_group(side, group) for group in side.groups)


def _group(side: BoundSide, g: BoundGroup) -> Group:
    split = side.token_shards > 1 and g.store == "tokens" and not g.ring
    shards = (side.token_shards, side.interleave_tokens) if split else (1, 1)
    return Group(g.name, g.store, g.tokens, g.kernel, g.ratio, g.arena, *shards, g.length, g.ring, g.table)


def check(asked: Request, prefill: BoundSide, decode: BoundSide) -> None:
    """Refuse a request that does not fit the sides. Raises BadInput (Q007..Q017)."""
    pairs, sides = met(prefill, decode), {"prefill": prefill, "decode": decode}
    groups = {word: {group.name: group for group in groups_of(side)} for word, side in sides.items()}
    try:
        own = {groups["decode"][pair.decode].length for pair in pairs} - {CONTEXT}
        requests.checked_lengths(own, asked.lengths)
        for word, side in sides.items():
            _check_side(word, side, asked, groups[word], {getattr(pair, word) for pair in pairs})
    except BadRequestError as error:
        if error.fault is None:
            raise
        raise BadInput(error.fault.value, str(error), HELP[error.fault]) from None
    for pair in pairs:
        for word in sides:
            _check_covered(word, groups[word][getattr(pair, word)], asked, pair)


def _check_side(word: str, side: BoundSide, asked: Request, groups: dict[str, Group], needed: set[str]) -> None:
    tables = getattr(asked, word)
    pools = {} if side.blocks is None else dict.fromkeys(groups, side.blocks)
    requests.checked_tables(word, groups, tables, (asked.tokens, asked.lengths), pools)
    requests.check_complete(word, needed, tables)
    check_repeats(word, groups.values(), tables)


def _check_covered(word: str, group: Group, asked: Request, pair: MetGroups) -> None:
    """Check that every block of a group with a needed token, on any worker, is present."""
    table, tokens = getattr(asked, word)[group.name], asked.range_of(group)
    for needed in pair.needs.ranges(*tokens, pair.rows) if group.tokens else ():
        try:
            _check_blocks(group, table, needed, pair.rows)
        except BlockTableError as error:
            whose = "" if group.length == CONTEXT else f" of the length {group.length!r}"
            where = f"{word} group {group.name!r}, tokens [{needed[0]}, {needed[1]}){whose}"
            held = f"a block holds {group.tokens * group.shards} tokens"
            raise BadInput(error.fault.value, f"{where}: {error}", f"{held}: {HELP[error.fault]}") from None


def _check_blocks(group: Group, table: Table, tokens: Interval, rows: int) -> None:
    for shard in range(group.shards):
        check_covers(group, table, tokens, rows, shard)
        for asked in positions(group, tokens, shard):
            blocks(table).at(Positions(np.arange(asked.start, asked.stop)))
