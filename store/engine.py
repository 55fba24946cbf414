"""An engine's calls of a store: save the blocks of a request, find the longest stored prefix, load it.

A plan maps each byte of an object to the engine's pools, so any mesh can load what another one saved.
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
from kvplan.plan.types import Blocks, GroupPair, Interval, Plan, Runs, Side
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
    """The number of groups' blocks that were written or read, and the bytes that the plan moved."""

    blocks: int
    bytes: int


class StorePort:
    """A connection between one engine and one store, by a plan whose `role` side is stored.

    `engine` has the pools of all its workers, by number; others raise RegisterError. `revision` identifies the weights,
    and all else that decides a cache's content and is not in the plan: two checkpoints never share one. An object has
    so many `layers`, 0 for all. `make` makes transports, which host memory does not need; they have `seconds` for each
    piece.
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
        """Return the bodies of a request's objects in the engine's memory, as if every position had a stored block.

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
        """Return the runs of a request by stored block, once for all workers of a shard, which need the same."""
        found: dict[RunsKey, dict[int, Runs]] = {}
        for number, worker in enumerate(self._plan.decode.workers):
            shards = {(read.groups, self._plan.prefill.workers[read.worker].shard) for read in self._plan.reads[number]}
            if all((*key, worker.shard) in found for key in shards):
                continue
            for key, runs in demand(self._plan, number, asked).runs.items():
                found[(*key, worker.shard)] = by_block(runs, self._stored)
        return found

    def _blocks(self, keys: Sequence[bytes], objects: Wanted, bodies: RequestBodies) -> list[StoredBlock]:
        """Return the stored blocks of a request's objects, in order of their positions."""
        found = [
            (position, StoredBlock(name, keys[position], self._until(position), ranges, partial(bodies.body, position)))
            for name, of_group in objects.items()
            for position, ranges in of_group.items()
        ]
        return [block for _, block in sorted(found, key=lambda one: one[0])]

    def _until(self, position: int) -> int:
        """Return the number of tokens up to the end of a block."""
        return (position + 1) * self.layout.tokens

    def _mark_used(self, keys: Sequence[bytes], objects: Wanted) -> None:
        blocks = ((name, keys[position]) for name, of_group in objects.items() for position in of_group)
        self._store.use(self.layout, blocks)

    def _count_tokens(self, keys: Sequence[bytes]) -> int:
        """Return the number of tokens that keys stand for. Raises StoreKeyError."""
        for key in keys:
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise StoreKeyError(f"a key has {KEY_BYTES} bytes, got {key!r:.40}: make them with `block_keys`")
        return len(keys) * self.layout.tokens


class Saver(StorePort):
    """A port that saves blocks of an engine's workers."""

    def save(self, keys: Sequence[bytes], tables: Tables) -> StoreMoved:
        """Save those blocks of the tokens that `keys` stand for that the store lacks, from the blocks in `tables`.

        The engine's states must be those after exactly these tokens. Raises BadRequestError, StoreKeyError, and the
        errors of moving and writing bytes; then some blocks are saved, but only whole ones.
        """
        tokens = 0, self._count_tokens(keys)
        bodies = self._bodies(tokens, tables)
        objects = wanted(self._plan.group_pairs, self.role, self.layout, tokens)
        missing = self._missing(keys, objects)
        self._store.write(self.layout, self._blocks(keys, missing, bodies))
        self._mark_used(keys, objects)
        return StoreMoved(sum(map(len, missing.values())), bodies.bytes)

    def _missing(self, keys: Sequence[bytes], objects: Wanted) -> Wanted:
        return {
            name: {p: r for p, r in of.items() if not self._store.has(self.layout, name, keys[p], r)}
            for name, of in objects.items()
        }


class Loader(StorePort):
    """A port that loads blocks into the memory of an engine's workers."""

    role, engine_role = "prefill", "decode"

    def __init__(self, store: Store, plan: Plan, engine: Sequence[Pool], **options: Any) -> None:
        """Take the arguments of StorePort. Raises RegisterError if memory is read-only."""
        if not all(pool.writable for pool in engine):
            raise RegisterError("the memory of an engine that loads is read-only: pass writable arrays")
        super().__init__(store, plan, engine, **options)

    def match(self, keys: Sequence[bytes], first: int = 0) -> int:
        """Return how many of the first keys' blocks can be loaded by an engine that already has `first` tokens.

        Return 0 if these are no more tokens than it has. Raises StoreKeyError, and BadRequestError for an invalid
        `first`.
        """
        self._count_tokens(keys)
        _check_number("first", first, 0, BadRequestError)
        counts = range(self._longest_prefix(keys, first), first // self.layout.tokens, -1)
        return next((count for count in counts if self._has_rest(keys, count, first)), 0)

    def load(self, keys: Sequence[bytes], tables: Tables, first: int = 0) -> StoreMoved:
        """Load tokens from `first` to the end of the last key's block into the engine's blocks.

        Raises MissingObjectError, DamagedObjectError, ForeignObjectError or StoreFileError, BadRequestError,
        StoreKeyError, and the errors of moving bytes; then the engine's blocks may hold anything.
        """
        tokens = first, self._count_tokens(keys)
        bodies = self._bodies(tokens, tables)
        objects = wanted(self._plan.group_pairs, self.role, self.layout, tokens)
        self._store.read(self.layout, self._blocks(keys, objects, bodies))
        self._mark_used(keys, objects)
        return StoreMoved(sum(map(len, objects.values())), bodies.bytes)

    def _needs_all(self, pair: GroupPair) -> bool:
        """Return whether a longer prefix needs all tokens of a pair that a shorter one needs."""
        return pair.needs.keep is None and pair.needs.chunk is None and not self.layout.is_state(pair.prefill)

    def _longest_prefix(self, keys: Sequence[bytes], first: int) -> int:
        """Return the longest possible prefix in blocks: those before the first one missing in groups that need all."""
        tokens = self.layout.tokens
        for name in {pair.prefill for pair in self._plan.group_pairs if self._needs_all(pair)}:
            for position in range(first // tokens, len(keys)):
                block = max(first, position * tokens), (position + 1) * tokens
                if not self._store.has(self.layout, name, keys[position], (block,)):
                    keys = keys[:position]
                    break
        return len(keys)

    def _has_rest(self, keys: Sequence[bytes], count: int, first: int) -> bool:
        """Return whether the store has a prefix of `count` blocks in the groups that do not need all tokens."""
        some = [pair for pair in self._plan.group_pairs if not self._needs_all(pair)]
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
    """Return a table in which block n is at position n. A state's slot is its position."""
    count = end // layout.tokens
    return Slot(max(count - 1, 0), end) if layout.is_state(group) else Blocks(0, np.arange(count))


def _sizes(engine: Sequence[Pool]) -> dict[str, int]:
    """Return the number of logical blocks by group that every worker has."""
    sizes: dict[str, int] = {}
    for pool in engine:
        for name, count in logical_blocks(pool.geometry, pool.side, pool.worker).items():
            sizes[name] = min(count, sizes.get(name, count))
    return sizes
