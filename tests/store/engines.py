"""Engines with real memory on either side of a store: every byte follows from its coordinate, by naive indexing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.end_to_end.memory import EMPTY, PADDED, Memory, allocate, ids_of, stamp, wrong
from tests.end_to_end.worlds import runtime_request
from tests.paths import TESTS
from tests.runtime.helpers.memories import declared

from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.check.labels import atlas
from kvplan.compiler.check.sample import sample_request
from kvplan.dsl.library import Library, load
from kvplan.plan.request import Request
from kvplan.runtime import views
from kvplan.runtime.memory.register import Pool
from kvplan.store.engine import Loader, Saver
from kvplan.store.keys import block_keys
from kvplan.store.store import Store

TOYS = TESTS / "compiler" / "toys"
BLOCK = 16
REVISION = "tested"
# Tokens that have labels, the same on every side: more than any table has room for.
ROOM = 2048


@cache
def library() -> Library:
    return load(layouts=(TOYS,))


@cache
def compiled(model: str, prefill: str, decode: str) -> Compiled:
    return compile_pair(library(), model, prefill, decode)


def stored(block: int = BLOCK, more: str = "") -> str:
    return f"engine=store,block={block}{more}"


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's workers, the request that they hold or want, and the plan to the store or from it."""

    made: Compiled
    request: Request
    memory: tuple[Memory, ...]

    @property
    def pools(self) -> list[Pool]:
        side = self.made.plan.prefill if self.memory[0].side is self.made.prefill else self.made.plan.decode
        return [views(side, each.number, declared(side, each.number, each.planes)) for each in self.memory]

    def wrong(self) -> list[str]:
        """The faults in the memory of an engine that has loaded."""
        regions = atlas(self.memory[0].side, ROOM)
        skipped = self.made.plan.skipped
        return [text for memory in self.memory for text in wrong(memory, regions, self.request, skipped)]


def tokens_of(count: int, seed: int = 0) -> list[int]:
    return [(7 * n + seed) % 50_000 for n in range(count)]


def keys_of(count: int, block: int = BLOCK, seed: int = 0) -> tuple[bytes, ...]:
    """Keys of `count` blocks."""
    return block_keys(tokens_of(count * block, seed), block)


def full(model: str, side: str, count: int, block: int = BLOCK, more: str = "", seed: int = 0) -> Engine:
    """An engine that holds `count` blocks of a request."""
    made = compiled(model, side, stored(block, more))
    request = sample_request(made.prefill, made.decode, (0, count * block), seed)
    memory = tuple(allocate(made.prefill, n, ids_of(request.prefill), PADDED) for n in range(len(made.prefill.workers)))
    regions = atlas(made.prefill, ROOM)
    for each in memory:
        stamp(each, regions, request.prefill)
    return Engine(made, request, memory)


def empty(model: str, side: str, tokens: tuple[int, int], block: int = BLOCK, more: str = "", seed: int = 1) -> Engine:
    """An engine that wants `tokens` of a request."""
    made = compiled(model, stored(block, more), side)
    request = sample_request(made.prefill, made.decode, tokens, seed)
    memory = tuple(allocate(made.decode, n, ids_of(request.decode), EMPTY) for n in range(len(made.decode.workers)))
    return Engine(made, request, memory)


def save(store: Store, engine: Engine, keys: Sequence[bytes], **options: Any) -> int:
    """Save a request; returns the blocks of groups that were written."""
    saver = Saver(store, engine.made.plan, engine.pools, **{"revision": REVISION, **options})
    try:
        return saver.save(keys, runtime_request(engine.request, "saved").prefill).blocks
    finally:
        saver.close()


def load_into(store: Store, engine: Engine, keys: Sequence[bytes], **options: Any) -> int:
    """Load what matches; returns the blocks of the prefix."""
    loader = Loader(store, engine.made.plan, engine.pools, **{"revision": REVISION, **options})
    first = engine.request.tokens[0]
    try:
        count = loader.match(keys, first)
        loader.load(keys[:count], runtime_request(engine.request, "loaded").decode, first)
        return count
    finally:
        loader.close()
