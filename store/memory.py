"""What copies between a piece of an object and an engine's memory, by first bytes and addresses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np

from kvplan.plan.types import Ints
from kvplan.runtime.clock import now
from kvplan.runtime.errors import DeadlineError, HandleError, TransportError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.staging.copies import Repeat
from kvplan.runtime.transport.base import Op, TransferHandle, Transport
from kvplan.store.header import PIECE, Bytes

MakeTransport = Callable[[str], Transport]
PAUSE = 20e-6


class PieceSpans(NamedTuple):
    """Spans of `size` bytes with one pattern in some planes, from byte `page[n]` of a body and address `base[n]` on.

    The n-th run of them is `inside[n]` bytes behind the one, rising, and `at[n]` bytes behind the other; its spans
    repeat by `loops`: how often, and bytes further in either. NIXL calls the engine's `memory` so. Runs are `step`
    bytes apart in a page, None if that varies.
    """

    page: Ints
    base: Ints
    device: Ints
    inside: Ints
    at: Ints
    size: int
    loops: tuple[Repeat, ...]
    memory: str
    step: int | None = None

    @property
    def bytes(self) -> int:
        return len(self.page) * len(self.at) * math.prod(self.counts) * self.size

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(loop[0] for loop in self.loops)

    @property
    def extent(self) -> int:
        """Bytes from a run's first to its last in a page."""
        return sum((count - 1) * step for count, step, _ in self.loops) + self.size

    def reach(self, side: int) -> tuple[int, int]:
        """First byte and end of all runs: in a page (1), or behind the base (2)."""
        starts, steps = (self.inside, self.at)[side - 1], [(loop[0] - 1) * loop[side] for loop in self.loops]
        low, high = sum(min(0, step) for step in steps), sum(max(0, step) for step in steps)
        return int(starts.min()) + low, int(starts.max()) + high + self.size

    def ordered(self) -> PieceSpans:
        """The same with its runs in order."""
        order = np.argsort(self.inside)
        inside = self.inside[order]
        return self._replace(inside=inside, at=self.at[order], step=_step(inside))

    def unrolled(self) -> PieceSpans:
        """The same with the widest loop as runs of their own."""
        count, step, further = wide = max(self.loops, key=lambda loop: loop[1])
        loops, turns = list(self.loops), np.arange(count)
        loops.remove(wide)
        inside, at = self.inside[:, None] + turns * step, self.at[:, None] + turns * further
        return self._replace(inside=inside.ravel(), at=at.ravel(), loops=tuple(loops))

    def between(self, low: int, high: int) -> Iterator[PieceSpans]:
        """Those in bytes [low, high) of the body, counted from the first of these. No run lies in two pieces."""
        start, end = int(self.inside[0]), int(self.inside[-1]) + self.extent
        first, last = self.page.searchsorted((low - start, high - end + 1)).tolist()
        if first < last:
            yield self.of_planes(slice(first, last), low)
        meets, stops = self.page.searchsorted((low - end + 1, high - start)).tolist()
        for plane in (*range(meets, min(first, stops)), *range(max(first, last), stops)):
            inside = self.page[plane] + self.inside
            some = (inside >= low) & (inside < high)
            if some.any():
                planes = self.of_planes([plane], low)
                yield planes._replace(inside=self.inside[some], at=self.at[some]).ordered()

    def of_planes(self, some: Any, low: int) -> PieceSpans:
        """Those of some planes, from byte `low` of the body on."""
        return self._replace(page=self.page[some] - low, base=self.base[some], device=self.device[some])

    def equidistant(self) -> Iterator[PieceSpans]:
        """The same by planes whose pages are equally far apart: numpy copies these by strides."""
        page, at = self.page.tolist(), 0
        while at < len(page):
            end, step = at + 1, page[at + 1] - page[at] if at + 1 < len(page) else 0
            while end < len(page) and page[end] - page[end - 1] == step:
                end += 1
            yield self.of_planes(slice(at, end), 0)
            at = end

    def spelled(self) -> tuple[Ints, Ints, Ints]:
        """Every span: its first byte, its address and its device."""
        one = self
        while one.loops:
            one = one.unrolled()
        inside, address = (one.page[:, None] + one.inside).ravel(), (one.base[:, None] + one.at).ravel()
        return inside, address, np.repeat(one.device, len(one.at))


class EngineMemory(Protocol):
    """Who copies between a piece and an engine's memory. Several threads may do so."""

    def put(self, some: Sequence[PieceSpans], piece: Bytes) -> None: ...

    def get(self, some: Sequence[PieceSpans], out: Bytes) -> None: ...

    def close(self) -> None: ...


