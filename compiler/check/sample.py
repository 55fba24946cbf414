"""A request made up for a pair of sides: every table that the token range needs, block ids in no order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from kvplan.compiler.bound import BoundGroup, BoundSide
from kvplan.compiler.check.request import Ids, Request, Ring, Slot, Table
from kvplan.compiler.check.request_fits import needed, positions
from kvplan.compiler.errors import BadInput
from kvplan.compiler.paging.rings import oldest
from kvplan.compiler.pair.groups import GroupPair, pair_groups
from kvplan.plan.types import CONTEXT

SHORT = 512  # tokens of windows and chunks that a sample reaches from its beginning
FIRST, LEAST = 3, 100


@dataclass(slots=True)
class IdPool:
    """Block ids that the groups of one arena take turns to draw from, each once; `spare` are not needed by any."""

    ids: Iterator[int]
    spare: int

    def draw(self) -> int:
        return next(self.ids)

    def extra(self) -> int | None:
        """An id that nobody needs, None where there are no more."""
        self.spare -= 1
        return next(self.ids) if self.spare >= 0 else None


def sample_range(prefill: BoundSide, decode: BoundSide) -> tuple[int, int]:
    """A range that begins and ends inside blocks of both sides and spans at least one whole one.

    Windows and chunks of up to 512 tokens leave some of it out; around a multiple of a longer chunk, that one does.
    """
    sides, needs = (prefill, decode), [cache.needs for cache in decode.caches]
    block = max((g.tokens * s.token_shards for s in sides for g in s.groups), default=0)
    cut = [n.keep + n.sink + 1 + min(block, LEAST) for n in needs if n.keep is not None and n.keep < SHORT]
    cut += [n.chunk + n.chunk // 2 + n.sink for n in needs if n.chunk is not None and n.chunk <= SHORT]
    end = max(LEAST, block * 5 // 2 - FIRST, *(FIRST + each for each in cut))
    chunks = [n.chunk for n in needs if n.chunk is not None]
    far = max((chunk for chunk in chunks if chunk > SHORT), default=0)
    shift = max(0, -(-end // 2 // far) * far - end // 2) if far else 0
    inside = (n for n in range(LEAST) if all((end + shift + n) % chunk for chunk in chunks))
    end += next(inside, 0)
    return FIRST + shift, end + shift


def sample_request(
    prefill: BoundSide,
    decode: BoundSide,
    tokens: tuple[int, int],
    seed: int = 0,
    lengths: Mapping[str, tuple[int, int]] | None = None,
) -> Request:
    """Tables for `tokens` = [first needed, end) on both sides. The same seed gives the same ids.

    Caches with a length of their own get `lengths`, by name, or the context's. Tables begin at position 0 or at the
    first position needed; blocks that are not needed are there or not. Raises BadInput (Q021) where a side's pool has
    fewer blocks than are needed.
    """
    random = Random(seed)
    own = {g.length: tokens for g in decode.groups if g.length != CONTEXT} | dict(lengths or {})
    asked = Request(tokens, {}, {}, own)
    met = pair_groups(prefill, decode)
    theirs = {g.name: [m for m in met if m.prefill == g.name] for g in prefill.groups}
    ours = {g.name: [m for m in met if m.decode == g.name] for g in decode.groups}
    tables = _tables("prefill", prefill, asked, theirs, random), _tables("decode", decode, asked, ours, random)
    return Request(tokens, *tables, own)


Met = Mapping[str, list[GroupPair]]


def _tables(word: str, side: BoundSide, asked: Request, met: Met, random: Random) -> dict[str, Table]:
    need = {g.name: _need(side, g, asked, met[g.name]) for g in side.groups}
    arenas = sorted({g.arena for g in side.groups})
    of = {arena: [g for g in side.groups if g.arena == arena] for arena in arenas}
    pools = {arena: _pool(word, side, of[arena], asked, need, random) for arena in arenas}
    found = {g.name: _table(side, g, asked, need[g.name], pools[g.arena], random) for g in side.groups}
    rings = [(g, t) for g in side.groups if isinstance(t := found[g.name], Ring) and word == "prefill"]
    return found | {g.name: _later(g, t, asked, met[g.name], random) for g, t in rings}


def _need(side: BoundSide, group: BoundGroup, asked: Request, met: list[GroupPair]) -> set[int]:
    """The block positions that have to be there."""
    if group.store != "tokens":
        return {0}
    tokens = asked.range_of(group.length)
    ranges = [one for m in met for one in needed(m.needs, *tokens, m.rows)]
    return {p for one in ranges for each in positions(side, group, *one) for p in each}


def _pool(
    word: str, side: BoundSide, groups: list[BoundGroup], asked: Request, need: Mapping[str, set[int]], random: Random
) -> IdPool:
    """Ids in no order: a few more than the groups have positions, or all of the side's pool."""
    least = sum(len(need[g.name]) for g in groups)
    if side.blocks is not None and side.blocks < least:
        said = f"{word}: the sample of {_said(asked)} needs {least} blocks, the pool has {side.blocks}"
        raise BadInput("Q021", said, "raise blocks=, or give fewer tokens")
    most = sum(blocks_of(side, g, asked.range_of(g.length)[1]) for g in groups)
    ids = list(range(most + most // 2 + 2 if side.blocks is None else side.blocks))
    random.shuffle(ids)
    return IdPool(iter(ids), len(ids) - least)


def _said(asked: Request) -> str:
    return f"tokens [{asked.tokens[0]}, {asked.tokens[1]})"


def _table(side: BoundSide, group: BoundGroup, asked: Request, need: set[int], pool: IdPool, random: Random) -> Table:
    if group.store != "tokens":
        return Slot(pool.draw(), asked.tokens[1])
    start = 0 if group.ring else random.choice((0, min(need, default=0)))
    end = blocks_of(side, group, asked.range_of(group.length)[1])
    wanted = [p in need or random.random() < 0.5 for p in range(start, end)]
    ids = tuple(_drawn(p in need, yes, pool) for p, yes in enumerate(wanted, start))
    return Ring(ids, asked.range_of(group.length)[1]) if group.ring else Ids(start, ids)


def _later(group: BoundGroup, ring: Ring, asked: Request, met: list[GroupPair], random: Random) -> Ring:
    """The ring after more tokens, as many at most as leave there what is needed."""
    ranges = [(first, m.rows) for m in met for first, _ in needed(m.needs, *asked.range_of(group.length), m.rows)]
    late = (n for n in range(group.ring) if all(oldest(ring.at + n, group.ring, rows) <= low for low, rows in ranges))
    return Ring(ring.ids, ring.at + random.choice([*late] or [0]))


def _drawn(needed: bool, wanted: bool, pool: IdPool) -> int | None:
    if needed:
        return pool.draw()
    return pool.extra() if wanted else None


def blocks_of(side: BoundSide, group: BoundGroup, end: int) -> int:
    """Block positions that tokens [0, end) take; one slot for a state."""
    if group.store != "tokens":
        return 1
    if group.ring:
        return group.ring // group.tokens
    return max((each.stop for each in positions(side, group, 0, end)), default=0)
