"""The demo's request: a range of tokens of every length that caches have, and every worker's share of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvplan.plan.types import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kvplan.compiler.api import Compiled
    from kvplan.compiler.bound import BoundCache, BoundSide
    from kvplan.plan.block_tables import Tables
    from kvplan.plan.request import Request

    Ranges = Mapping[str, tuple[int, int]]

FIRST, LEAST_TOKENS, MOST_KEPT = 24, 1000, 2048
SEED = 1


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
    """Return the ranges that the demo moves, by the name of their length. The context is ragged at both ends."""
    caches, sides = compiled.decode.caches, (compiled.prefill, compiled.decode)
    # The tokens of the largest block, over all workers that take turns.
    block = max(group.tokens * (side.token_shards if group.shared else 1) for side in sides for group in side.groups)
    first, end = _context(max(LEAST_TOKENS, block * 6 // 5), caches)
    own = sorted({cache.length for cache in caches} - {CONTEXT})
    return {CONTEXT: (first, end)} | {name: (0, (end - first) * 3 // (4 + i)) for i, name in enumerate(own)}


def _context(least: int, caches: Iterable[BoundCache]) -> tuple[int, int]:
    """Return a range of `least` or more tokens that leaves out some of every chunk, and of windows up to MOST_KEPT."""
    windows = [cache.needs.keep + cache.needs.sink for cache in caches if cache.needs.keep is not None]
    length = max([least, *((FIRST + kept) * 6 // 5 for kept in windows if kept <= MOST_KEPT)])
    chunks = {cache.needs.chunk for cache in caches if cache.needs.chunk is not None}
    longest = max(chunks, default=0)
    # The longest chunk begins in the middle of the range, unless one already does.
    shift = -(-length // 2 // longest) * longest - length // 2 if longest >= length else 0
    rows = {tensor.tokens_per_row for cache in caches for tensor in cache.tensors}
    wholes = {cache.needs.whole for cache in caches}
    return FIRST + shift, _inside(length + shift, chunks | rows | wholes)


def _inside(end: int, cuts: Collection[int]) -> int:
    """Return the first token from `end` on that is well inside all chunks and rows, so that some of each is left."""
    least = {cut: min(cut, 64) // 2 for cut in cuts}
    return next((t for t in range(end, end + LEAST_TOKENS) if all(t % cut >= few for cut, few in least.items())), end)


def shares(compiled: Compiled) -> tuple[list[RequestShare], list[RequestShare]]:
    """Return the request's shares of all prefill and decode workers."""
    from kvplan.compiler.check.sample import sample_request

    asked, sides = ranges(compiled), (compiled.prefill, compiled.decode)
    lengths = {length: tokens for length, tokens in asked.items() if length != CONTEXT}
    common = *sides, sample_request(*sides, asked[CONTEXT], SEED, lengths), frozenset(compiled.plan.skipped)
    prefill = [RequestShare(*common, "prefill", worker.number) for worker in compiled.prefill.workers]
    decode = [RequestShare(*common, "decode", worker.number) for worker in compiled.decode.workers]
    return prefill, decode
