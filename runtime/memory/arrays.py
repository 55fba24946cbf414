"""Cache memory of an engine as plain numbers: address, shape, strides, device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvplan.runtime.errors import CacheMemoryError

TOP = 1 << 63
# DLPack's device types that NIXL calls VRAM, and those that are host memory.
DLPACK_VRAM = {2, 10}
DLPACK_DRAM = {1, 3, 11}


@dataclass(frozen=True, slots=True)
class Memory:
    """Explicit memory: `blocks` pages from address `base` on, `stride` bytes apart, `nbytes` in all.

    `mem_type` is DRAM or VRAM, `device` the accelerator's number, `allocation` the (address, bytes) that contains it.
    """

    base: int
    stride: int
    blocks: int
    nbytes: int
    mem_type: str = "DRAM"
    device: int = 0
    allocation: tuple[int, int] | None = None
    writable: bool = True


@dataclass(frozen=True, slots=True)
class MemoryArray:
    """An array in memory: shape in items, strides and itemsize in bytes. `owner` keeps the memory alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    mem_type: str
    device: int
    allocation: tuple[int, int]
    writable: bool
    owner: object

    @property
    def nbytes(self) -> int:
        """The bytes from the first item to the end of the last one, with gaps."""
        return span(self.shape, self.strides, self.itemsize)

    @property
    def dense(self) -> bool:
        return contiguous(self.shape, self.strides, self.itemsize)


def span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes from the first item to the end of the last one, of an array with positive strides."""
    if 0 in shape:
        return 0
    return sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True)) + itemsize


def contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Return whether items follow each other without a gap, with the last axis innermost."""
    expected = itemsize
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count != 1 and stride != expected:
            return False
        expected *= count
    return True


def describe(value: Any) -> MemoryArray:
    """Return a MemoryArray of Memory, numpy, torch, or anything with DLPack, an array interface or the buffer protocol.

    Raises CacheMemoryError if it gives no address, or its memory would leave the address space.
    """
    array = _describe(value)
    if min(array.strides, default=0) < 0:
        raise CacheMemoryError(f"strides {array.strides} run backwards: pass the memory in its own order")
    if not 0 < array.address < TOP or array.address + array.nbytes >= TOP:
        raise CacheMemoryError(f"address {array.address:#x} and {array.nbytes} bytes leave the address space")
    return array


def _describe(value: Any) -> MemoryArray:
    if isinstance(value, Memory):
        return _explicit(value)
    if isinstance(value, np.ndarray):
        return _numpy(value)
    if hasattr(value, "untyped_storage"):
        return _tensor(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _interface(value)
    if hasattr(value, "__dlpack__"):
        return _dlpack(value)
    try:
        return _numpy(np.frombuffer(value, np.uint8))
    except (TypeError, ValueError, BufferError) as error:
        raise CacheMemoryError(
            f"a {type(value).__name__} is no memory ({error}): pass an array or Memory(...)"
        ) from error


def _explicit(value: Memory) -> MemoryArray:
    need = (value.blocks - 1) * value.stride + 1 if value.blocks else 0
    if min(value.stride, value.blocks, value.nbytes, value.device) < 0 or value.nbytes < need:
        raise CacheMemoryError(f"{value.blocks} blocks {value.stride} bytes apart do not fit in {value.nbytes} bytes")
    if value.mem_type not in ("DRAM", "VRAM"):
        raise CacheMemoryError(f"memory type {value.mem_type!r} is unknown: use DRAM or VRAM")
    whole = value.allocation or (value.base, value.nbytes)
    if not whole[0] <= value.base <= value.base + value.nbytes <= sum(whole):
        raise CacheMemoryError(f"memory at {value.base:#x} lies outside of its allocation at {whole[0]:#x}")
    inner = value.stride if value.nbytes >= value.blocks * value.stride else value.nbytes - need + 1
    shape, strides = (value.blocks, inner), (value.stride, 1)
    return MemoryArray(value.base, shape, strides, 1, value.mem_type, value.device, whole, value.writable, value)


def _numpy(value: np.ndarray[Any, Any]) -> MemoryArray:
    root = value
    # as_strided puts a helper object between an array and the array that owns the memory.
    while isinstance(base := root.base, np.ndarray) or isinstance(base := getattr(base, "base", None), np.ndarray):
        root = base
    start, whole = root.ctypes.data, span(root.shape, root.strides, root.itemsize)
    outside = min(root.strides, default=0) < 0
    allocation = (value.ctypes.data, span(value.shape, value.strides, value.itemsize)) if outside else (start, whole)
    address, writable = value.ctypes.data, value.flags.writeable
    return MemoryArray(address, value.shape, value.strides, value.itemsize, "DRAM", 0, allocation, writable, value)


def _tensor(value: Any) -> MemoryArray:
    """Describe a torch tensor without importing torch."""
    kind, size, storage = value.device.type, value.element_size(), value.untyped_storage()
    if kind not in ("cpu", "cuda"):
        raise CacheMemoryError(f"a tensor on device {kind!r} has no address that NIXL knows: use cpu or cuda")
    strides = tuple(step * size for step in value.stride())
    where, device = ("DRAM", 0) if kind == "cpu" else ("VRAM", value.device.index or 0)
    allocation = (storage.data_ptr(), storage.nbytes())
    return MemoryArray(value.data_ptr(), tuple(value.shape), strides, size, where, device, allocation, True, value)


def _interface(value: Any) -> MemoryArray:
    """Describe an array on an accelerator by its array interface."""
    facts = value.__cuda_array_interface__
    address, read_only = facts["data"]
    shape, size = tuple(facts["shape"]), int(facts["typestr"][2:])
    strides = tuple(facts.get("strides") or (math.prod(shape[axis + 1 :]) * size for axis in range(len(shape))))
    device = int(value.__dlpack_device__()[1]) if hasattr(value, "__dlpack_device__") else 0
    allocation = (address, span(shape, strides, size))
    return MemoryArray(address, shape, strides, size, "VRAM", device, allocation, not read_only, value)


def _dlpack(value: Any) -> MemoryArray:
    kind, _ = value.__dlpack_device__()
    if int(kind) not in DLPACK_DRAM:
        advice = (
            "pass Memory(...) with its address" if int(kind) in DLPACK_VRAM else "only host and GPU memory is known"
        )
        raise CacheMemoryError(f"a {type(value).__name__} on DLPack device {int(kind)} gives no address: {advice}")
    try:
        return _numpy(np.from_dlpack(value))
    except (TypeError, ValueError, BufferError) as error:
        raise CacheMemoryError(f"DLPack export failed ({error}): pass Memory(...) with its address") from error
