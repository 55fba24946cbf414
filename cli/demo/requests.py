"""What the demo asks for: a range of tokens of every length that caches go by, and tables of blocks on both sides."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kvplan.cli.demo.block_tables import deal
from kvplan.cli.demo.rows import Ranges, RequestShare
from kvplan.plan.types import CONTEXT, Blocks

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled
    from kvplan.compiler.bound import BoundCache, BoundGroup
    from kvplan.plan.block_tables import Table
    from kvplan.plan.request import Request, Tables

FIRST, LEAST_TOKENS, MOST_KEPT = 24, 1000, 2048
PREFILL_SEED, DECODE_SEED = 11, 12


def ranges(compiled: Compiled) -> Ranges:
    """The ranges that the demo moves, by the name of their length. The context is ragged at both ends."""
    caches = compiled.decode.caches
    first, end = _context(max(LEAST_TOKENS, _largest(compiled) * 6 // 5), caches)
    own = sorted({cache.length for cache in caches} - {CONTEXT})
    return {CONTEXT: (first, end)} | {name: (0, (end - first) * 3 // (4 + i)) for i, name in enumerate(own)}


def _context(least: int, caches: Iterable[BoundCache]) -> tuple[int, int]:
    """A range of `least` tokens or more that leaves out some of every chunk, and of windows up to MOST_KEPT tokens."""
    length = max([least, *(kept * 6 // 5 for kept in _windows(caches))])
    chunks = {cache.needs.chunk for cache in caches if cache.needs.chunk is not None}
    shift = _shift(length, max(chunks, default=0))
    rows = {tensor.tokens_per_row for cache in caches for tensor in cache.tensors}
    return FIRST + shift, _inside(length + shift, chunks | rows)


def _inside(end: int, cuts: Collection[int]) -> int:
    """The first token from `end` on that is well inside all chunks and rows, so that something of them is left."""
    least = {cut: min(cut, 64) // 2 for cut in cuts}
    return next((t for t in range(end, end + LEAST_TOKENS) if all(t % cut >= few for cut, few in least.items())), end)


def _largest(compiled: Compiled) -> int:
    """The tokens of the largest block, of all workers that take turns."""
    sides = compiled.prefill, compiled.decode
    return max(group.tokens * (side.token_shards if group.shared else 1) for side in sides for group in side.groups)


def _windows(caches: Iterable[BoundCache]) -> list[int]:
    """The tokens of all windows that are short enough to be left behind, sinks and the range's beginning among them."""
    kept = [cache.needs.keep + cache.needs.sink for cache in caches if cache.needs.keep is not None]
    return [FIRST + each for each in kept if each <= MOST_KEPT]


def _shift(end: int, chunk: int) -> int:
    """How far on the range lies if the longest chunk is to begin in the middle of it; 0 where one does already."""
    return -(-end // 2 // chunk) * chunk - end // 2 if chunk >= end else 0


def shares(compiled: Compiled, asked: Ranges) -> tuple[list[RequestShare], list[RequestShare]]:
    """What every prefill and decode worker has to know of the request."""
    prefill, decode = compiled.prefill, compiled.decode
    skipped = frozenset(compiled.plan.skipped)
    theirs, ours = deal(prefill, asked, PREFILL_SEED), deal(decode, asked, DECODE_SEED, early=True)
    return [RequestShare(prefill, worker.number, theirs, asked, skipped) for worker in prefill.workers], [
        RequestShare(decode, worker.number, ours, asked, skipped) for worker in decode.workers
    ]


def request(name: str, prefill: RequestShare, decode: RequestShare) -> Request:
    """The request that moves what `decode` asks for, for every worker of the two sides."""
    from kvplan.runtime import Request

    lengths = {length: asked for length, asked in decode.asked.items() if length != CONTEXT}
    return Request(name, decode.asked[CONTEXT], _tables(prefill), _tables(decode), lengths)


def _tables(share: RequestShare) -> Tables:
    return {group.name: _table(group, share.tables[group.name], share.asked) for group in share.side.groups}


def _table(group: BoundGroup, dealt: Blocks, asked: Ranges) -> Table:
    """What was dealt, as the runtime wants it of this sort of group."""
    from kvplan.runtime import Ring, Slot

    end = asked[group.length][1]
    if group.store == "state":
        return Slot(int(dealt.ids[0]), end)
    return Ring(dealt.ids, end) if group.ring else dealt
