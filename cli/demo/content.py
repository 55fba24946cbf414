"""What the demo's caches hold: every byte follows from its logical coordinate alone, wherever it lies.

Addresses come from the compiler's oracle, which shares nothing with the plan that is on trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import numpy.typing as npt

from kvplan.cli.demo.rows import Ints, RequestShare, RowPlaces, Rule, slot, spot

if TYPE_CHECKING:
    from kvplan.compiler.check.oracle import OraclePlane, PageField

Bytes = npt.NDArray[np.uint8]
ODD = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD3A2646D, 0xFD7046C5)


def stamp(share: RequestShare, rule: Rule, into: Mapping[str, Bytes]) -> int:
    """Write the content of the rows that `rule` gives into a worker's planes, by name; returns the bytes written."""
    from kvplan.compiler.check import oracle

    planes = oracle.planes(share.side, share.side.workers[share.number])
    return sum(stamp_plane(share, rule, into[name], plane) for name, plane in planes.items())


def stamp_plane(share: RequestShare, rule: Rule, plane_bytes: Bytes, plane: OraclePlane) -> int:
    """Write all tensors of one plane; returns the bytes written."""
    flat = plane_bytes.reshape(-1)
    written = 0
    for field in plane.fields:
        for address, value in _pieces(plane, field, spot_of(share, rule, plane, field)):
            flat[address.reshape(-1)] = value.reshape(-1)
            written += value.size
    return written


def spot_of(share: RequestShare, rule: Rule, plane: OraclePlane, field: PageField) -> RowPlaces:
    """Where the rows of one tensor of a plane lie that `rule` gives."""
    cache = next(cache for cache in share.side.caches if cache.name == plane.cache)
    if plane.group.store == "state":
        return slot(share, cache, plane.group, rule)
    unit = field.tensor.tokens_per_row
    return spot(share, plane.group, rule(share, cache, unit), unit)


def _pieces(plane: OraclePlane, field: PageField, at: RowPlaces) -> Iterator[tuple[Ints, Bytes]]:
    """(addresses in the plane, bytes there) of every layer of a tensor."""
    tensor = field.tensor
    seed = crc32(f"{plane.cache}/{tensor.name}".encode())
    tokens = [axis for axis, (_, extent) in enumerate(tensor.axes) if not extent]
    others = [values for axis, (_, values) in enumerate(field.axes[1:]) if axis not in tokens]
    where = np.ix_(at.number, *others)
    block = (at.block * plane.stride).reshape(where[0].shape)
    for layer, offset in zip(field.axes[0][1].tolist(), field.offset, strict=True):
        first = block + (np.moveaxis(offset, tokens[0], 0)[at.row] if tokens else offset[None])
        yield first[..., None] + np.arange(tensor.size), content(seed + layer, where, tensor.size)


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
