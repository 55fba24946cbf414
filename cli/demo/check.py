"""Compare the memory of a decode worker, every byte of it, with what it must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.cli.demo.content import spot_of, stamp
from kvplan.cli.demo.memory import DemoMemory
from kvplan.cli.demo.rows import Ints, RequestShare, arrived

if TYPE_CHECKING:
    from kvplan.compiler.check.oracle import OraclePlane


class WrongBytesError(Exception):
    """A decode worker does not hold what it must, or something was written that nobody asked for."""


def check(share: RequestShare, memory: DemoMemory, before: DemoMemory) -> tuple[int, int]:
    """(bytes of content, bytes compared) of a decode worker. Raises WrongBytesError at the first unlike byte.

    `before` is the memory as it was; it becomes what is expected: what must have arrived, cache by cache, and all else
    as it was. Only padding of blocks that something arrived in may have changed beside it: a run that is posted whole
    may carry the padding between its spans along.
    """
    planes = _touched(share)
    for name, (plane, blocks) in planes.items():
        chosen = np.ix_(blocks, np.flatnonzero(padding(plane)))
        before.planes[name][chosen] = memory.planes[name][chosen]
    written = stamp(share, arrived, before.planes)
    for got, expected in zip(memory.arenas, before.arenas, strict=True):
        if not np.array_equal(got, expected):
            dealt = {name: _dealt(share, plane) for name, (plane, _) in planes.items()}
            raise WrongBytesError(f"decode worker {share.number}: {_where(memory, before, dealt)}")
    return written, sum(arena.nbytes for arena in memory.arenas)


def _touched(share: RequestShare) -> dict[str, tuple[OraclePlane, Ints]]:
    """Every plane of a worker by name, with the kernel blocks (or slots) that something must have arrived in."""
    from kvplan.compiler.check import oracle

    found = oracle.planes(share.side, share.side.workers[share.number])
    return {name: (plane, _blocks(share, plane)) for name, plane in found.items()}


def _blocks(share: RequestShare, plane: OraclePlane) -> Ints:
    return np.unique(np.concatenate([spot_of(share, arrived, plane, field).block for field in plane.fields]))


def _dealt(share: RequestShare, plane: OraclePlane) -> Ints:
    """The kernel blocks (or slots) of a plane that are the request's."""
    ids, ratio = share.tables[plane.group.name].ids, plane.group.ratio
    blocks: Ints = ids[ids >= 0, None] * ratio + np.arange(ratio)
    return blocks.reshape(-1)


def padding(plane: OraclePlane) -> npt.NDArray[np.bool_]:
    """Which bytes from one block to the next belong to no tensor."""
    free = np.ones(plane.stride, np.bool_)
    for field in plane.fields:
        free[(field.offset[..., None] + np.arange(field.tensor.size)).reshape(-1)] = False
    return free


def _where(memory: DemoMemory, expected: DemoMemory, owners: Mapping[str, Ints]) -> str:
    """The first unlike byte in words: by the plane that owns the block, since planes may lie over each other."""
    every = {name: np.arange(len(view)) for name, view in memory.planes.items()}
    for name, blocks in (*owners.items(), *every.items()):
        got, want = memory.planes[name][blocks], expected.planes[name][blocks]
        unlike = np.argwhere(got != want)
        if unlike.size:
            row, offset = unlike[0]
            what = (
                f"plane {name}, block {blocks[row]}, byte {offset} is {got[row, offset]}, must be {want[row, offset]}"
            )
            return f"{what} ({len(unlike):,} bytes of the plane are wrong)"
    return "a byte outside every plane was written"
