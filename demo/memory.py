"""The memory of one demo worker: pages of the real geometry, few blocks, groups of one arena over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvplan.plan import planes as names
from kvplan.plan.block_tables import Tables, blocks
from kvplan.plan.types import Side

Bytes = npt.NDArray[np.uint8]
SPARE = 1


@dataclass(frozen=True, slots=True)
class DemoMemory:
    """`arenas` own the bytes; `planes` are views by plane name: (kernel blocks or slots, stride in bytes)."""

    arenas: tuple[Bytes, ...]
    planes: Mapping[str, Bytes]


def allocate(side: Side, number: int, tables: Tables, seed: int) -> DemoMemory:
    """Allocate noise for every plane of a worker, with as many blocks as `tables` need and a few more.

    The planes of each group lie one behind the other, and all groups begin at byte 0 of the arena. One seed, one noise.
    """
    by_name = {group.name: group for group in side.groups}
    slots: dict[tuple[int, int], dict[str, list[names.Plane]]] = {}
    for plane in names.planes(side.workers[number]):
        group = by_name[plane.group]
        slots.setdefault((group.arena, plane.stride * group.ratio), {}).setdefault(group.name, []).append(plane)
    arenas: list[Bytes] = []
    planes: dict[str, Bytes] = {}
    for index, ((arena, size), members) in enumerate(slots.items()):
        ids = [blocks(tables[group.name]).ids for group in side.groups if group.arena == arena]
        plane_size = (1 + SPARE + max(int(dealt.max(initial=0)) for dealt in ids)) * size
        room = max(map(len, members.values())) * plane_size
        arenas.append(_noise([seed, index], room))
        planes |= {
            plane.name: part.reshape(-1, plane.stride)
            for group in members.values()
            for plane, part in zip(group, arenas[-1].reshape(-1, plane_size), strict=False)
        }
    return DemoMemory(tuple(arenas), planes)


def _noise(seed: Sequence[int], size: int) -> Bytes:
    # Drawn in words: drawing byte by byte takes seven times as long.
    words = np.random.default_rng(seed).integers(0, 1 << 64, -(-size // 8), np.uint64)
    return words.view(np.uint8)[:size]
