"""Make up a request for a pair of sides: every table that the token range needs, block ids in random order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.request import NAME, MetGroups, groups_of, met
from kvplan.compiler.errors import BadInput
from kvplan.plan.block_tables import Ring, Slot, Table, block_ids, positions
from kvplan.plan.request import Request
from kvplan.plan.types import ALL, CONTEXT, Blocks, Group, Interval, Needs

SHORT = 512  # tokens of windows and chunks that a sample reaches from its beginning
FIRST, LEAST = 3, 100
LARGE = 1 << 20


@dataclass(slots=True)
class IdPool:
    """Block ids that the groups of one arena draw in turn, each once; `spare` of them are not needed by any group."""

    ids: Iterator[int]
    spare: int

    def draw(self) -> int:
        return next(self.ids)

    def extra(self) -> int | None:
        """Return an id that no group needs, None if there are no more."""
        self.spare -= 1
        return next(self.ids) if self.spare >= 0 else None


def sample_range(prefill: BoundSide, decode: BoundSide) -> tuple[int, int]:
    """Return a range that begins and ends inside blocks of both sides and spans at least one whole block.

    Windows and chunks of up to 512 tokens exclude some of it. The range lies around a multiple of a longer chunk, which
    then excludes some, too.
    """
    sides, needs = (prefill, decode), [cache.needs for cache in decode.caches]
    block = max((g.tokens * s.token_shards for s in sides for g in s.groups), default=0)
    cut = [n.keep + n.sink + 1 + min(block, LEAST) for n in needs if n.keep is not None and n.keep < SHORT]
    cut += [n.chunk + n.chunk // 2 + n.sink for n in needs if n.chunk is not None and n.chunk <= SHORT]
    end = max(LEAST, block * 5 // 2 - FIRST, *(FIRST + each for each in cut))
    chunks = [n.chunk for n in needs if n.chunk is not None]
    far = max((chunk for chunk in chunks if chunk > SHORT), default=0)
    shift = max(0, -(-end // 2 // far) * far - end // 2) if far else 0
    ragged = [*chunks, *(n.whole for n in needs if n.whole > 1)]
    inside = (n for n in range(LEAST) if all((end + shift + n) % each for each in ragged))
    end += next(inside, 0)
    return FIRST + shift, end + shift


def not_reached(side: BoundSide, tokens: tuple[int, int]) -> dict[str, int]:
    """Return caches that need all of [first, end) despite a window or chunk, each with an end that helps."""
    caches = {cache.name: cache.needs for cache in side.caches if cache.needs != ALL and cache.length == CONTEXT}
    return {name: _leaving(needs) for name, needs in caches.items() if _whole(needs, *tokens)}


def _whole(needs: Needs, first: int, end: int) -> bool:
    return sum(stop - start for start, stop in needs.ranges(first, end)) == needs.stop(end) - first


def _leaving(needs: Needs) -> int:
    """Return the first end at which some of the tokens from 0 are left out, and a little more."""
    kept = [n for n in (needs.keep, needs.chunk) if n is not None]
    return next(end for end in count(min(kept) + needs.sink + LEAST) if not _whole(needs, 0, end))


def sample_request(
    prefill: BoundSide,
    decode: BoundSide,
    tokens: tuple[int, int],
    seed: int = 0,
    lengths: Mapping[str, tuple[int, int]] | None = None,
) -> Request:
    """Make tables for `tokens` = [first needed, end) on both sides. The same seed gives the same ids.

    Caches with a length of their own get `lengths`, by name, or the context's. Tables begin at position 0 or at the
    first needed position; blocks that are not needed may be missing. Raises BadInput (Q021) if a side's pool has
    fewer blocks than the sample needs.
    """
    random = Random(seed)
    own = {g.length: tokens for g in decode.groups if g.length != CONTEXT} | dict(lengths or {})
    asked = Request(NAME, tokens, {}, {}, own)
    pairs = met(prefill, decode)
    theirs = {g.name: [m for m in pairs if m.prefill == g.name] for g in prefill.groups}
    ours = {g.name: [m for m in pairs if m.decode == g.name] for g in decode.groups}
    tables = _tables("prefill", prefill, asked, theirs, random), _tables("decode", decode, asked, ours, random)
    return Request(NAME, tokens, *tables, own)


Met = Mapping[str, list[MetGroups]]


def _tables(word: str, side: BoundSide, asked: Request, met: Met, random: Random) -> dict[str, Table]:
    groups = groups_of(side)
    need = {group.name: _needed_positions(group, asked, met[group.name]) for group in groups}
    arenas = {group.arena: [other for other in groups if other.arena == group.arena] for group in groups}
    pools = {arena: _pool(word, side, arenas[arena], asked, need, random) for arena in sorted(arenas)}
    tables = {group.name: _table(group, asked, need[group.name], pools[group.arena], random) for group in groups}
    rings = [(group, t) for group in groups if isinstance(t := tables[group.name], Ring) and word == "prefill"]
    return tables | {group.name: _later(group, ring, asked, met[group.name], random) for group, ring in rings}


def _range(asked: Request, group: Group) -> Interval:
    """Return the tokens that count for a group; none for the length of a cache that decode lacks."""
    return asked.tokens if group.length == CONTEXT else asked.lengths.get(group.length, (0, 0))


def _positions(group: Group, tokens: Interval) -> set[int]:
    """Return the block positions of tokens [first, end), on any worker."""
    return {p for shard in range(group.shards) for each in positions(group, tokens, shard) for p in each}


def _needed_positions(group: Group, asked: Request, met: list[MetGroups]) -> set[int]:
    """Return the block positions that must be present."""
    if group.store != "tokens":
        return {0}
    ranges = [tokens for pair in met for tokens in pair.needs.ranges(*_range(asked, group), pair.rows)]
    return {position for tokens in ranges for position in _positions(group, tokens)}


def _pool(
    word: str, side: BoundSide, groups: list[Group], asked: Request, need: Mapping[str, set[int]], random: Random
) -> IdPool:
    """Return ids in random order: a few more than the groups have positions, or all of the side's pool."""
    least = sum(len(need[group.name]) for group in groups)
    if side.blocks is not None and side.blocks < least:
        first, end = asked.tokens
        message = f"{word}: the sample of tokens [{first}, {end}) needs {least} blocks, the pool has {side.blocks}"
        raise BadInput("Q021", message, "raise blocks=, or give fewer tokens")
    most = sum(_count(group, _range(asked, group)[1]) for group in groups)
    size = most + most // 2 + 2 if side.blocks is None else side.blocks
    if size > LARGE:
        # Sample a pool that is much larger than needed, because all its ids might not fit into memory.
        ids = random.sample(range(size), min(size, least + most))
    else:
        ids = list(range(size))
        random.shuffle(ids)
    return IdPool(iter(ids), len(ids) - least)


