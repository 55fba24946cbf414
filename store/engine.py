"""What an engine does with a store: save the blocks of a request, find the longest prefix that is there, load it.

Either way a plan says where each byte of an object lies in the engine's pools; so what one mesh saved any other one
loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np

from kvplan.plan.block_tables import Slot, Table, Tables
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request, check
from kvplan.plan.types import Blocks, Interval, Pair, Plan, Runs, Side
from kvplan.runtime.errors import HandleError, LimitedError, RegisterError
from kvplan.runtime.memory.geometry import logical_blocks
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.transfer.demand import demand
from kvplan.store.carry import DECODE, PREFILL, RequestBodies, RunsKey, by_block, stored_nests
from kvplan.store.errors import StoreKeyError
from kvplan.store.keys import KEY_BYTES
from kvplan.store.layout import StoredLayout, Wanted, stored_layout, wanted
from kvplan.store.memory import EngineMemory, HostMemory, MakeTransport, TransportMemory
from kvplan.store.store import Store, StoredBlock

SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class StoreMoved:
    """Blocks of groups that were written or read, and the bytes that the plan moved."""

    blocks: int
    bytes: int


class StorePort:
    """One engine and one store, joined by a plan whose `role` side is stored.

    `engine` has the pools of all its workers, by number: others are refused (RegisterError). `revision` is of the
    weights, and of whatever else decides what a cache is and the plan does not know: no two checkpoints have one. So
    many `layers` make one object, 0 for all. `make` makes transports, which memory on the host does not need; they have
    `seconds` for each piece.
    """

    role, engine_role = "decode", "prefill"

    def __init__(
        self,
        store: Store,
        plan: Plan,
        engine: Sequence[Pool],
        *,
        revision: str,
        layers: int = 0,
        make: MakeTransport | None = None,
        seconds: float = SECONDS,
    ) -> None:
        _check_pools(engine, getattr(plan, self.engine_role))
        _check_number("layers", layers, 0, LimitedError)
        self._store, self._plan = store, plan
        self.layout: StoredLayout = stored_layout(plan, self.role, revision, layers)
        self._stored = PREFILL if self.role == "prefill" else DECODE
        parts = [part for of_group in self.layout.parts.values() for part in of_group]
        self._nests = {part.name: stored_nests(plan, self._stored, engine, part) for part in parts}
        self._sizes = _sizes(engine)
        self._memory: EngineMemory = TransportMemory(engine, make, seconds) if make else HostMemory(engine)
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._memory.close()

    def _bodies(self, tokens: Interval, tables: Tables) -> RequestBodies:
        """Where the objects of a request lie in the engine's memory, as if the store had a block for every position.

        Raises BadRequestError, HandleError.
        """
        if self._closed:
            raise HandleError("this end of a store is closed: make another one")
        stored = {group.name: _every_block(self.layout, group.name, tokens[1]) for group in self.layout.side.groups}
        sides = {self.role: stored, self.engine_role: tables}
        sizes = {self.role: dict[str, int](), self.engine_role: self._sizes}
        request = Request("stored", tokens, sides["prefill"], sides["decode"])
        asked = check(self._plan, request, sizes["prefill"], sizes["decode"])
        return RequestBodies(self._nests, self._runs(asked), self._memory)

    def _runs(self, asked: Request) -> dict[RunsKey, dict[int, Runs]]:
        """The runs of a request by stored block: workers of one shard ask for the same."""
        found: dict[RunsKey, dict[int, Runs]] = {}
        for number, worker in enumerate(self._plan.decode.workers):
            shards = {(read.pair, self._plan.prefill.workers[read.worker].shard) for read in self._plan.reads[number]}
            if all((*key, worker.shard) in found for key in shards):
                continue
            for key, runs in demand(self._plan, number, asked).runs.items():
                found[(*key, worker.shard)] = by_block(runs, self._stored)
        return found

    def _blocks(self, keys: Sequence[bytes], objects: Wanted, bodies: RequestBodies) -> list[StoredBlock]:
        """The blocks that are a request's objects, the first positions first."""
        found = [
            (position, StoredBlock(name, keys[position], self._until(position), ranges, partial(bodies.body, position)))
            for name, of_group in objects.items()
            for position, ranges in of_group.items()
        ]
        return [block for _, block in sorted(found, key=lambda one: one[0])]

    def _until(self, position: int) -> int:
        """The tokens up to the end of a block."""
        return (position + 1) * self.layout.tokens

    def _used(self, keys: Sequence[bytes], objects: Wanted) -> None:
        blocks = ((name, keys[position]) for name, of_group in objects.items() for position in of_group)
        self._store.use(self.layout, blocks)

    def _end(self, keys: Sequence[bytes]) -> int:
        """The tokens that keys stand for. Raises StoreKeyError."""
        for key in keys:
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise StoreKeyError(f"a key has {KEY_BYTES} bytes, got {key!r:.40}: make them with `block_keys`")
        return len(keys) * self.layout.tokens


