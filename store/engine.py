"""What an engine does with a store: save the blocks of a request, find the longest prefix that is there, load it.

Either way a plan moves the bytes, between the engine's pools and a few blocks of memory in which they lie as in the
store; so what one mesh saved any other one loads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from itertools import cycle, islice
from numbers import Integral
from typing import TypeVar

import numpy as np

from kvplan.plan.block_tables import Slot, Table, Tables
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request, check
from kvplan.plan.spans import pair_named, pick
from kvplan.plan.types import Blocks, Interval, Ints, Pair, Plan, Runs, Side
from kvplan.runtime.errors import HandleError, LimitedError, RegisterError
from kvplan.runtime.memory.geometry import logical_blocks
from kvplan.runtime.memory.register import Pool, views
from kvplan.runtime.transfer.demand import demand
from kvplan.store.carry import LocalCarrier, MakeTransport, WorkerRuns
from kvplan.store.errors import StoreKeyError
from kvplan.store.header import Bytes
from kvplan.store.keys import KEY_BYTES
from kvplan.store.layout import StoredLayout, Wanted, stored_layout, wanted
from kvplan.store.store import Store, StoredBlock

BLOCKS, SECONDS = 8, 600.0
# Windows that the memory in between is cut into: while one is moved others are read, or written.
WINDOWS = 4
# Objects that are read at once.
READERS = 4
Position = TypeVar("Position", int, Ints)


@dataclass(frozen=True, slots=True)
class StoreMoved:
    """Blocks of groups that were written or read, and the bytes that the plan moved."""

    blocks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreWindow:
    """Objects of some positions: position `first` lies in block `place` of memory, the next one behind it."""

    first: int
    place: int
    objects: Wanted

    def place_of(self, position: Position) -> Position:
        """The block of memory, or the blocks, in which a position or several lie."""
        return position - self.first + self.place


class StorePort:
    """One engine and one store, joined by a plan whose `role` side is stored; `blocks` of memory lie in between.

    `engine` has the pools of all its workers, by number: others are refused (RegisterError).
    One thread uses it at a time; others of its own read and write objects meanwhile. `revision` is of the weights, and
    of whatever else decides what a cache is and the plan does not know: no two checkpoints have one. So many `layers`
    make one object, 0 for all; `make` makes transports, which memory on the host does not need.
    """

    role, engine_role, threads = "decode", "prefill", 1

    def __init__(
        self,
        store: Store,
        plan: Plan,
        engine: Sequence[Pool],
        *,
        revision: str,
        blocks: int = BLOCKS,
        layers: int = 0,
        make: MakeTransport | None = None,
        seconds: float = SECONDS,
    ) -> None:
        _check_pools(engine, getattr(plan, self.engine_role))
        _check_number("blocks", blocks, 1, LimitedError)
        _check_number("layers", layers, 0, LimitedError)
        self._store, self._plan, self._seconds = store, plan, seconds
        self.layout: StoredLayout = stored_layout(plan, self.role, revision, layers)
        self._size = max(blocks // WINDOWS, 1)
        self._places = range(0, blocks // self._size * self._size, self._size)
        memory = {plane.name: np.zeros((blocks, plane.stride), np.uint8) for plane in self.layout.planes}
        self._memory = [memory[plane.name] for plane in self.layout.planes]
        between = [views(self.layout.side, 0, memory)]
        prefill, decode = (engine, between) if self.role == "decode" else (between, engine)
        self._sizes = _sizes(engine)
        self._carrier = LocalCarrier(plan, prefill, decode, make)
        self._threads = ThreadPoolExecutor(self.threads, "kvplan-store")
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown()
        self._carrier.close()

    def _demands(self, tokens: Interval, tables: Tables) -> list[WorkerRuns]:
        """What every decode worker reads, as if the store had a block for every position.

        Raises BadRequestError, HandleError.
        """
        if self._closed:
            raise HandleError("this end of a store is closed: make another one")
        stored = {group.name: _every_block(self.layout, group.name, tokens[1]) for group in self.layout.side.groups}
        sides = {self.role: stored, self.engine_role: tables}
        sizes = {self.role: dict[str, int](), self.engine_role: self._sizes}
        request = Request("stored", tokens, sides["prefill"], sides["decode"])
        asked = check(self._plan, request, sizes["prefill"], sizes["decode"])
        return [demand(self._plan, worker, asked).runs for worker in range(len(self._plan.reads))]

    def _windows(self, objects: Wanted) -> Iterator[StoreWindow]:
        """The objects in windows of the memory, which take turns, from their first position on."""
        positions = sorted({position for of_group in objects.values() for position in of_group})
        places = cycle(self._places)
        while positions:
            first, last = positions[0], positions[0] + self._size
            some = {name: {p: r for p, r in of.items() if first <= p < last} for name, of in objects.items()}
            yield StoreWindow(first, next(places), some)
            positions = [position for position in positions if position >= last]

    def _move(self, demands: Sequence[WorkerRuns], window: StoreWindow) -> int:
        """Move what is in a window's objects, by their places in memory. Returns the bytes."""
        some = [{key: self._within(key[0], runs, window) for key, runs in of.items()} for of in demands]
        return self._carrier.move(some, self._seconds)

    def _within(self, name: str, runs: Runs, window: StoreWindow) -> Runs:
        """The runs of a pair that lie in a window's objects, by places in memory instead of positions."""
        group: str = getattr(pair_named(self._plan, name), self.role)
        column = f"{self.role}_block"
        block = getattr(runs, column)
        some = pick(runs, np.isin(block, list(window.objects.get(group, {}))))
        return some._replace(**{column: window.place_of(getattr(some, column))})

    def _stored(self, keys: Sequence[bytes], window: StoreWindow) -> list[StoredBlock]:
        """The blocks that are a window's objects, in memory."""
        return [
            StoredBlock(
                name,
                keys[position],
                (position + 1) * self.layout.tokens,
                ranges,
                self._pages(name, window.place_of(position)),
            )
            for name, of_group in window.objects.items()
            for position, ranges in sorted(of_group.items())
        ]

    def _used(self, keys: Sequence[bytes], objects: Wanted) -> None:
        blocks = ((name, keys[position]) for name, of_group in objects.items() for position in of_group)
        self._store.use(self.layout, blocks)

    def _pages(self, group: str, place: int) -> dict[int, Bytes]:
        parts = self.layout.parts[group]
        sizes = {number: size for part in parts for number, size in zip(part.planes, part.pages, strict=True)}
        return {number: self._memory[number][place, :size] for number, size in sizes.items()}

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
        demands = self._demands(tokens, tables)
        objects = wanted(self._plan.pairs, self.role, self.layout, tokens)
        missing = self._missing(keys, objects)
        size, writing = 0, deque[Future[None]]()
        try:
            for window in self._windows(missing):
                if len(writing) == len(self._places):
                    writing.popleft().result()
                self._clear(window)
                size += self._move(demands, window)
                writing.append(self._threads.submit(self._store.write, self.layout, self._stored(keys, window)))
            for written in writing:
                written.result()
        finally:
            settle(writing)
        self._used(keys, objects)
        return StoreMoved(sum(map(len, missing.values())), size)

    def _missing(self, keys: Sequence[bytes], objects: Wanted) -> Wanted:
        return {
            name: {p: r for p, r in of.items() if not self._store.has(self.layout, name, keys[p], r)}
            for name, of in objects.items()
        }

    def _clear(self, window: StoreWindow) -> None:
        """Blocks that are not written whole must not keep what another request had there."""
        for name, of_group in window.objects.items():
            for position in of_group:
                for page in self._pages(name, window.place_of(position)).values():
                    page[:] = 0


