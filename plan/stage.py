"""The stage: the image of one side's pages in a buffer, through which a table's bytes go. Units are bytes.

An image row is one range of one plane's page. The stage holds N blocks, image row by image row, and in each image
row block by block: byte b of row r of the n-th block lies at `start[r] * N + n * bytes[r] + b`. The wire copies
image rows as they are, and the table copies between the image and the other side's pages: together they are the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from kvplan.plan.types import Ints, Loop, Nest, PageRange, Table


def way(table: Table, push: bool) -> Literal["", "pack", "unpack"]:
    """Return the way of a table's bytes if prefill pushes, or decode pulls: through a stage, or empty for direct.

    The side that posts owns the stage if the table has ranges for that, otherwise the other side.
    """
    ways: tuple[Literal["pack", "unpack"], ...] = ("pack", "unpack") if push else ("unpack", "pack")
    return next((way for way in ways if getattr(table, way)), "")


@dataclass(frozen=True, slots=True)
class StageImage:
    """Image rows in the order of the stage. `start` is a row's first byte in a stage of one block, `size` its bytes.

    `plane` and `offset` are those of the imaged page, counted as the ranges count them.
    """

    plane: Ints
    offset: Ints
    bytes: Ints
    start: Ints
    size: int

    def row(self, plane: int, offset: int) -> int:
        """Return the row with byte `offset` of a plane's page, -1 for none."""
        after = offset - self.offset
        at = np.flatnonzero((self.plane == plane) & (after >= 0) & (after < self.bytes))
        return int(at[0]) if len(at) else -1


def image(ranges: tuple[PageRange, ...]) -> StageImage:
    """Return the image of these ranges, range after range, and in each range plane after plane."""
    rows = [(r.plane + turn * r.step, r.offset, r.bytes) for r in ranges for turn in range(r.planes)]
    plane, offset, size = np.array(rows, np.int64).reshape(-1, 3).T
    ends = np.cumsum(size)
    return StageImage(plane, offset, size, ends - size, int(size.sum()))


def extent(nest: Nest, side: int, tokens: int = 1) -> tuple[int, int]:
    """Return the first byte and the end of a nest in a page of side 0 (prefill) or 1 (decode), in any plane.

    `tokens` are the rows of a page, over which a nest of a table of tokens repeats.
    """
    low = high = (nest.prefill, nest.decode)[side][1]
    for loop in nest.loops:
        reach = (loop.count - 1) * _step(loop, side)[1]
        low, high = low + min(0, reach), high + max(0, reach)
    last = tokens - 1
    token = (nest.token_step[side] if nest.token_step else 0) * last
    hops = sum(last // hop[0] * hop[1 + side] for hop in nest.hops)
    return low, high + token + hops + nest.bytes


def moved_bytes(nest: Nest, tokens: int = 1) -> int:
    """Return the bytes of all spans of a nest, over `tokens` rows of a page if it is in a table of tokens."""
    return nest.bytes * prod(loop.count for loop in nest.loops) * (tokens if nest.token_step else 1)


def plane_loops(nest: Nest, side: int) -> list[Loop]:
    """Return the loops that lead from plane to plane on one side."""
    return [loop for loop in nest.loops if _step(loop, side)[0]]


def planes(nest: Nest, side: int) -> list[int]:
    """Return the planes that a nest touches on one side, each once, counted as the nest counts them."""
    found = {(nest.prefill, nest.decode)[side][0]}
    for loop in plane_loops(nest, side):
        found = {plane + turn * _step(loop, side)[0] for plane in found for turn in range(loop.count)}
    return sorted(found)


def _step(loop: Loop, side: int) -> tuple[int, int]:
    return (loop.prefill, loop.decode)[side]
