"""Copies of host memory: spans of any length, wherever they lie."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from tests.runtime.helpers.agents import region

from kvplan.runtime.transport import inmemory
from kvplan.runtime.transport.inmemory import Hub, InMemory

Bytes = npt.NDArray[np.uint8]
FAR, ROOM = 1 << 40, 1 << 20


@pytest.fixture
def far() -> Iterator[Bytes]:
    """Memory a long way from all other, as a heap is from what is mapped."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 4]
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(FAR, ROOM, mmap.PROT_READ | mmap.PROT_WRITE, private, -1, 0)
    yield np.ctypeslib.as_array((ctypes.c_uint8 * ROOM).from_address(address))
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(ROOM))


@pytest.mark.parametrize("size", [1, 4096, inmemory.LONG - 1, inmemory.LONG, 1 << 18, inmemory.TOGETHER])
def test_spans_that_lie_far_apart(far: Bytes, size: int) -> None:
    near, target = np.full(ROOM, 5, np.uint8), np.zeros((2, ROOM), np.uint8)
    far[:] = 3
    hub = Hub()
    owner, reader = InMemory(hub, "owner"), InMemory(hub, "reader")
    owner.register(np.concatenate([region(far), region(near)]), "DRAM")
    reader.register(region(target), "DRAM")
    local = np.concatenate([region(row[:size]) for row in target])
    remote = np.concatenate([region(far[:size]), region(near[:size])])
    transfer = reader.post_spans("READ", reader.add_peer(owner.metadata()), local, "DRAM", remote, "DRAM")
    assert transfer.poll()
    assert (target[0, :size] == 3).all()
    assert (target[1, :size] == 5).all()
    assert not target[:, size:].any()
    transfer.release()