class Saver(StorePort):
    """Saves what the workers of an engine hold; `engine` are their pools, by number."""

    def save(self, keys: Sequence[bytes], tables: Tables) -> StoreMoved:
        """Save the blocks of the tokens that `keys` stand for, as many as are not there; the engine's tables say where.

        Its states must stand after exactly these tokens. Raises BadRequestError, StoreKeyError, and what moving bytes
        and writing raise; then some blocks are saved, each of them whole.
        """
        tokens = 0, self._end(keys)
        bodies = self._bodies(tokens, tables)
        objects = wanted(self._plan.pairs, self.role, self.layout, tokens)
        missing = self._missing(keys, objects)
        self._store.write(self.layout, self._blocks(keys, missing, bodies))
        self._used(keys, objects)
        return StoreMoved(sum(map(len, missing.values())), bodies.bytes)

    def _missing(self, keys: Sequence[bytes], objects: Wanted) -> Wanted:
        return {
            name: {p: r for p, r in of.items() if not self._store.has(self.layout, name, keys[p], r)}
            for name, of in objects.items()
        }


class Loader(StorePort):
    """Loads into the memory of an engine's workers; `engine` are their pools, by number."""

    role, engine_role = "prefill", "decode"

    def __init__(self, store: Store, plan: Plan, engine: Sequence[Pool], **options: Any) -> None:
        """As StorePort says. Raises RegisterError where memory may not be written."""
        if not all(pool.writable for pool in engine):
            raise RegisterError("the memory of an engine that loads is read-only: pass writable arrays")
        super().__init__(store, plan, engine, **options)

    def match(self, keys: Sequence[bytes], first: int = 0) -> int:
        """How many of the first keys' blocks can be loaded by who has the first `first` tokens already.

        0 where that is no more than those. Raises StoreKeyError, and BadRequestError where `first` counts no tokens.
        """
        self._end(keys)
        _check_number("first", first, 0, BadRequestError)
        counts = range(self._reach(keys, first), first // self.layout.tokens, -1)
        return next((count for count in counts if self._there(keys, count, first)), 0)

    def load(self, keys: Sequence[bytes], tables: Tables, first: int = 0) -> StoreMoved:
        """Load tokens `first` to the end of the last key's block into the engine's blocks.

        Raises MissingObjectError, DamagedObjectError, ForeignObjectError or StoreFileError, BadRequestError,
        StoreKeyError, and what moving bytes raises; then the engine's blocks may hold anything.
        """
        tokens = first, self._end(keys)
        bodies = self._bodies(tokens, tables)
        objects = wanted(self._plan.pairs, self.role, self.layout, tokens)
        self._store.read(self.layout, self._blocks(keys, objects, bodies))
        self._used(keys, objects)
        return StoreMoved(sum(map(len, objects.values())), bodies.bytes)

    def _needs_all(self, pair: Pair) -> bool:
        """Whether a longer prefix needs of a pair all that a shorter one does."""
        return pair.needs.keep is None and pair.needs.chunk is None and not self.layout.is_state(pair.prefill)

    def _reach(self, keys: Sequence[bytes], first: int) -> int:
        """The blocks before the first one that is missing of what needs all tokens: no longer prefix is there."""
        tokens = self.layout.tokens
        for name in {pair.prefill for pair in self._plan.pairs if self._needs_all(pair)}:
            for position in range(first // tokens, len(keys)):
                block = max(first, position * tokens), (position + 1) * tokens
                if not self._store.has(self.layout, name, keys[position], (block,)):
                    keys = keys[:position]
                    break
        return len(keys)

    def _there(self, keys: Sequence[bytes], count: int, first: int) -> bool:
        """Whether what needs not all tokens is there for a prefix of so many blocks."""
        some = [pair for pair in self._plan.pairs if not self._needs_all(pair)]
        objects = wanted(some, self.role, self.layout, (first, count * self.layout.tokens))
        return all(
            self._store.has(self.layout, name, keys[position], ranges)
            for name, of_group in objects.items()
            for position, ranges in of_group.items()
        )


def _check_pools(engine: Sequence[Pool], side: Side) -> None:
    """Raises RegisterError unless these are the pools of all workers of a side, by number."""
    if len(engine) != len(side.workers):
        raise RegisterError(
            f"{side.key} has {len(side.workers)} workers, and there are {len(engine)} pools: give one each"
        )
    for worker, pool in enumerate(engine):
        pool.check(worker, side.digest, f"worker {worker}")


def _check_number(name: str, value: object, least: int, error: type[KvplanError]) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise error(f"{name} is {value!r:.40}: give a whole number from {least}")


def _every_block(layout: StoredLayout, group: str, end: int) -> Table:
    """A table of a side in which block n is at position n. A state's slot is its position, too."""
    count = end // layout.tokens
    return Slot(max(count - 1, 0), end) if layout.is_state(group) else Blocks(0, np.arange(count))


def _sizes(engine: Sequence[Pool]) -> dict[str, int]:
    """Logical blocks by group that every worker has."""
    sizes: dict[str, int] = {}
    for pool in engine:
        for name, count in logical_blocks(pool.geometry, pool.side, pool.worker).items():
            sizes[name] = min(count, sizes.get(name, count))
    return sizes
