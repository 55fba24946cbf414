"""A request made up for a pair of sides: every table that the token range needs, block ids in no order."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from kvplan.compiler.bound import BoundGroup, BoundSide
from kvplan.compiler.request import Ids, Request, Slot, Table


def sample_request(prefill: BoundSide, decode: BoundSide, tokens: tuple[int, int], seed: int = 0) -> Request:
    """Tables for `tokens` = [first needed, end) on both sides. The same seed gives the same ids.

    Tables begin at position 0 or at the first position needed; blocks before that are there or not.
    """
    random = Random(seed)
    return Request(tokens, _tables(prefill, tokens, random), _tables(decode, tokens, random))


def _tables(side: BoundSide, tokens: tuple[int, int], random: Random) -> dict[str, Table]:
    pools = {arena: _pool(side, arena, tokens[1], random) for arena in sorted({g.arena for g in side.groups})}
    return {g.name: _table(side, g, tokens, pools[g.arena], random) for g in side.groups}


def _pool(side: BoundSide, arena: int, end: int, random: Random) -> Iterator[int]:
    """Ids that the groups of one arena take turns to draw from, each once; a few more than they need."""
    need = sum(positions(side, g, end) for g in side.groups if g.arena == arena)
    room = need + need // 2 + 2 if side.blocks is None else side.blocks
    ids = list(range(room))
    random.shuffle(ids)
    return iter(ids)


def _table(side: BoundSide, group: BoundGroup, tokens: tuple[int, int], pool: Iterator[int], random: Random) -> Table:
    if group.store != "tokens":
        return Slot(next(pool), tokens[1])
    end, first = positions(side, group, tokens[1]), positions(side, group, tokens[0] + 1) - 1
    start = random.choice((0, first))
    there = [p >= first or random.random() < 0.5 for p in range(start, end)]
    return Ids(start, tuple(next(pool) if yes else None for yes in there))


def positions(side: BoundSide, group: BoundGroup, end: int) -> int:
    """Block positions that tokens [0, end) take; one slot for a state."""
    if group.store != "tokens":
        return 1
    return -(-end // (group.tokens * dict(side.sizes).get(side.tokens_over or "", 1)))
