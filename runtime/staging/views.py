"""Copy makers: copy between strided views of memory, by numpy on the host, by torch and Triton on a device."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kvplan.plan.types import Ints
from kvplan.runtime.errors import RegisterError
from kvplan.runtime.memory.device import tensor_at
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs
from kvplan.runtime.staging.copies import StridedCopy

# Types of items by their bytes. Complex numbers are the only type of 16 bytes; they are copied as bits.
ITEMS = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8", 16: "<c16"}
# Bytes of the widest item on a device: Triton has no complex numbers.
WIDEST = 8
# From so many bytes of a block, a separate call for each block costs little.
ONE_BY_ONE = 1 << 14
Index = slice | Ints


@dataclass(frozen=True, slots=True)
class StageBlocks:
    """The image of blocks `ids`, unique and ascending, in a stage, from `address` on."""

    address: int
    ids: Ints

    @property
    def count(self) -> int:
        return len(self.ids)


class CopyMaker(ABC):
    """A maker of copies between a stage, whose `memory` it allocates, and a pool."""

    memory: Any

    def make(self, copy: StridedCopy, stage: StageBlocks, at: Index, blocks: Index, *, pack: bool) -> None:
        """Copy `blocks` of the pool to the stage's blocks `at` if `pack`, and in the other direction otherwise."""
        ends = (*zip(self.views(copy, stage), (at, blocks), strict=True),)
        (source, chosen), (target, place) = reversed(ends) if pack else ends
        self.copy(source, chosen, target, place, copy.moved)

    @abstractmethod
    def views(self, copy: StridedCopy, stage: StageBlocks) -> tuple[Any, Any]:
        """Return the stage and the pool as views of a copy, with axes (plane, block, its loops, items)."""

    @abstractmethod
    def copy(self, source: Any, chosen: Index, target: Any, place: Index, size: int) -> None:
        """Copy blocks `chosen` of one view to the `place` of as many in another, each of `size` bytes."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all copies are made."""


class HostCopies(CopyMaker):
    """Copies in host memory, by numpy, with `size` bytes of stage."""

    def __init__(self, pool: Geometry, size: int) -> None:
        # Write all of it now. The system would map untouched pages one by one while a request waits.
        self.memory = np.full(size, 0xFF, np.uint8)
        self._address = self.memory.ctypes.data
        self._starts = pool.regions[:, 0].tolist()
        self._regions = [_bytes(start, size) for start, size, _ in pool.regions.tolist()]

    def copy(self, source: Any, chosen: Index, target: Any, place: Index, size: int) -> None:
        if size < ONE_BY_ONE or (isinstance(place, slice) and isinstance(chosen, slice)):
            target[:, place] = source[:, chosen]
            return
        # numpy copies indexed reads once more, so large blocks are copied one by one.
        for to, start in zip(_numbers(place), _numbers(chosen), strict=True):
            target[:, to] = source[:, start]

    def finish(self) -> None:
        """Do nothing: each copy is made when its call returns."""

    def views(self, copy: StridedCopy, stage: StageBlocks) -> tuple[Any, Any]:
        shape, steps, item = facts(copy, stage.count)
        start = stage.address - self._address + copy.row * stage.count + copy.inside
        staged = np.ndarray((copy.planes, stage.count, *shape), item, self.memory.data, start, steps[0])
        region, offset = self._regions[copy.region], copy.address - self._starts[copy.region]
        return staged, np.ndarray((copy.planes, copy.blocks, *shape), item, region, offset, steps[1])


