"""What the demo's caches hold: every byte follows from its logical coordinate alone, wherever it lies.

Addresses come from the compiler's oracle, which shares nothing with the plan that is on trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import numpy.typing as npt

from kvplan.runtime.plan import Blocks

if TYPE_CHECKING:
    from kvplan.compiler.bound import BoundGroup, BoundSide, BoundWorker
    from kvplan.compiler.oracle import Field, Plane

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
ODD = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD3A2646D, 0xFD7046C5)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the tokens of a request lie on one worker: kernel block (or slot), token in it, global token; as long."""

    block: Ints
    row: Ints
    token: Ints


def stamp(
    side: BoundSide, number: int, tables: Mapping[str, Blocks], tokens: tuple[int, int], into: Mapping[str, Bytes]
) -> int:
    """Write the content of `tokens` into the planes of worker `number`, by plane name; returns the bytes written."""
    from kvplan.compiler import oracle

    worker = side.workers[number]
    planes = oracle.planes(side, worker)
    spots = {group.name: spot(side, worker, group, tables[group.name], tokens) for group in side.groups}
    return sum(stamp_plane(into[name], plane, spots[plane.group.name]) for name, plane in planes.items())


def spot(side: BoundSide, worker: BoundWorker, group: BoundGroup, table: Blocks, tokens: tuple[int, int]) -> Spot:
    """Where `worker` keeps `tokens` of `group`, by the rule of who holds which token; a state has one spot."""
    if group.store == "state":
        zero = np.zeros(1, np.int64)
        return Spot(table.ids.astype(np.int64), zero, zero)
    token = np.arange(*tokens, dtype=np.int64)
    token = token[token // side.chunk % side.ways == worker.turn]
    local = token // (side.ways * side.chunk) * side.chunk + token % side.chunk
    position, within = np.divmod(local, group.tokens)
    block = table.ids[position - table.first] * group.ratio + within // group.kernel
    return Spot(block, within % group.kernel, token)


def stamp_plane(plane_bytes: Bytes, plane: Plane, at: Spot) -> int:
    """Write all tensors of one plane; returns the bytes written."""
    flat = plane_bytes.reshape(-1)
    written = 0
    for address, value in pieces(plane, at):
        flat[address.reshape(-1)] = value.reshape(-1)
        written += value.size
    return written


def pieces(plane: Plane, at: Spot) -> Iterator[tuple[Ints, Bytes]]:
    """(addresses in the plane, bytes there) of every tensor and layer of a plane."""
    for field in plane.fields:
        yield from _field(plane, field, at)


def _field(plane: Plane, field: Field, at: Spot) -> Iterator[tuple[Ints, Bytes]]:
    tensor = field.tensor
    seed = crc32(f"{plane.cache}/{tensor.name}".encode())
    axis = next((i for i, (_, extent) in enumerate(tensor.axes, start=1) if not extent), None)
    for index, layer in enumerate(field.axes[0][1]):
        numbers = [values for _, values in field.axes[1:]]
        offset = field.offset[index][None]
        row = np.zeros_like(at.row)
        if axis is not None:
            offset = np.moveaxis(field.offset[index], axis - 1, 0)
            row = at.row // tensor.unit
            numbers.pop(axis - 1)
        first = (at.block * plane.stride).reshape(-1, *[1] * len(numbers)) + offset[row]
        where = np.ix_(at.token // tensor.unit, *numbers)
        yield first[..., None] + np.arange(tensor.size), content(seed + int(layer), where, tensor.size)


def content(seed: int, where: tuple[Ints, ...], size: int) -> Bytes:
    """The `size` bytes of every element whose coordinates the mesh `where` gives."""
    value = np.asarray(np.uint32(seed * 0x61C88647 & 0xFFFFFFFF))
    for factor, coordinate in zip(ODD, where, strict=False):
        value = value + coordinate.astype(np.uint32) * np.uint32(factor)
    value = value[..., None] + np.arange(size, dtype=np.uint32) * np.uint32(ODD[-1])
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        value ^= value >> np.uint32(shift)
        value *= np.uint32(factor)
    return (value >> np.uint32(24)).astype(np.uint8)
