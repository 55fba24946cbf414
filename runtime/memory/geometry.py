"""Addresses of one worker's planes, in this process or a peer, checked against the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kvplan.plan import planes as names
from kvplan.plan.types import Group, Ints, Side
from kvplan.runtime.errors import AddressError, RegisterError
from kvplan.runtime.memory.arrays import TOP

# NIXL's names of a plan's kinds of memory.
MEM_TYPES = {"host": "DRAM", "device": "VRAM"}
# NIXL's name of the kind of memory, and the device's number.
Memory = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Columns by extent: base address, block stride, page, blocks (kernel blocks or slots), device, registered region.

    Extents are the planes by number, then the further blocks of planes that lie in two memories (plan/planes.py).
    `regions` are rows (address, bytes, device) of registered memory, with one of `mem_types` each.
    """

    base: Ints
    stride: Ints
    page: Ints
    count: Ints
    device: Ints
    region: Ints
    regions: Ints
    mem_types: tuple[str, ...]

    @property
    def end(self) -> Ints:
        """The end address of every extent's last page."""
        return self.base + (self.count - 1) * self.stride + self.page

    def chosen(self, extents: Ints) -> Geometry:
        """Return the geometry of only these extents."""
        names = ("base", "stride", "page", "count", "device", "region")
        return replace(self, **{name: getattr(self, name)[extents] for name in names})

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memory of every region."""
        return tuple(zip(self.mem_types, self.regions[:, 2].tolist(), strict=True))

    def by_type(self) -> Iterator[tuple[str, Ints]]:
        """Yield each memory type with its regions, which are registered together."""
        for mem_type in sorted(set(self.mem_types)):
            yield mem_type, self.regions[[one == mem_type for one in self.mem_types]]


def check(geometry: Geometry, side: Side, worker: int) -> None:
    """Raises RegisterError or AddressError if `geometry` does not fit the plan's worker, in whole logical blocks."""
    planes = names.extents(side.workers[worker])
    columns = (geometry.base, geometry.stride, geometry.page, geometry.count, geometry.device, geometry.region)
    if any(column.shape != (len(planes),) for column in columns) or geometry.regions.shape[1:] != (3,):
        raise RegisterError(f"worker {worker} has {len(planes)} ranges of pages in the plan, got {len(geometry.base)}")
    if len(geometry.mem_types) != len(geometry.regions):
        raise RegisterError(f"{len(geometry.regions)} regions have {len(geometry.mem_types)} memory types")
    if unknown := sorted(set(geometry.mem_types) - {*MEM_TYPES.values()}):
        raise RegisterError(f"memory type {unknown[0]!r} is unknown: use DRAM or VRAM")
    _check_numbers(geometry, planes)
    _check_memories(geometry, planes)
    _check_addresses(geometry, planes)
    _check_apart(geometry, side, planes)
    logical_blocks(geometry, side, worker)


def logical_blocks(geometry: Geometry, side: Side, worker: int) -> dict[str, int]:
    """Return the logical blocks (or slots) of every group. Raises RegisterError if planes of a group disagree."""
    groups = {group.name: group for group in side.groups}
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for plane, count in zip(names.extents(side.workers[worker]), geometry.count.tolist(), strict=True):
        key, blocks = (plane.group, plane.memory), _logical(plane, count, groups[plane.group])
        first, blocks = found.setdefault(key, (plane.name, blocks))
        if blocks * groups[plane.group].ratio != count:
            other = blocks * groups[plane.group].ratio
            raise RegisterError(f"{plane.name} has {count} blocks and {first} {other}: one group has one block table")
    every = Counter[str]()
    for (group, _), (_, blocks) in found.items():
        every[group] += blocks
    return dict(every)


def bridgeable(geometry: Geometry, side: Side, worker: int) -> npt.NDArray[np.bool_]:
    """Return which extents have only padding between a page's end and the next block, as a mask.

    Planes of other groups of the same arena count as padding: a block belongs to one group at a time.
    """
    planes, groups = names.extents(side.workers[worker]), {group.name: group for group in side.groups}
    free = np.ones(len(planes), np.bool_)
    for low, high in _intersecting(geometry):
        if not groups[planes[low].group].overlays(groups[planes[high].group]):
            free[[low, high]] = False
    return free


def _intersecting(geometry: Geometry) -> Iterator[tuple[int, int]]:
    """Yield pairs of extents whose ranges of memory intersect, the one with the lower base first."""
    base, end, memories = geometry.base.tolist(), geometry.end.tolist(), geometry.memories
    memory = [memories[region] for region in geometry.region.tolist()]
    active: list[int] = []
    for number in np.argsort(geometry.base, kind="stable").tolist():
        active = [other for other in active if end[other] > base[number]]
        yield from ((other, number) for other in active if memory[other] == memory[number])
        active.append(number)


