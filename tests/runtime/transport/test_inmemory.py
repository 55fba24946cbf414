"""Copies of host memory: spans of any length, wherever they lie."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.helpers.agents import region

from kvplan.runtime.errors import AddressError
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


@settings(max_examples=200, deadline=None)
@given(
    regions=st.lists(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1), max_size=3),
    span=st.tuples(st.integers(1, 60), st.integers(1, 12)),
)
def test_a_span_is_in_one_region_or_refused(regions: list[list[tuple[int, int]]], span: tuple[int, int]) -> None:
    """Regions that overlap, contain each other or touch, registered in several calls."""
    agent = InMemory(Hub(), "agent")
    for some in regions:
        agent.register(np.array([(start, size, 0) for start, size in some], np.int64), "DRAM")
    start, size = span
    every = [region for some in regions for region in some]
    with nullcontext() if any(low <= start and start + size <= low + room for low, room in every) else refused():
        agent.covers(np.array([(start, size, 0)], np.int64), "DRAM")


def refused() -> AbstractContextManager[object]:
    return pytest.raises(AddressError, match="leaves the DRAM that agent")
