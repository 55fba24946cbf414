"""What the demo asks for: a range of tokens of every length that caches go by, and tables of blocks on both sides.

Blocks are where an engine would have them, in no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from kvplan.cli.demo.memory import SPARE
from kvplan.plan.types import CONTEXT, Blocks, Ints

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kvplan.compiler.api import Compiled
    from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide
    from kvplan.compiler.check.labels import Mask
    from kvplan.plan.block_tables import Table, Tables
    from kvplan.plan.request import Request

    Ranges = Mapping[str, tuple[int, int]]

FIRST, LEAST_TOKENS, MOST_KEPT = 24, 1000, 2048
PREFILL_SEED, DECODE_SEED = 11, 12


@dataclass(frozen=True, slots=True)
class RequestShare:
    """Worker `number` of one role in a request on a pair of sides; `skipped` caches do not move."""

    prefill: BoundSide
    decode: BoundSide
    request: Request
    skipped: frozenset[str]
    role: Literal["prefill", "decode"]
    number: int

    @property
    def side(self) -> BoundSide:
        return self.prefill if self.role == "prefill" else self.decode

    @property
    def tables(self) -> Tables:
        return self.request.prefill if self.role == "prefill" else self.request.decode


def ranges(compiled: Compiled) -> Ranges:
    """The ranges that the demo moves, by the name of their length. The context is ragged at both ends."""
    caches, sides = compiled.decode.caches, (compiled.prefill, compiled.decode)
    # The tokens of the largest block, of all workers that take turns.
    block = max(group.tokens * (side.token_shards if group.shared else 1) for side in sides for group in side.groups)
    first, end = _context(max(LEAST_TOKENS, block * 6 // 5), caches)
    own = sorted({cache.length for cache in caches} - {CONTEXT})
    return {CONTEXT: (first, end)} | {name: (0, (end - first) * 3 // (4 + i)) for i, name in enumerate(own)}


def _context(least: int, caches: Iterable[BoundCache]) -> tuple[int, int]:
    """A range of `least` tokens or more that leaves out some of every chunk, and of windows up to MOST_KEPT tokens."""
    windows = [cache.needs.keep + cache.needs.sink for cache in caches if cache.needs.keep is not None]
    length = max([least, *((FIRST + kept) * 6 // 5 for kept in windows if kept <= MOST_KEPT)])
    chunks = {cache.needs.chunk for cache in caches if cache.needs.chunk is not None}
    longest = max(chunks, default=0)
    # The longest chunk begins in the middle of the range, unless one does already.
    shift = -(-length // 2 // longest) * longest - length // 2 if longest >= length else 0
    rows = {tensor.tokens_per_row for cache in caches for tensor in cache.tensors}
    return FIRST + shift, _inside(length + shift, chunks | rows)


def _inside(end: int, cuts: Collection[int]) -> int:
    """The first token from `end` on that is well inside all chunks and rows, so that something of them is left."""
    least = {cut: min(cut, 64) // 2 for cut in cuts}
    return next((t for t in range(end, end + LEAST_TOKENS) if all(t % cut >= few for cut, few in least.items())), end)


def shares(compiled: Compiled) -> tuple[list[RequestShare], list[RequestShare]]:
    """What every prefill and decode worker has to know of the request."""
    from kvplan.runtime import Request

    asked, sides = ranges(compiled), (compiled.prefill, compiled.decode)
    tables = deal(compiled.prefill, asked, PREFILL_SEED), deal(compiled.decode, asked, DECODE_SEED, early=True)
    lengths = {length: tokens for length, tokens in asked.items() if length != CONTEXT}
    common = *sides, Request("demo", asked[CONTEXT], *tables, lengths), frozenset(compiled.plan.skipped)
    prefill = [RequestShare(*common, "prefill", worker.number) for worker in compiled.prefill.workers]
    decode = [RequestShare(*common, "decode", worker.number) for worker in compiled.decode.workers]
    return prefill, decode


def deal(side: BoundSide, asked: Ranges, seed: int, early: bool = False) -> dict[str, Table]:
    """A table per group in no order: ids are shared by the groups of an arena, none is dealt twice.

    Blocks are there where the side's own caches need a token of them; with `early` the block before each, too.
    """
    random = np.random.default_rng(seed)
    tables: dict[str, Table] = {}
    for arena in sorted({group.arena for group in side.groups}):
        groups = [group for group in side.groups if group.arena == arena]
        needed = [_needed(side, group, asked, early) for group in groups]
        counts = [int(there.sum()) for _, there in needed]
        drawn = np.split(random.permutation(sum(counts) + SPARE), np.cumsum(counts))
        for group, (first, there), ids in zip(groups, needed, drawn, strict=False):
            dealt = np.full(there.size, -1, np.int64)
            dealt[there] = ids
            tables[group.name] = _table(group, Blocks(first, dealt), asked[group.length][1])
    return tables


def _table(group: BoundGroup, dealt: Blocks, end: int) -> Table:
    """What was dealt, as the runtime wants it of this sort of group."""
    from kvplan.runtime import Ring, Slot

    if group.store == "state":
        return Slot(int(dealt.ids[0]), end)
    return Ring(dealt.ids, end) if group.ring else dealt


def _needed(side: BoundSide, group: BoundGroup, asked: Ranges, early: bool) -> tuple[int, Mask]:
    """The first position of a table, and from it on which blocks must be there: all of a ring, the slot of a state."""
    if group.store == "state" or group.ring:
        return 0, np.ones(group.ring // group.tokens if group.ring else 1, np.bool_)
    token = np.arange(*asked[group.length])
    # The place of tokens among those of the worker whose turn they are.
    turn = side.interleave_tokens
    block = (token // (side.token_shards * turn) * turn + token % turn) // group.tokens
    caches = [cache for cache in side.caches if any(cache.name == name for name, _ in group.members)]
    wanted = block[np.any([_moves(cache, asked, token) for cache in caches], axis=0)]
    position = np.arange(block.min(), block.max() + 1)
    return int(block.min()), np.isin(position, wanted) | np.isin(position + early, wanted)


def _moves(cache: BoundCache, asked: Ranges, token: Ints) -> Mask:
    """Which tokens a cache needs, or are the last one of a row that it needs."""
    from kvplan.compiler.check.labels import NeededTokens

    need = NeededTokens(cache.needs, *asked[cache.length])
    rows = {1, *(tensor.tokens_per_row for tensor in cache.tensors)}
    moves: Mask = np.any([need.test(token, n) & ((token + 1) % n == 0) for n in rows], axis=0)
    return moves
