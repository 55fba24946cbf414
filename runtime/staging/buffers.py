"""Stage of one worker: buffers in each memory of its pool, which slices borrow in turn, and threads that copy."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier

import numpy as np

from kvplan.runtime.clock import counted, now
from kvplan.runtime.errors import LimitedError, RegisterError, cause_text
from kvplan.runtime.inspection import StageState
from kvplan.runtime.memory.arrays import describe
from kvplan.runtime.memory.device import enter
from kvplan.runtime.memory.geometry import Geometry, Memory
from kvplan.runtime.staging.views import CopyMaker, DeviceCopies, HostCopies
from kvplan.runtime.transport.base import Transport

# Each slice takes a quarter of a millisecond of Python besides its bytes. With half of this, a request of 64 MiB takes
# a tenth more time.
STAGE_BYTES = 128 << 20
# The wire fills the next buffers while one is copied. Two would do if copy and wire always took the same time.
BUFFERS = 8
# Most buffers of one peer.
SHARE = BUFFERS // 2
ALIGNED = 64
# A core copies strided bytes at a half to two thirds of the wire's rate, so two threads keep up. The thread that polls
# needs a core, too: with two cores, three threads would wait for each other.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
THREADS = 2 if CORES > 2 else 1


class Stage:
    """The stage of one worker: `size` bytes in each memory that its pool lies in; 0 for none.

    Raises LimitedError for a size that is no whole number from 0.
    """

    def __init__(self, size: int, transport: Transport, pool: Geometry, copied: Callable[[], None]) -> None:
        if type(size) is not int or size < 0:
            raise LimitedError(f"stage_bytes is {size!r}: give a whole number from 0")
        self.buffer_bytes = size // BUFFERS // ALIGNED * ALIGNED
        every = dict.fromkeys(pool.memories)
        self._buffers = {one: StageBuffers(self.buffer_bytes, one, transport, pool, copied) for one in every}

    def of(self, memory: Memory) -> StageBuffers:
        """Return the buffers in one memory of the pool."""
        return self._buffers[memory]

    def open(self) -> None:
        """Allocate and register all buffers. Raises what the transport raises, RegisterError."""
        for buffers in self._buffers.values():
            buffers.open()

    def begin(self) -> None:
        """Begin a step of the worker."""
        for buffers in self._buffers.values():
            buffers.begin()

    @property
    def exhausted(self) -> bool:
        """Whether every buffer of some memory belongs to slices that were given up."""
        return any(buffers.exhausted for buffers in self._buffers.values())

    def stuck(self, peer: str) -> bool:
        """Return whether slices that were given up have every buffer of some memory that a peer may have."""
        return any(buffers.stuck(peer) for buffers in self._buffers.values())

    @property
    def wanted(self) -> bool:
        """Whether a slice waits for a buffer, and one is free that it may have."""
        return any(buffers.wanted for buffers in self._buffers.values())

    def inspected(self) -> StageState:
        """Return the state of all buffers: which peer has each, and which peers wait."""
        every = [buffers.inspected() for buffers in self._buffers.values()]
        kept = sum((Counter(dict(one.kept)) for one in every), Counter[str]())
        return StageState(
            buffer_bytes=self.buffer_bytes,
            open=any(one.open for one in every),
            free=tuple(address for one in every for address in one.free),
            lent=tuple(lent for one in every for lent in one.lent),
            kept=tuple(kept.items()),
            waiting=tuple(peer for one in every for peer in one.waiting),
            copies=sum(one.copies for one in every),
        )

    def close(self) -> None:
        """Wait for copies that run, and free the memory. Call it after it is deregistered or the transport closed."""
        for buffers in self._buffers.values():
            buffers.close()


class StageBuffers:
    """The buffers of a stage in one `memory`, each of `buffer_bytes`.

    Memory is allocated and registered when the first plan that stages is prepared. `copied` is called when a copy has
    ended, from any thread.
    """

    def __init__(
        self, buffer_bytes: int, memory: Memory, transport: Transport, pool: Geometry, copied: Callable[[], None]
    ) -> None:
        self.buffer_bytes, (self.mem_type, self.device) = buffer_bytes, memory
        self._transport, self._pool, self._copied = transport, pool, copied
        # The buffer that came back last is lent first, because its memory is in the processor's caches.
        self._free: list[int] = []
        self._queue: dict[object, str] = {}
        self._peers: dict[int, str] = {}
        self._kept, self._lent = Counter[str](), 0
        # Seconds for which each peer has been stuck, counted by steps; and when the last step began.
        self._stuck, self._began = dict[str, float](), now()
        self._maker: CopyMaker | None = None
        self._threads: ThreadPoolExecutor | None = None
        # Copies that threads are making, or will make.
        self._copies = set[Future[None]]()

    def open(self) -> None:
        """Allocate and register the memory, unless that was done. Raises what the transport raises, RegisterError."""
        if self._maker is not None:
            return
        enter(self._pool)
        size = BUFFERS * self.buffer_bytes
        maker, threads = self._taken(size), copy_threads(self._pool)
        start = describe(maker.memory).address
        self._transport.register(np.array([[start, size, self.device]]), self.mem_type)
        self._maker, self._threads = maker, threads
        self._free = [start + number * self.buffer_bytes for number in range(BUFFERS)]

    def _taken(self, size: int) -> CopyMaker:
        try:
            return HostCopies(self._pool, size) if self.mem_type == "DRAM" else DeviceCopies(self.device, size)
        # torch raises RuntimeError if a device has no room.
        except (MemoryError, RuntimeError) as error:
            text = f"no {size} bytes of memory for the stage: {cause_text(error)}"
            raise RegisterError(f"{text}: give this worker a smaller stage_bytes, 0 for none") from error

    @property
    def exhausted(self) -> bool:
        """Whether every buffer belongs to slices that were given up."""
        return self._kept.total() == BUFFERS

    def stuck(self, peer: str) -> bool:
        """Return whether slices that were given up have every buffer that a peer may have. Then it does not stage."""
        return self._kept[peer] == SHARE or self.exhausted

    def begin(self) -> None:
        """Begin a step of the worker. A step lends each buffer at most once, which bounds its time.

        The time for which a peer is stuck is counted by steps. A pause between two steps does not count, because
        buffers may have come back in it.
        """
        self._lent = 0
        if not (self._kept or self._stuck):
            return
        began, before = now(), self._began
        waiting = {peer for peer in (*self._queue.values(), *self._kept) if self.stuck(peer)}
        passed = counted(began, before)
        self._stuck = {peer: self._stuck[peer] + passed if peer in self._stuck else 0.0 for peer in waiting}
        self._began = began

    def stuck_for(self, peer: str) -> float:
        """Return the seconds for which a peer has been stuck."""
        return self._stuck.get(peer, 0.0)

    def borrow(self, who: object, peer: str) -> int:
        """Return the address of a buffer for moves to or from `peer`, which `who` has until `give_back`.

        Returns 0 while none is free: ask again, or `withdraw`. The longest waiter is first. No peer has more than
        half of the buffers, so that a frozen one does not stop all others.
        """
        self._queue.setdefault(who, peer)
        if not self._free or self._lent == BUFFERS or self._next() is not who:
            return 0
        del self._queue[who]
        self._lent += 1
        buffer = self._free.pop()
        self._peers[buffer] = peer
        return buffer

    def _next(self) -> object:
        """Return the longest waiter whose peer has less than its share."""
        held = Counter(self._peers.values())
        return next((who for who, peer in self._queue.items() if held[peer] < SHARE), None)

    def inspected(self) -> StageState:
        """Return the state of these buffers: which peer has each, and which peers wait."""
        return StageState(
            buffer_bytes=self.buffer_bytes,
            open=self._maker is not None,
            free=tuple(self._free),
            lent=tuple(self._peers.items()),
            kept=tuple((peer, count) for peer, count in self._kept.items() if count),
            waiting=tuple(self._queue.values()),
            copies=sum(not copy.running() and not copy.done() for copy in tuple(self._copies)),
        )

    def withdraw(self, who: object) -> None:
        """Remove a waiter from the queue."""
        self._queue.pop(who, None)

    def keep(self, buffer: int) -> None:
        """Note that a buffer's borrower was given up, and that it may still be written or read for a long time."""
        self._kept[self._peers[buffer]] += 1

    def give_back(self, buffer: int, kept: bool) -> None:
        """Take back a buffer that nothing reads or writes any more. `kept` says whether `keep` was called for it."""
        self._free.append(buffer)
        peer = self._peers.pop(buffer)
        self._kept[peer] -= kept
        if not self._kept[peer]:
            del self._kept[peer]

    def copy(self, make: Callable[[CopyMaker], None], at_once: bool) -> Future[None]:
        """Have copies made by a thread, or `at_once` within this call.

        A thread always makes a device's copies, because they wait for all earlier work of the device, and the caller
        may hold a lock.
        """
        assert self._maker is not None
        assert self._threads is not None
        if at_once and self.mem_type == "DRAM":
            return _made(make, self._maker)
        future = self._threads.submit(_make, make, self._maker)
        self._copies.add(future)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, future: Future[None]) -> None:
        self._copies.discard(future)
        self._copied()

    @property
    def wanted(self) -> bool:
        """Whether a slice waits for a buffer, and one is free that it may have."""
        return bool(self._free) and self._next() is not None

    def close(self) -> None:
        """Wait for copies that run, and free the memory. Call it after it is deregistered or the transport closed."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
        self._threads, self._maker, self._free = None, None, []


def copy_threads(pool: Geometry) -> ThreadPoolExecutor:
    """Return a pool whose threads have all begun, so that no copy is refused. Raises RegisterError if they cannot."""
    threads, together = ThreadPoolExecutor(THREADS, "kvplan-stage", enter, (pool,)), Barrier(THREADS)
    try:
        for begun in [threads.submit(together.wait) for _ in range(THREADS)]:
            begun.result()
    except RuntimeError as error:
        together.abort()
        threads.shutdown(cancel_futures=True)
        raise RegisterError(f"no threads can be started that copy for a stage: {error}: raise the limit") from error
    return threads


def _make(make: Callable[[CopyMaker], None], maker: CopyMaker) -> None:
    try:
        make(maker)
    finally:
        # Even after an error, copies that began may touch the buffer until they finish.
        maker.finish()


def _made(make: Callable[[CopyMaker], None], maker: CopyMaker) -> Future[None]:
    future = Future[None]()
    try:
        _make(make, maker)
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(None)
    return future
