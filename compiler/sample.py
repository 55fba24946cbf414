"""A request made up for a pair of sides: every table that the token range needs, block ids in no order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from kvplan.compiler.bound import BoundGroup, BoundSide
from kvplan.compiler.fits import needed, positions
from kvplan.compiler.meetings import Meeting, meetings
from kvplan.compiler.request import Ids, Request, Slot, Table
from kvplan.runtime.plan import CONTEXT


def sample_request(
    prefill: BoundSide,
    decode: BoundSide,
    tokens: tuple[int, int],
    seed: int = 0,
    lengths: Mapping[str, tuple[int, int]] | None = None,
) -> Request:
    """Tables for `tokens` = [first needed, end) on both sides. The same seed gives the same ids.

    Caches with a length of their own get `lengths`, by name, or the context's. Tables begin at position 0 or at the
    first position needed; blocks that are not needed are there or not.
    """
    random = Random(seed)
    own = {g.length: tokens for g in decode.groups if g.length != CONTEXT} | dict(lengths or {})
    asked = Request(tokens, {}, {}, own)
    met = meetings(prefill, decode)
    theirs = {g.name: [m for m in met if m.prefill == g.name] for g in prefill.groups}
    ours = {g.name: [m for m in met if m.decode == g.name] for g in decode.groups}
    tables = _tables(prefill, asked, theirs, random), _tables(decode, asked, ours, random)
    return Request(tokens, *tables, own)


Met = Mapping[str, list[Meeting]]


def _tables(side: BoundSide, asked: Request, met: Met, random: Random) -> dict[str, Table]:
    pools = {arena: _pool(side, arena, asked, random) for arena in sorted({g.arena for g in side.groups})}
    return {g.name: _table(side, g, asked, met[g.name], pools[g.arena], random) for g in side.groups}


def _pool(side: BoundSide, arena: int, asked: Request, random: Random) -> Iterator[int]:
    """Ids that the groups of one arena take turns to draw from, each once; a few more than they need."""
    need = sum(blocks_of(side, g, asked.range_of(g.length)[1]) for g in side.groups if g.arena == arena)
    room = need + need // 2 + 2 if side.blocks is None else side.blocks
    ids = list(range(room))
    random.shuffle(ids)
    return iter(ids)


def _table(
    side: BoundSide, group: BoundGroup, asked: Request, met: list[Meeting], pool: Iterator[int], random: Random
) -> Table:
    if group.store != "tokens":
        return Slot(next(pool), asked.tokens[1])
    first, end = asked.range_of(group.length)
    ranges = [one for m in met for one in needed(m.needs, first, end, m.rows)]
    need = {p for one in ranges for each in positions(side, group, *one) for p in each}
    start = random.choice((0, min(need, default=0)))
    there = [p in need or random.random() < 0.5 for p in range(start, blocks_of(side, group, end))]
    return Ids(start, tuple(next(pool) if yes else None for yes in there))


def blocks_of(side: BoundSide, group: BoundGroup, end: int) -> int:
    """Block positions that tokens [0, end) take; one slot for a state."""
    if group.store != "tokens":
        return 1
    return max((each.stop for each in positions(side, group, 0, end)), default=0)
