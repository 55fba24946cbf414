"""The names of a worker's planes: `cache[.layer][.index of another axis][.part]`, with global numbers.
If a plane has all layers of a group whose name differs from its cache, it is `cache@group`, because a cache may lie
in several groups.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from kvplan.plan.types import Ints, Planes, Worker

# The separator between the two memories of a plane's blocks.
BOTH = "+"


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane of a worker. `at` has the global index on every axis outside `block` but `layer`; sizes are bytes.

    `memory` is the memory that its side declares, empty if it declares none.
    """

    name: str
    cache: str
    group: str
    layer: int | None
    at: tuple[tuple[str, int], ...]
    part: str | None
    page: int
    stride: int
    memory: str = ""


def planes(worker: Worker) -> tuple[Plane, ...]:
    """Return all planes of a worker; the position is the plane's number."""
    found = {number: plane for entry in worker.planes for number, plane in _numbered(entry)}
    return tuple(found[number] for number in sorted(found))


def entries(worker: Worker) -> tuple[Planes, ...]:
    """Return the plan's entry of every plane, by plane number."""
    found = {number: entry for entry in worker.planes for number, _ in _numbered(entry)}
    return tuple(found[number] for number in sorted(found))


def extents(worker: Worker) -> tuple[Plane, ...]:
    """Return the memory extents of a worker's planes: every plane by number, in its first memory, then the planes with
    further blocks in a second memory, in that."""
    every = planes(worker)
    firsts = (replace(plane, memory=plane.memory.partition(BOTH)[0]) for plane in every)
    further = (replace(plane, memory=plane.memory.partition(BOTH)[2]) for plane in every if BOTH in plane.memory)
    return *firsts, *further


def further(worker: Worker) -> dict[int, int]:
    """Return the number of the second extent of every plane with blocks in two memories, by plane number."""
    every = planes(worker)
    numbers = [number for number, plane in enumerate(every) if BOTH in plane.memory]
    return {number: len(every) + place for place, number in enumerate(numbers)}


def strides(worker: Worker) -> Ints:
    """Return the block stride of every plane by number, in bytes."""
    return np.array([plane.stride for plane in planes(worker)], np.int64)


def _numbered(entry: Planes) -> list[tuple[int, Plane]]:
    choices = [list(enumerate(indices)) for _, indices, _ in entry.loops]
    return [_one(entry, chosen) for chosen in itertools.product(*choices)]


def _one(entry: Planes, chosen: tuple[tuple[int, int], ...]) -> tuple[int, Plane]:
    steps = [step for _, _, step in entry.loops]
    number = entry.first + sum(turn * step for (turn, _), step in zip(chosen, steps, strict=True))
    at = {axis: index for (axis, _, _), (_, index) in zip(entry.loops, chosen, strict=True)}
    layer = at.pop("layer", None)
    whose = entry.cache if layer is not None or entry.group == entry.cache else f"{entry.cache}@{entry.group}"
    words = [whose, layer, *at.values(), entry.part]
    name = ".".join(str(word) for word in words if word is not None)
    sizes = entry.page_bytes, entry.stride
    return number, Plane(name, entry.cache, entry.group, layer, tuple(at.items()), entry.part, *sizes, entry.memory)