class DeviceCopies(CopyMaker):
    """Copies in a device's memory, by torch, on their own stream, with `size` bytes of stage."""

    def __init__(self, device: int, size: int) -> None:
        torch, where = _torch(), f"cuda:{device}"
        self._cuda, self._device, self._stream = torch.cuda, device, torch.cuda.Stream(where)
        with self._cuda.stream(self._stream):
            self.memory = torch.empty(size, dtype=torch.uint8, device=where)
            # Within the stream's device, because a kernel runs on the thread's current device.
            self._between = copier(where)
        # torch may hand out freed memory with pending work, which only the stream that used it waits for.
        self.finish()

    def copy(self, source: Any, chosen: Index, target: Any, place: Index, size: int) -> None:
        with self._cuda.stream(self._stream):
            self._between(source, target, chosen, place)

    def finish(self) -> None:
        self._stream.synchronize()

    def views(self, copy: StridedCopy, stage: StageBlocks) -> tuple[Any, Any]:
        shape, steps, item = facts(copy, stage.count, WIDEST)
        start = stage.address + copy.row * stage.count + copy.inside
        with self._cuda.stream(self._stream):
            staged = tensor_at(start, (copy.planes, stage.count, *shape), steps[0], item, self._device)
            return staged, tensor_at(copy.address, (copy.planes, copy.blocks, *shape), steps[1], item, self._device)


def between(source: Any, target: Any, chosen: Index, place: Index) -> None:
    """Copy blocks of one torch tensor, its axis 1, into blocks of another."""
    import torch

    if isinstance(chosen, slice):
        source = source[:, chosen]
    else:
        source = source.index_select(1, torch.from_numpy(chosen).to(source.device))
    if isinstance(place, slice):
        target[:, place].copy_(source)
    else:
        target.index_copy_(1, torch.from_numpy(place).to(target.device), source)


def copier(where: str) -> Callable[[Any, Any, Index, Index], None]:
    """Return the function that copies blocks on the device `where`: `between`, with the kernel if Triton works."""
    try:
        from kvplan.runtime.staging import kernel

        if kernel.tried(where):
            return partial(_with_kernel, kernel)
    except Exception as error:
        logs.event(logs.DEBUG, "no Triton kernel for copies", error=error)
    return between


def _with_kernel(kernel: Any, source: Any, target: Any, chosen: Index, place: Index) -> None:
    """Copy as `between` does, by the kernel if the blocks do not rise by equal steps and it takes the tensor."""
    if (isinstance(chosen, slice) and isinstance(place, slice)) or not kernel.takes(source):
        between(source, target, chosen, place)
        return
    kernel.copy(source, target, _ids(chosen), _ids(place))


def facts(
    copy: StridedCopy, count: int, widest: int = max(ITEMS)
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]], str]:
    """Return a copy's shape after planes and blocks, its strides in stage and pool, and its item's type.

    The stage has `count` blocks. An item has `widest` bytes at most.
    """
    width = min(copy.width, widest)
    loops = [*copy.loops, (copy.bytes // width, width, width)]
    stage = (copy.row_step * count, copy.row_bytes, *(loop[1] for loop in loops))
    pool = (copy.address_step, copy.stride, *(loop[2] for loop in loops))
    return tuple(loop[0] for loop in loops), (stage, pool), ITEMS[width]


def index(numbers: Ints) -> Index:
    """Return the numbers as a slice if they rise by equal steps, otherwise as they are."""
    if len(numbers) == 1:
        return slice(int(numbers[0]), int(numbers[0]) + 1)
    steps = numbers[1:] - numbers[:-1]
    if steps[0] > 0 and (steps == steps[0]).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1, int(steps[0]))
    return numbers


def _numbers(chosen: Index) -> Iterable[int]:
    return range(chosen.start, chosen.stop, chosen.step or 1) if isinstance(chosen, slice) else chosen.tolist()


def _ids(chosen: Index) -> Ints:
    if not isinstance(chosen, slice):
        return chosen
    return np.arange(chosen.start, chosen.stop, chosen.step or 1, dtype=np.int64)


def _bytes(address: int, size: int) -> Any:
    return (ctypes.c_uint8 * size).from_address(address)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise RegisterError(
            "a stage on a device needs torch, which is not installed: install it, or give stage_bytes=0"
        ) from error
    return torch
