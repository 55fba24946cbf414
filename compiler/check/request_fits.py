"""Whether a request fits a pair of sides: `plan.request`'s own checks, and every block that the tokens need is there.

What groups there are and which of them meet is worked out here, from the sides alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvplan.compiler.bound import BoundGroup, BoundSide
from kvplan.compiler.errors import BadInput
from kvplan.plan import request as requests
from kvplan.plan.block_tables import Table, blocks, check_covers, check_repeats, positions
from kvplan.plan.errors import BadRequestError, BlockTableError, RequestFault
from kvplan.plan.request import Request
from kvplan.plan.types import CONTEXT, Group, Interval, Needs

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


@dataclass(frozen=True, slots=True)
class MetGroups:
    """Two groups with layers of a cache in common, what is needed of it, and the tokens of a row."""

    prefill: str
    decode: str
    needs: Needs
    rows: int


def met(prefill: BoundSide, decode: BoundSide) -> tuple[MetGroups, ...]:
    """All groups that meet, asked layer by layer."""
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
    """The groups of a side as a plan has them."""
    return tuple(_group(side, group) for group in side.groups)


def _group(side: BoundSide, g: BoundGroup) -> Group:
    split = side.token_shards > 1 and g.store == "tokens" and not g.ring
    shards = (side.token_shards, side.interleave_tokens) if split else (1, 1)
    return Group(g.name, g.store, g.tokens, g.kernel, g.ratio, g.arena, *shards, g.length, g.ring)


def check(asked: Request, prefill: BoundSide, decode: BoundSide) -> None:
    """Refuse what does not fit the sides. Raises BadInput (Q007..Q017)."""
    pairs, sides = met(prefill, decode), {"prefill": prefill, "decode": decode}
    groups = {word: {group.name: group for group in groups_of(side)} for word, side in sides.items()}
    try:
        requests.checked_lengths({groups["decode"][pair.decode].length for pair in pairs}, asked.lengths)
        for word, side in sides.items():
            _check_side(word, side, asked, {getattr(pair, word) for pair in pairs})
    except BadRequestError as error:
        if error.fault is None:
            raise
        raise BadInput(error.fault.value, str(error), HELP[error.fault]) from None
    for pair in pairs:
        for word in sides:
            _check_covered(word, groups[word][getattr(pair, word)], asked, pair)


def _check_side(word: str, side: BoundSide, asked: Request, needed: set[str]) -> None:
    groups, tables = groups_of(side), getattr(asked, word)
    pools = {} if side.blocks is None else {group.name: side.blocks for group in groups}
    requests.checked_tables(word, groups, tables, asked, pools)
    requests.check_complete(word, needed, tables)
    check_repeats(word, groups, tables)


def _check_covered(word: str, group: Group, asked: Request, pair: MetGroups) -> None:
    """Every block of a group that holds a needed token, on whichever worker, is there."""
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
            blocks(table).at(np.arange(asked.start, asked.stop))
