"""Copies between a piece of an object and an engine's memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np

from kvplan.plan.types import Ints
from kvplan.runtime.clock import now
from kvplan.runtime.errors import DeadlineError, HandleError, KvplanError, TransportError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.staging.copies import Repeat
from kvplan.runtime.transport.base import Op, TransferHandle, Transport
from kvplan.store.header import PIECE, Bytes

MakeTransport = Callable[[str], Transport]
PAUSE = 20e-6


class PieceSpans(NamedTuple):
    """Spans of `size` bytes with one pattern in some planes; plane p begins at byte `page[p]` and address `base[p]`.

    The n-th run begins `inside[n]` bytes (rising) after the former and `at[n]` bytes after the latter. Its spans repeat
    by `loops`: (times, bytes apart in the page, bytes apart in memory). `memory` is NIXL's type of the engine's memory.
    Runs are `step` bytes apart in a page, None if that varies.
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
        """The bytes from a run's first byte to its end, in a page."""
        return sum((count - 1) * step for count, step, _ in self.loops) + self.size

    def reach(self, side: int) -> tuple[int, int]:
        """Return the first byte and the end of all runs, relative to the page (1) or to the base (2)."""
        starts, steps = (self.inside, self.at)[side - 1], [(loop[0] - 1) * loop[side] for loop in self.loops]
        low, high = sum(min(0, step) for step in steps), sum(max(0, step) for step in steps)
        return int(starts.min()) + low, int(starts.max()) + high + self.size

    def ordered(self) -> PieceSpans:
        """Return the same spans with runs in order."""
        order = np.argsort(self.inside)
        inside = self.inside[order]
        return self._replace(inside=inside, at=self.at[order], step=_step(inside))

    def unrolled(self) -> PieceSpans:
        """Return the same spans with the widest loop turned into separate runs."""
        count, step, further = wide = max(self.loops, key=lambda loop: loop[1])
        loops, turns = list(self.loops), np.arange(count)
        loops.remove(wide)
        inside, at = self.inside[:, None] + turns * step, self.at[:, None] + turns * further
        return self._replace(inside=inside.ravel(), at=at.ravel(), loops=tuple(loops))

    def between(self, low: int, high: int) -> Iterator[PieceSpans]:
        """Yield the spans in bytes [low, high) of the body, with pages relative to `low`. No run may cross a bound."""
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
        """Return the spans of some planes, with pages relative to byte `low` of the body."""
        return self._replace(page=self.page[some] - low, base=self.base[some], device=self.device[some])

    def equidistant(self) -> Iterator[PieceSpans]:
        """Yield the same spans, split into planes with equidistant pages, which numpy copies by strides."""
        page, at = self.page.tolist(), 0
        while at < len(page):
            end, step = at + 1, page[at + 1] - page[at] if at + 1 < len(page) else 0
            while end < len(page) and page[end] - page[end - 1] == step:
                end += 1
            yield self.of_planes(slice(at, end), 0)
            at = end

    def spelled(self) -> tuple[Ints, Ints, Ints]:
        """Return the first byte, the address and the device of every span."""
        one = self
        while one.loops:
            one = one.unrolled()
        inside, address = (one.page[:, None] + one.inside).ravel(), (one.base[:, None] + one.at).ravel()
        return inside, address, np.repeat(one.device, len(one.at))


class EngineMemory(Protocol):
    """An engine's memory, which copies to and from pieces. Several threads may use it."""

    def put(self, some: Sequence[PieceSpans], piece: Bytes) -> None: ...

    def get(self, some: Sequence[PieceSpans], out: Bytes) -> None: ...

    def close(self) -> None: ...


class HostMemory:
    """Host memory, copied by numpy. Raises TransportError for pools in other memory."""

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
        """Do nothing: numpy holds no resources."""


class TransportMemory:
    """Memory of any kind, copied through a buffer of one piece by two transports of this process, from `make`.

    Raises DeadlineError if a piece is not moved within `seconds`, and transport errors. After an error, every call
    raises HandleError.
    """

    def __init__(self, pools: Sequence[Pool], make: MakeTransport, seconds: float) -> None:
        self._ours, self._theirs, self._seconds = make("store"), make("engine"), seconds
        # Why the last piece may still move: empty if it does not.
        self._piece, self._turn, self._failed = np.zeros(PIECE, np.uint8), Lock(), ""
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
            raise HandleError(f"an earlier piece may still move ({self._failed}): make a new one, over other memory")
        self._failed = "it was interrupted"
        try:
            for memory in sorted({each.memory for each in some}):
                self._wait(self._post(op, memory, [each for each in some if each.memory == memory]))
        except KvplanError as error:
            self._failed = str(error)
            raise
        self._failed = ""

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
    """Return an array over a piece and the index that selects the spans, with axes (plane, run, loops)."""
    strides, kind = tuple(loop[1] for loop in some.loops), f"V{some.size}"
    if some.step is None:
        every = piece.nbytes - some.extent + 1
        return np.ndarray((every, *some.counts), kind, piece.data, 0, (1, *strides)), some.page[:, None] + some.inside
    shape, first = (len(some.page), len(some.inside), *some.counts), int(some.page[0] + some.inside[0])
    page = int(some.page[1] - some.page[0]) if len(some.page) > 1 else 0
    return np.ndarray(shape, kind, piece.data, first, (page, some.step, *strides)), ...


def _memory(some: PieceSpans) -> tuple[Any, Ints]:
    """Return an array over the engine's memory and the index that selects the spans, with the same axes."""
    address = some.base[:, None] + some.at
    first = int(address.min())
    return np.asarray(_Spans(first, int(address.max()) - first + 1, some)), address - first


def _step(numbers: Ints) -> int | None:
    """Return the distance of rising numbers, None if it varies."""
    if len(numbers) == 1:
        return 0
    steps = np.diff(numbers)
    return int(steps[0]) if (steps == steps[0]).all() else None


class _Spans:
    """Host memory for numpy: the spans that begin at each of `count` addresses from `first` on."""

    def __init__(self, first: int, count: int, some: PieceSpans) -> None:
        steps = tuple(loop[2] for loop in some.loops)
        self.__array_interface__ = {
            "data": (first, False), "shape": (count, *some.counts), "strides": (1, *steps), "typestr": f"|V{some.size}",
            "version": 3,
        }  # fmt: skip