def _table(group: Group, asked: Request, need: set[int], pool: IdPool, random: Random) -> Table:
    if group.store != "tokens":
        return Slot(pool.draw(), asked.tokens[1])
    end = _range(asked, group)[1]
    start = 0 if group.ring else random.choice((0, min(need, default=0)))
    wanted = [p in need or random.random() < 0.5 for p in range(start, _count(group, end))]
    ids = block_ids(_drawn(p in need, yes, pool) for p, yes in enumerate(wanted, start))
    return Ring(ids, end) if group.ring else Blocks(start, ids)


def _later(group: Group, ring: Ring, asked: Request, met: list[MetGroups], random: Random) -> Ring:
    """Return the ring after more tokens, at most as many as leave the needed ones in it."""
    needed = [(first, m.rows) for m in met for first, _ in m.needs.ranges(*_range(asked, group), m.rows)]
    late = (n for n in range(group.ring) if all(_oldest(ring.at + n, group, rows) <= low for low, rows in needed))
    return Ring(ring.ids, ring.at + random.choice([*late] or [0]))


def _oldest(at: int, group: Group, rows: int) -> int:
    """Return the first token still in a ring that stands after `at`: its row is a ring's length before the last row."""
    last_row = (at - 1) // rows
    return (last_row + 1) * rows - group.ring


def _drawn(needed: bool, wanted: bool, pool: IdPool) -> int | None:
    if needed:
        return pool.draw()
    return pool.extra() if wanted else None


def _count(group: Group, end: int) -> int:
    """Return the number of block positions that tokens [0, end) take; one slot for a state."""
    if group.store != "tokens":
        return 1
    return group.ring // group.tokens if group.ring else max(_positions(group, (0, end)), default=-1) + 1
