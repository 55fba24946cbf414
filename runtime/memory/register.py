"""Check the cache memory of a worker against its side of the plan, before anything is registered with a transport."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvplan.plan import planes as names
from kvplan.plan.types import Ints, Planes, Side, View
from kvplan.runtime.errors import CacheMemoryError, RegisterError
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.arrays import Memory, MemoryArray, contiguous, describe, span
from kvplan.runtime.memory.axes import Axis, advice, common_axes, page_axes, tensor_axes, tensor_axis
from kvplan.runtime.memory.geometry import Geometry

Key = str | tuple[str, str]
# How many names an error lists.
SHOWN = 5
Arrays = Mapping[str, Any] | Mapping[tuple[str, str], Any] | Mapping[Key, Any]


@dataclass(frozen=True, slots=True)
class Pool:
    """The checked cache memory of one worker. `blocks` are logical blocks (or slots) by group.

    `owners` keep the memory alive as long as the pool exists. `further` has, by plane, the second extents of planes
    whose blocks lie in two memories.
    """

    side: Side
    worker: int
    geometry: Geometry
    blocks: Mapping[str, int]
    writable: bool
    owners: tuple[object, ...]
    further: Mapping[int, int]

    def check(self, worker: int, side: str, name: str) -> None:
        """Raises RegisterError unless this is the memory of the worker, called `name`, of the side with this digest."""
        if self.worker != worker or self.side.digest != side:
            raise RegisterError(f"the pool is not that of {name} of this side: call views again")


@dataclass(frozen=True, slots=True)
class _Found:
    base: int
    count: int
    arrays: tuple[MemoryArray, ...]


def views(side: Side, worker: int, arrays: Arrays) -> Pool:
    """Return a pool of arrays by plane name, or by (plane name, tensor) with the block and then the tensor's own axes.

    A plane's array has one page per kernel block (or slot): axis 0 is the block, `stride` bytes apart, and a page's
    bytes are contiguous; or it is flat, blocks x stride bytes. A page has the axes and items of its tensors, and its
    last axis may pack the remaining ones; or it has bytes. A plane whose blocks lie in two memories is a pair of
    arrays, in the order that the side declares: the first array has the first block ids. Raises RegisterError,
    CacheMemoryError or AddressError if anything is missing, unknown, or not exactly as in the plan.
    """
    if not isinstance(worker, int) or not 0 <= worker < len(side.workers):
        raise RegisterError(f"worker {worker!r} is none of this side's {len(side.workers)}, numbered from 0")
    if not isinstance(arrays, Mapping):
        raise RegisterError(f"arrays are a mapping by plane, not {type(arrays).__name__}")
    planes = names.planes(side.workers[worker])
    entries = dict(zip((plane.name for plane in planes), names.entries(side.workers[worker]), strict=True))
    given, extents = _by_plane({plane.name: plane for plane in planes}, arrays), names.extents(side.workers[worker])
    second = [number >= len(planes) for number in range(len(extents))]
    found = [
        _plane(side.key, plane, entries[plane.name], {name: both[at] for name, both in given[plane.name].items()})
        for plane, at in zip(extents, second, strict=True)
    ]
    every = [array for one in found for array in one.arrays]
    pool = _geometry(extents, found)
    shape.check(pool, side, worker)
    blocks = shape.logical_blocks(pool, side, worker)
    writable, owners = all(a.writable for a in every), tuple(a.owner for a in every)
    return Pool(side, worker, pool, blocks, writable, owners, names.further(side.workers[worker]))


def _by_plane(known: Mapping[str, names.Plane], arrays: Arrays) -> dict[str, dict[str | None, list[MemoryArray]]]:
    """Return the given arrays by plane and tensor (None for whole pages), one for each memory of the plane."""
    found: dict[str, dict[str | None, list[MemoryArray]]] = {}
    for key, value in arrays.items():
        plane, tensor = _names_of(key)
        if plane not in known:
            raise RegisterError(f"this worker has no plane {plane!r}{_hint(plane, known, 'plane')}")
        found.setdefault(plane, {})[tensor] = _parts(known[plane], value)
    if missing := [name for name in known if name not in found]:
        said = f"plane {missing[0]} is" if len(missing) == 1 else f"planes {_listed(missing)} are"
        raise RegisterError(f"{said} not covered, {len(missing)} of {len(known)}: pass the memory of every plane")
    return found


def _parts(plane: names.Plane, value: Any) -> list[MemoryArray]:
    """Return an array for each memory of a plane."""
    first, both, second = plane.memory.partition(names.BOTH)
    if not both:
        return [_described(plane.name, value)]
    if not isinstance(value, tuple | list) or len(value) != 2:
        text = f"the blocks of {plane.name} lie in two memories, the first ones in {first} memory, others in {second}"
        raise RegisterError(f"{text} memory: pass two arrays, in this order")
    return [_described(plane.name, part) for part in value]


def _described(plane: str, value: Any) -> MemoryArray:
    try:
        return describe(value)
    except CacheMemoryError as error:
        raise CacheMemoryError(f"{plane}: {error}") from error


def _names_of(key: object) -> tuple[str, str | None]:
    match key:
        case str():
            return key, None
        case (str() as plane, str() as tensor):
            return plane, tensor
    raise RegisterError(f"{key!r} names no memory: use the name of a plane, or (plane, tensor)")


def _hint(name: str, known: Collection[str], what: str) -> str:
    """Return a hint that lists the known names: those nearest to `name` first, then the others in order."""
    within = [other for other in known if other.startswith(f"{name}.")]
    near = within or difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    every = _listed([*near, *(other for other in known if other not in near)])
    return f"{hint} It has {len(known)} {what}{'' if len(known) == 1 else 's'}: {every}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*names[:SHOWN], *([f"{len(names) - SHOWN} more"] if len(names) > SHOWN else [])])


def _plane(side: str, plane: names.Plane, entry: Planes, given: Mapping[str | None, MemoryArray]) -> _Found:
    if None in given and len(given) > 1:
        raise RegisterError(f"plane {plane.name} is given as pages and by tensor: give one of them")
    return _pages(side, plane, entry, given[None]) if None in given else _tensors(side, plane, entry, given)


def _pages(side: str, plane: names.Plane, entry: Planes, array: MemoryArray) -> _Found:
    _check_items(plane, entry, array)
    if len(array.shape) == 1:
        return _flat(plane, array)
    count = array.shape[0] if array.shape else 0
    if not count:
        raise RegisterError(f"{plane.name}: an array of shape {array.shape} has no blocks")
    if fault := _strides_fault(plane, array) or _axes_fault(entry, array):
        raise RegisterError(f"{plane.name}: {fault}{advice(page_axes(side, entry), array)}")
    return _Found(array.address, count, (array,))


def _strides_fault(plane: names.Plane, array: MemoryArray) -> str:
    """Return how the blocks of a plane or the bytes of a page differ from the plan, or an empty text."""
    inner = span(array.shape[1:], array.strides[1:], array.itemsize)
    if array.shape[0] > 1 and array.strides[0] != plane.stride:
        return f"blocks lie {array.strides[0]} bytes apart, the plan says {plane.stride}"
    if not contiguous(array.shape[1:], array.strides[1:], array.itemsize):
        return f"a page of shape {array.shape[1:]} is not contiguous, strides {array.strides}"
    enough = isinstance(array.owner, Memory) and plane.page <= inner <= plane.stride
    if inner not in (plane.page, plane.stride) and not enough:
        return f"a page has {inner} bytes, the plan says {plane.page}"
    return ""


def _check_items(plane: names.Plane, entry: Planes, array: MemoryArray) -> None:
    """Check that items are bytes, or as large as the elements of every tensor of the page."""
    sizes = {element(view.dtype) for view in entry.views}
    if array.itemsize != 1 and sizes != {array.itemsize}:
        dtypes = ", ".join(sorted({view.dtype for view in entry.views}))
        text = f"{plane.name}: elements of {array.itemsize} bytes, the plan says {dtypes}"
        raise RegisterError(f"{text}: pass the engine's own dtype, or bytes")


def _axes_fault(entry: Planes, array: MemoryArray) -> str:
    """Return how axes differ from those of a page's tensors, or an empty text. The last axis may pack the others."""
    inner = zip(array.shape[1:-1], array.strides[1:-1], strict=True)
    given, common = [axis for axis in inner if axis[0] > 1], common_axes(entry.views)
    if any(given == order[: len(given)] for order in _orders(common, tensor_axis(entry.views))):
        return ""
    said = ", ".join(f"{name} ({extent}, {step})" for name, extent, step in common)
    return f"a page has the axes (extent, bytes apart) {', '.join(map(str, given))}; the plan says {said or 'none'}"