class HostMemory:
    """Memory on the host, by numpy. Raises TransportError for pools that lie elsewhere."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        for pool in pools:
            for mem_type, _ in pool.geometry.by_type():
                if mem_type != "DRAM":
                    raise TransportError(f"numpy copies host memory only, not {mem_type}: give make=Nixl")

    def put(self, some: Sequence[PieceSpans], piece: Bytes) -> None:
        for each in _equidistant(some):
            (to, at), (from_, inside) = _memory(each), _items(each, piece)
            to[at] = from_[inside]

    def get(self, some: Sequence[PieceSpans], out: Bytes) -> None:
        for each in _equidistant(some):
            (from_, at), (to, inside) = _memory(each), _items(each, out)
            to[inside] = from_[at]

    def close(self) -> None:
        """Nothing is kept."""


class TransportMemory:
    """Memory anywhere, by two transports of this process that `make` makes, and a piece of memory of its own.

    Raises DeadlineError where a piece is not moved within `seconds`, and what transports raise; then nothing is moved
    any more (HandleError).
    """

    def __init__(self, pools: Sequence[Pool], make: MakeTransport, seconds: float) -> None:
        self._ours, self._theirs, self._seconds = make("store"), make("engine"), seconds
        self._piece, self._turn, self._failed = np.zeros(PIECE, np.uint8), Lock(), False
        self._ours.register(np.array([[self._piece.ctypes.data, PIECE, 0]], np.int64), "DRAM")
        for pool in pools:
            for mem_type, regions in pool.geometry.by_type():
                self._theirs.register(regions, mem_type)
        self._peer = self._ours.add_peer(self._theirs.metadata())
        self._theirs.add_peer(self._ours.metadata())

    def put(self, some: Sequence[PieceSpans], piece: Bytes) -> None:
        with self._turn:
            self._piece[: piece.nbytes] = piece
            self._move("WRITE", some)

    def get(self, some: Sequence[PieceSpans], out: Bytes) -> None:
        with self._turn:
            self._piece[: out.nbytes] = out
            self._move("READ", some)
            out[:] = self._piece[: out.nbytes]

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def _move(self, op: Op, some: Sequence[PieceSpans]) -> None:
        if self._failed:
            raise HandleError("bytes may still come of what failed before: make a new one, over other memory")
        self._failed = True
        for memory in sorted({each.memory for each in some}):
            self._wait(self._post(op, memory, [each for each in some if each.memory == memory]))
        self._failed = False

    def _post(self, op: Op, memory: str, some: Sequence[PieceSpans]) -> TransferHandle:
        every, first = [(*each.spelled(), each.size) for each in some], self._piece.ctypes.data
        local = np.concatenate([_rows(inside + first, size, 0) for inside, _, _, size in every])
        remote = np.concatenate([_rows(address, size, device) for _, address, device, size in every])
        return self._ours.post_spans(op, self._peer, local, "DRAM", remote, memory)

    def _wait(self, handle: TransferHandle) -> None:
        end = now() + self._seconds
        while not handle.poll():
            if now() > end:
                raise DeadlineError(f"a piece was not moved within {self._seconds:g} s: close this end of the store")
            self._theirs.progress()
            self._ours.progress()
            time.sleep(PAUSE)
        handle.release()


def _rows(address: Ints, size: int, device: Ints | int) -> Ints:
    found = np.empty((len(address), 3), np.int64)
    found[:, 0], found[:, 1], found[:, 2] = address, size, device
    return found


def _equidistant(some: Sequence[PieceSpans]) -> Iterator[PieceSpans]:
    return (alike for each in some for alike in each.equidistant())


def _items(some: PieceSpans, piece: Bytes) -> tuple[Any, Any]:
    """The spans of equidistant planes in a piece as an array, and its part that has the axes (plane, run, loops)."""
    strides, kind = tuple(loop[1] for loop in some.loops), f"V{some.size}"
    if some.step is None:
        every = piece.nbytes - some.extent + 1
        return np.ndarray((every, *some.counts), kind, piece.data, 0, (1, *strides)), some.page[:, None] + some.inside
    shape, first = (len(some.page), len(some.inside), *some.counts), int(some.page[0] + some.inside[0])
    page = int(some.page[1] - some.page[0]) if len(some.page) > 1 else 0
    return np.ndarray(shape, kind, piece.data, first, (page, some.step, *strides)), ...


def _memory(some: PieceSpans) -> tuple[Any, Ints]:
    """The spans from the lowest address to the highest as an array, and its part that has the same axes."""
    address = some.base[:, None] + some.at
    first = int(address.min())
    return np.asarray(_Spans(first, int(address.max()) - first + 1, some)), address - first


def _step(numbers: Ints) -> int | None:
    """How far numbers in order are apart; None where that varies."""
    if len(numbers) == 1:
        return 0
    steps = np.diff(numbers)
    return int(steps[0]) if (steps == steps[0]).all() else None


class _Spans:
    """Host memory as numpy takes it over: what begins at each address from `first` on."""

    def __init__(self, first: int, count: int, some: PieceSpans) -> None:
        steps = tuple(loop[2] for loop in some.loops)
        self.__array_interface__ = {
            "data": (first, False), "shape": (count, *some.counts), "strides": (1, *steps), "typestr": f"|V{some.size}",
            "version": 3,
        }  # fmt: skip
