"""Compare the memory of a decode worker, every byte of it, with what it must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.cli.demo_content import Ints, spot, stamp
from kvplan.cli.demo_memory import Memory
from kvplan.runtime.plan import Blocks

if TYPE_CHECKING:
    from kvplan.compiler.bound import BoundSide
    from kvplan.compiler.oracle import Plane


class WrongBytesError(Exception):
    """A decode worker does not hold what it must, or something was written that nobody asked for."""


def check(
    side: BoundSide, number: int, tables: Mapping[str, Blocks], tokens: tuple[int, int], memory: Memory, before: Memory
) -> tuple[int, int]:
    """(bytes of content, bytes compared) of worker `number`. Raises WrongBytesError at the first unlike byte.

    `before` is the memory as it was; it becomes what is expected. Only padding of the request's own blocks may
    have changed beside the content: a run that is posted whole may carry the padding between its spans along.
    """
    planes = _touched(side, number, tables, tokens)
    for name, (plane, blocks) in planes.items():
        chosen = np.ix_(blocks, np.flatnonzero(padding(plane)))
        before.planes[name][chosen] = memory.planes[name][chosen]
    written = stamp(side, number, tables, tokens, before.planes)
    for got, expected in zip(memory.arenas, before.arenas, strict=True):
        if not np.array_equal(got, expected):
            owners = {name: blocks for name, (_, blocks) in planes.items()}
            raise WrongBytesError(f"decode worker {number}: {_where(memory, before, owners)}")
    return written, sum(arena.nbytes for arena in memory.arenas)


def _touched(
    side: BoundSide, number: int, tables: Mapping[str, Blocks], tokens: tuple[int, int]
) -> dict[str, tuple[Plane, Ints]]:
    """Every plane of a worker by name, with the kernel blocks (or slots) that hold something of the request."""
    from kvplan.compiler import oracle

    worker = side.workers[number]
    spots = {group.name: spot(side, worker, group, tables[group.name], tokens) for group in side.groups}
    found = oracle.planes(side, worker)
    return {name: (plane, np.unique(spots[plane.group.name].block)) for name, plane in found.items()}


def padding(plane: Plane) -> npt.NDArray[np.bool_]:
    """Which bytes from one block to the next belong to no tensor."""
    free = np.ones(plane.stride, np.bool_)
    for field in plane.fields:
        free[(field.offset[..., None] + np.arange(field.tensor.size)).reshape(-1)] = False
    return free


def _where(memory: Memory, expected: Memory, owners: Mapping[str, Ints]) -> str:
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
