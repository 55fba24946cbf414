"""The memory of one demo worker: pages of the real geometry, few blocks, groups of one arena over each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvplan.plan import planes as names
from kvplan.plan.block_tables import Tables, blocks
from kvplan.plan.types import Group, Worker

Bytes = npt.NDArray[np.uint8]
SPARE = 1


@dataclass(frozen=True, slots=True)
class DemoMemory:
    """`arenas` own the bytes; `planes` are views by plane name: (kernel blocks or slots, stride in bytes)."""

    arenas: tuple[Bytes, ...]
    planes: Mapping[str, Bytes]

    def copy(self) -> DemoMemory:
        """The same planes over bytes of their own."""
        arenas = tuple(arena.copy() for arena in self.arenas)
        planes = {name: _moved(view, self.arenas, arenas) for name, view in self.planes.items()}
        return DemoMemory(arenas, planes)


def allocate(worker: Worker, groups: tuple[Group, ...], tables: Tables, seed: int) -> DemoMemory:
    """Memory full of noise for every plane of `worker`, with as many blocks as `tables` need and a few more.

    The planes of every group lie one behind the other, all groups from byte 0 of the arena.
    """
    by_name = {group.name: group for group in groups}
    slots: dict[tuple[int, int], dict[str, list[names.Plane]]] = {}
    for plane in names.planes(worker):
        group = by_name[plane.group]
        slots.setdefault((group.arena, plane.stride * group.ratio), {}).setdefault(group.name, []).append(plane)
    arenas: list[Bytes] = []
    planes: dict[str, Bytes] = {}
    for number, ((arena, size), members) in enumerate(slots.items()):
        ids = [blocks(tables[group.name]).ids for group in groups if group.arena == arena]
        plane_size = (1 + SPARE + max(int(dealt.max(initial=0)) for dealt in ids)) * size
        room = max(map(len, members.values())) * plane_size
        arenas.append(np.random.default_rng([seed, number]).integers(0, 256, room, np.uint8))
        planes |= {
            plane.name: part.reshape(-1, plane.stride)
            for group in members.values()
            for plane, part in zip(group, arenas[-1].reshape(-1, plane_size), strict=False)
        }
    return DemoMemory(tuple(arenas), planes)


def _moved(view: Bytes, old: tuple[Bytes, ...], new: tuple[Bytes, ...]) -> Bytes:
    for was, now in zip(old, new, strict=True):
        start = view.ctypes.data - was.ctypes.data
        if 0 <= start < was.nbytes:
            return now[start : start + view.size].reshape(view.shape)
    raise ValueError("a plane lies in none of the arenas")