def _check_apart(geometry: Geometry, side: Side, planes: tuple[names.Plane, ...]) -> None:
    groups = {group.name: group for group in side.groups}
    for low, high in _intersecting(geometry):
        distance = int(geometry.base[high]) - int(geometry.base[low])
        ends = planes[low], planes[high]
        if groups[ends[0].group].overlays(groups[ends[1].group]):
            _check_overlay(ends, (groups[ends[0].group], groups[ends[1].group]), distance)
        elif _pages_meet(*ends, distance):
            text = f"the pages of {ends[0].name} and {ends[1].name} share bytes"
            raise RegisterError(f"{text} at {int(geometry.base[high]):#x}: give every plane memory of its own")


def _check_overlay(planes: tuple[names.Plane, names.Plane], groups: tuple[Group, Group], distance: int) -> None:
    """Check that an id names the same bytes in groups that overlay each other, so that other ids stay untouched."""
    block = [plane.stride * group.ratio for plane, group in zip(planes, groups, strict=True)]
    used = [size - plane.stride + plane.page for size, plane in zip(block, planes, strict=True)]
    if block[0] != block[1] or distance + used[1] > block[0]:
        text = f"{planes[0].name} and {planes[1].name} overlay each other, {distance} bytes apart"
        text += f", with logical blocks of {block[0]} and {block[1]} bytes: one id would be the bytes of another"
        raise RegisterError(f"{text}. Begin both at one address, with blocks of one size, or give them memory apart")


def _pages_meet(low: names.Plane, high: names.Plane, distance: int) -> bool:
    """Return whether any pages of two planes intersect, whose ranges do and whose bases are `distance` apart."""
    if low.stride != high.stride:
        return True
    return distance % low.stride < low.page or low.stride - distance % low.stride < high.page


def _logical(plane: names.Plane, count: int, group: Group) -> int:
    if count % group.ratio:
        raise RegisterError(
            f"{plane.name} has {count} kernel blocks, not a whole number of logical blocks of {group.ratio}: "
            "allocate whole logical blocks"
        )
    return count // group.ratio


def _check_numbers(geometry: Geometry, planes: tuple[names.Plane, ...]) -> None:
    for number, plane in enumerate(planes):
        if geometry.stride[number] != plane.stride or geometry.page[number] != plane.page:
            got = f"pages of {geometry.page[number]} bytes {geometry.stride[number]} bytes apart"
            raise RegisterError(f"{plane.name} has {got}, the plan says {plane.page} and {plane.stride}")
        if geometry.count[number] < 1:
            raise RegisterError(f"{plane.name} has no blocks")
        if not 0 <= geometry.region[number] < len(geometry.regions):
            raise RegisterError(f"{plane.name} lies in no registered memory")


def _check_memories(geometry: Geometry, planes: tuple[names.Plane, ...]) -> None:
    """Raises RegisterError if a plane's memory is not of its side's kind, or if planes lie in two and it names none."""
    types = [geometry.mem_types[region] for region in geometry.region.tolist()]
    free: dict[str, names.Plane] = {}
    for plane, mem_type in zip(planes, types, strict=True):
        if not plane.memory:
            free.setdefault(mem_type, plane)
        elif mem_type != MEM_TYPES[plane.memory]:
            raise RegisterError(
                f"{plane.name} lies in {mem_type}, its side says {plane.memory} memory ({MEM_TYPES[plane.memory]}): "
                f"allocate it there, or compile the side with memory.{plane.cache}={_word(mem_type)}"
            )
    if len(free) > 1:
        host, device = free["DRAM"], free["VRAM"]
        raise RegisterError(
            f"{host.name} lies in DRAM and {device.name} in VRAM, and the side does not say which caches lie where: "
            f"compile it with memory.{host.cache}=host"
        )


def _word(mem_type: str) -> str:
    return next(word for word, name in MEM_TYPES.items() if name == mem_type)


def _check_addresses(geometry: Geometry, planes: tuple[names.Plane, ...]) -> None:
    for number, plane in enumerate(planes):
        # Python's integers do not wrap, numpy's do.
        base, count = int(geometry.base[number]), int(geometry.count[number])
        start, size, device = (int(value) for value in geometry.regions[geometry.region[number]])
        end = base + (count - 1) * plane.stride + plane.page
        if not 0 < start <= base < end <= start + size < TOP:
            raise AddressError(
                f"{plane.name} at [{base:#x}, {end:#x}) leaves its memory [{start:#x}, {start + size:#x})"
            )
        if device < 0 or device != geometry.device[number]:
            raise AddressError(f"{plane.name} is on device {geometry.device[number]}, its memory on {device}")
