"""Sides whose caches lie in several memories, over memory of the host that is said to be where they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.end_to_end.memory import Bytes

from kvplan.compiler.bound import BoundSide
from kvplan.plan.planes import BOTH, Plane, planes
from kvplan.plan.types import MEMORIES, Ints, Side
from kvplan.runtime import Memory, Nixl
from kvplan.runtime.checksum import memory as sums
from kvplan.runtime.memory.geometry import MEM_TYPES
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.staging.buffers import StageBuffers
from kvplan.runtime.staging.views import HostCopies
from kvplan.runtime.transport.nixl_handles import NixlList, NixlTransfer


def in_memories(side: BoundSide, random: Random) -> BoundSide:
    """The side with its caches in memories drawn at random: those that share a table, or overlay, in one."""
    arenas = {group.name: group.arena for group in side.groups}
    together = {cache.name: {cache.name} for cache in side.caches}
    for arena in set(arenas.values()):
        members = {name for group in side.groups if group.arena == arena for name, _ in group.members}
        joined = set[str]().union(*(together[name] for name in members))
        together |= dict.fromkeys(joined, joined)
    words = {min(names): random.choice(("", *MEMORIES)) for names in together.values()}
    return replace(side, caches=tuple(replace(c, memory=words[min(together[c.name])]) for c in side.caches))


def declared(side: Side, worker: int, pages: Mapping[str, Bytes]) -> dict[str, Any]:
    """Pages by plane as what the side says that they are: of planes in two memories, half of the blocks in each."""
    ratio = {group.name: group.ratio for group in side.groups}
    return {plane.name: _given(plane, pages[plane.name], ratio[plane.group]) for plane in planes(side.workers[worker])}


def _given(plane: Plane, view: Bytes, ratio: int) -> Any:
    first, both, second = plane.memory.partition(BOTH)
    half = len(view) // ratio // 2 * ratio
    if both:
        return _as(view[:half], first), _as(view[half:], second)
    return _as(view, first) if first else view


def _as(view: Bytes, word: str) -> Memory:
    size = (len(view) - 1) * view.strides[0] + view.shape[1]
    return Memory(view.ctypes.data, view.strides[0], len(view), size, MEM_TYPES[word])


@contextmanager
def pretended() -> Iterator[None]:
    """Copy and sum memory that pretends to be a device's like host memory, which it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageBuffers, "_taken", lambda self, size: HostCopies(self._pool, size))
        patch.setattr(sums, "on_device", sums.on_host)
        patch.setattr(sums, "_device", as_host)
        yield


def as_host(pool: Pool, plane: int) -> Any:
    """The bytes of an extent, as memory of the host."""
    base, end = int(pool.geometry.base[plane]), int(pool.geometry.end[plane])
    return (ctypes.c_uint8 * (end - base)).from_address(base)


class HostNixl(Nixl):
    """NIXL on a machine without a device: what is said to be a device's is registered by itself, as the host's.

    A descriptor of a type that leads to what was registered as another one is refused, as NIXL refuses it of a device.
    """

    def __init__(self, name: str = "worker", **more: Any) -> None:
        self.types: dict[str, list[tuple[int, int]]] = {}
        super().__init__(name, **more)

    def register(self, regions: Ints, mem_type: str) -> None:
        self.types.setdefault(mem_type, []).extend((start, start + size) for start, size, _ in regions.tolist())
        super().register(regions, "DRAM")

    def prepare(self, peer: str | None, rows: Ints, mem_type: str) -> NixlList:
        self._check(peer, rows, mem_type)
        return super().prepare(peer, rows, "DRAM")

    def post_spans(
        self, op: Any, peer: str, local: Ints, local_type: str, remote: Ints, remote_type: str
    ) -> NixlTransfer:
        self._check(None, local, local_type)
        return super().post_spans(op, peer, local, "DRAM", remote, "DRAM")

    def _check(self, peer: str | None, rows: Ints, mem_type: str) -> None:
        every = self.types.get(mem_type, [])
        for start, size in rows[:, :2].tolist() if peer is None else ():
            assert any(low <= start and start + size <= high for low, high in every), f"not registered as {mem_type}"