def _orders(common: tuple[Axis, ...], tensors: Axis | None) -> list[list[tuple[int, int]]]:
    """Return the (extent, step) of the tensors' common axes, also with the tensors as one more axis at each place."""
    axes = [axis[1:] for axis in common]
    with_tensors = [[*axes[:at], tensors[1:], *axes[at:]] for at in range(len(axes) + 1)] if tensors else []
    return [axes, *with_tensors]


def _flat(plane: names.Plane, array: MemoryArray) -> _Found:
    if not array.dense or not array.nbytes or array.nbytes % plane.stride:
        raise RegisterError(
            f"{plane.name}: a flat array of {array.nbytes} bytes is not whole blocks of {plane.stride} bytes"
        )
    return _Found(array.address, array.nbytes // plane.stride, (array,))


def _tensors(side: str, plane: names.Plane, entry: Planes, given: Mapping[str | None, MemoryArray]) -> _Found:
    known = {view.tensor: view for view in entry.views}
    if unknown := sorted({str(name) for name in given} - {*known}):
        raise RegisterError(f"plane {plane.name} has no tensor {unknown[0]!r}{_hint(unknown[0], known, 'tensor')}")
    if missing := [name for name in known if name not in given]:
        raise RegisterError(f"plane {plane.name}: pass all tensors or none; not covered: {_listed(missing)}")
    found = [_tensor(side, plane, entry, known[str(name)], array) for name, array in sorted(given.items(), key=str)]
    if len({(one.base, one.count) for one in found}) > 1:
        raise RegisterError(f"the tensors of plane {plane.name} do not lie in one page at the plan's offsets")
    return _Found(found[0].base, found[0].count, tuple(one.arrays[0] for one in found))


def _tensor(side: str, plane: names.Plane, entry: Planes, view: View, array: MemoryArray) -> _Found:
    name, size = f"{plane.name} {view.tensor}", element(view.dtype)
    if size is None or size != array.itemsize:
        raise RegisterError(f"{name}: elements of {array.itemsize} bytes, the plan says {view.dtype} ({size} bytes)")
    if fault := _tensor_fault(plane, view, array):
        raise RegisterError(f"{name}: {fault}{advice(tensor_axes(side, entry, view, size), array)}")
    return _Found(array.address - view.offset, array.shape[0], (array,))


def _tensor_fault(plane: names.Plane, view: View, array: MemoryArray) -> str:
    """Return how a tensor's shape or strides differ from the plan, or an empty text."""
    shape_, strides = tuple(count for _, count, _ in view.axes), tuple(step for _, _, step in view.axes)
    if array.shape[1:] != shape_ or not array.shape[:1] or not array.shape[0]:
        axes = "".join(f", {axis} {count}" for axis, count, _ in view.axes)
        return f"shape {array.shape}, the plan says (blocks{axes})"
    wrong = [index for index, got in enumerate(array.strides[1:]) if shape_[index] > 1 and got != strides[index]]
    if wrong or (array.shape[0] > 1 and array.strides[0] != plane.stride):
        return f"strides {array.strides} bytes, the plan says {(plane.stride, *strides)}"
    return ""


def element(dtype: str) -> int | None:
    """Return the bytes of an element of a dtype such as bf16, fp8, fp8_e4m3 or u8, or None if the name has no width."""
    bits = re.match(r"[a-z]+(\d+)", dtype)
    return int(bits[1]) // 8 if bits and int(bits[1]) % 8 == 0 else None


def _geometry(planes: tuple[names.Plane, ...], found: list[_Found]) -> Geometry:
    base = np.array([one.base for one in found], np.int64)
    count = np.array([one.count for one in found], np.int64)
    stride, page = (np.array([getattr(plane, name) for plane in planes], np.int64) for name in ("stride", "page"))
    device = np.array([one.arrays[0].device for one in found], np.int64)
    ends = [one.base + (one.count - 1) * plane.stride + plane.page for one, plane in zip(found, planes, strict=True)]
    return Geometry(base, stride, page, count, device, *_regions(planes, found, ends))


def _regions(
    planes: tuple[names.Plane, ...], found: list[_Found], ends: list[int]
) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Return the number of each plane's region, the regions, and their memory types.

    Each allocation is one region: many small registrations are slow, and descriptors cannot merge across them.
    """
    for plane, one, end in zip(planes, found, ends, strict=True):
        start, size = one.arrays[0].allocation
        if not start <= one.base < end <= start + size:
            raise RegisterError(f"{plane.name} at [{one.base:#x}, {end:#x}) leaves its allocation at {start:#x}")
    places = [((one.arrays[0].mem_type, one.arrays[0].device), *one.arrays[0].allocation) for one in found]
    clusters = _clusters(places)
    rows, mem_types = np.zeros((max(clusters, default=-1) + 1, 3), np.int64), list[str]()
    for number in range(len(rows)):
        members = [index for index, cluster in enumerate(clusters) if cluster == number]
        start, (mem_type, device) = min(found[index].base for index in members), places[members[0]][0]
        rows[number] = start, max(ends[index] for index in members) - start, device
        mem_types.append(mem_type)
    return np.array(clusters, np.int64), rows, tuple(mem_types)


def _clusters(allocations: list[tuple[shape.Memory, int, int]]) -> list[int]:
    """Return the cluster of each (memory, address, bytes): overlapping ones share one, those that only touch do not."""
    number, memory, reach, numbers = -1, ("", -1), -1, dict[tuple[shape.Memory, int, int], int]()
    for where, start, size in sorted(set(allocations)):
        if where != memory or start >= reach:
            number, memory, reach = number + 1, where, start
        reach = max(reach, start + size)
        numbers[where, start, size] = number
    return [numbers[allocation] for allocation in allocations]