class Loader(StorePort):
    """Loads into the memory of an engine's workers; `engine` are their pools, by number."""

    role, engine_role, threads = "prefill", "decode", READERS

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
        demands = self._demands(tokens, tables)
        objects = wanted(self._plan.pairs, self.role, self.layout, tokens)
        size, windows = 0, self._windows(objects)
        reading = deque(self._begun(keys, window) for window in islice(windows, len(self._places)))
        try:
            while reading:
                window, reads = reading[0]
                for read in reads:
                    read.result()
                size += self._move(demands, window)
                reading.popleft()
                reading.extend(self._begun(keys, later) for later in islice(windows, 1))
        finally:
            settle([read for _, reads in reading for read in reads])
        self._used(keys, objects)
        return StoreMoved(sum(map(len, objects.values())), size)

    def _begun(self, keys: Sequence[bytes], window: StoreWindow) -> tuple[StoreWindow, list[Future[None]]]:
        """A window, and the reads of its blocks, which run beside."""
        blocks = self._stored(keys, window)
        return window, [self._threads.submit(self._store.read, self.layout, [block]) for block in blocks]

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


def settle(futures: Collection[Future[None]]) -> None:
    """Wait until none of these uses memory any more; those that have not begun never do."""
    for future in futures:
        future.cancel()
    wait_for(futures)


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
