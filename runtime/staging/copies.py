"""Strided copies between a stage and the pages of a pool, computed once from a table's nests. Units are bytes.

A stage has images of the peer's pages (plan/stage.py); the pool is this process's. One copy has equal spans in planes,
blocks and loops, and numpy or torch makes it in one call (views.py). Nothing here moves a byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from kvplan.plan import expand as rows
from kvplan.plan.stage import StageImage
from kvplan.plan.types import Ints, Loop, Nest
from kvplan.runtime.errors import AddressError
from kvplan.runtime.memory.geometry import Geometry

# Spans of fewer bytes than this are copied faster as items of 16 bytes than as rows of 8: a row costs some nanoseconds.
SHORT = 64
# A loop, or the tokens of a run: count, step in the stage, step in the pool.
Repeat = tuple[int, int, int]
Hops = tuple[Repeat, ...]
T = TypeVar("T")
Steps = TypeVar("Steps", bound=tuple[int, ...])


@dataclass(frozen=True, slots=True)
class NestPlanes:
    """A nest by planes: the first span of each pair of planes as a row of plan/expand.py, with its loops and hops."""

    firsts: Ints
    loops: tuple[Loop, ...] = ()
    hops: Hops = ()


@dataclass(frozen=True)
class StridedCopy:
    """Spans of `bytes` bytes that lie in the same way in some planes and in any block.

    If the stage has N blocks, the span of plane p in the n-th one is at (`row` + p * `row_step`) * N + n * `row_bytes`
    + `inside`. In block b of the pool it is at `address` + p * `address_step` + b * `stride`. `page` are the bytes of
    the page before and after `address`. `token` are the steps to the next row of tokens, until `at` has placed them.
    """

    planes: int
    row: int
    row_step: int
    row_bytes: int
    inside: int
    address: int
    address_step: int
    stride: int
    blocks: int
    region: int
    page: tuple[int, int]
    bytes: int
    loops: tuple[Repeat, ...]
    token: tuple[int, int] = (0, 0)
    hops: Hops = ()

    @property
    def moved(self) -> int:
        """Bytes that it copies in one block; for a table of tokens, in one row of tokens."""
        return self.planes * self.bytes * math.prod(count for count, _, _ in self.loops)

    @cached_property
    def width(self) -> int:
        """Bytes of the widest item that divides all its addresses and steps."""
        steps = [step for _, *both in self.loops for step in both]
        numbers = (self.row, self.row_step, self.row_bytes, self.inside, self.address, self.address_step, self.stride)
        common = math.gcd(self.bytes, *numbers, *steps)
        return min(common & -common, 16 if self.bytes < SHORT else 8)

    @property
    def images(self) -> Ints:
        """The spans that it copies of a block's image, as rows (start of the image row, first byte in it, bytes)."""
        inside = np.array([self.inside])
        size, loops = run_on(self.bytes, [(count, step) for count, step, _ in self.loops])
        for count, step in loops:
            inside = (inside[:, None] + np.arange(count) * step).ravel()
        found = np.empty((self.planes, len(inside), 3), np.int64)
        found[:, :, 0] = self.row + self.row_step * np.arange(self.planes)[:, None]
        found[:, :, 1], found[:, :, 2] = inside, size
        return found.reshape(-1, 3)

    def at(self, stage_token: int, pool_token: int, count: int) -> StridedCopy:
        """Return the copy of `count` rows of tokens from these on, which lie in one tile on both sides.

        Raises AddressError if it leaves the page or its image.
        """
        hops = [(stage_token // size * stage, pool_token // size * pool) for size, stage, pool in self.hops]
        inside = stage_token * self.token[0] + sum(stage for stage, _ in hops)
        address = pool_token * self.token[1] + sum(pool for _, pool in hops)
        return replace(
            self,
            inside=self.inside + inside,
            address=self.address + address,
            page=(self.page[0] + address, self.page[1] - address),
            loops=(*self.loops, (count, *self.token)),
            token=(0, 0),
            hops=(),
        ).joined()

    def joined(self) -> StridedCopy:
        """Return the same copy with spans joined that are adjacent on both sides. Raises AddressError as `at` does."""
        size, loops = run_on(self.bytes, self.loops)
        made = replace(self, bytes=size, loops=tuple(loops))
        made._check()
        return made

    def _check(self) -> None:
        stage, pool = self._reach(1), self._reach(2)
        imaged = self.inside + stage[0] >= 0 and self.inside + stage[1] <= self.row_bytes
        if not imaged or -pool[0] > self.page[0] or pool[1] > self.page[1]:
            raise AddressError("a copy of the plan leaves its page: compile the plan again")

    def _reach(self, side: int) -> tuple[int, int]:
        """Return first byte and end of a block's spans in the stage (1) or the pool (2), from the first span on."""
        steps = [(loop[0] - 1) * loop[side] for loop in self.loops]
        return sum(min(0, step) for step in steps), sum(max(0, step) for step in steps) + self.bytes


def run_on(size: int, loops: Iterable[Steps]) -> tuple[int, list[Steps]]:
    """Join spans of `size` bytes that are adjacent on all sides. Returns the size of the joined spans and their loops.

    A loop is its count, and its step in bytes on each side.
    """
    left = [loop for loop in loops if loop[0] > 1]
    while follows := [loop for loop in left if set(loop[1:]) == {size}]:
        size *= follows[0][0]
        left.remove(follows[0])
    return size, left


def by_planes(nest: Nest) -> NestPlanes:
    """Return a nest by planes: the loops over planes are expanded, those within a plane are kept."""
    across = tuple(loop for loop in nest.loops if loop.prefill[0] or loop.decode[0])
    within = tuple(loop for loop in nest.loops if not (loop.prefill[0] or loop.decode[0]))
    return NestPlanes(rows.expand_tokens((replace(nest, loops=across),)), within, nest.hops)


def copies(nests: Sequence[NestPlanes], staged: int, image: StageImage, pool: Geometry) -> tuple[StridedCopy, ...]:
    """Return the copies of nests; the pages of side `staged`, 0 for prefill and 1 for decode, are imaged.

    Raises AddressError for a nest that lies in no row of the image, or leaves a page.
    """
    return tuple(copy for nest in nests for copy in _copies(nest, staged, image, pool))


def _copies(nest: NestPlanes, staged: int, image: StageImage, pool: Geometry) -> Iterator[StridedCopy]:
    loops = tuple((loop.count, *_ordered(loop.prefill[1], loop.decode[1], staged)) for loop in nest.loops)
    hops = tuple((size, *_ordered(prefill, decode, staged)) for size, prefill, decode in nest.hops)
    every = [_single(first, staged, image, pool, loops, hops) for first in nest.firsts.tolist()]
    for alike in _equidistant(sorted(every, key=lambda copy: (copy.row, copy.address))):
        yield alike if any(alike.token) else alike.joined()


def _single(
    first: list[int], staged: int, image: StageImage, pool: Geometry, loops: tuple[Repeat, ...], hops: Hops
) -> StridedCopy:
    """Return the copy between one pair of planes."""
    (imaged, offset), (plane, at) = _ordered(*_places(first), staged)
    row = image.row(imaged, offset)
    if row < 0 or not 0 <= plane < len(pool.base):
        raise AddressError("a nest lies in no range of its table: compile the plan again")
    start, size, begin = (int(column[row]) for column in (image.start, image.bytes, image.offset))
    base, page, stride, blocks, region = (
        int(column[plane]) for column in (pool.base, pool.page, pool.stride, pool.count, pool.region)
    )
    token = _ordered(first[rows.P_TOKEN], first[rows.D_TOKEN], staged)
    return StridedCopy(
        1, start, 0, size, offset - begin, base + at, 0, stride, blocks, region, (at, page - at), first[rows.BYTES],
        loops, token, hops,
    )  # fmt: skip


def _places(first: list[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    return (first[rows.P_PLANE], first[rows.P_OFFSET]), (first[rows.D_PLANE], first[rows.D_OFFSET])


def _ordered(prefill: T, decode: T, staged: int) -> tuple[T, T]:
    """Return the two values in the order (stage, pool)."""
    return (decode, prefill) if staged else (prefill, decode)


def _equidistant(every: list[StridedCopy]) -> Iterator[StridedCopy]:
    """Yield copies of single planes merged into copies of several, if they lie at equal distances in one region."""
    at = 0
    while at < len(every):
        first, count = every[at], 1
        steps = _steps(first, every[at + 1]) if at + 1 < len(every) else None
        while steps and at + count < len(every) and _steps(every[at + count - 1], every[at + count]) == steps:
            count += 1
        row_step, address_step = steps or (0, 0)
        yield replace(first, planes=count, row_step=row_step, address_step=address_step)
        at += count


def _steps(one: StridedCopy, other: StridedCopy) -> tuple[int, int] | None:
    """Return the steps in stage and pool to the same copy in another plane; None if the copies cannot be merged.

    A copy at a lower address cannot be merged, because torch has no negative strides.
    """
    alike = replace(one, row=other.row, address=other.address) == other and one.address <= other.address
    return (other.row - one.row, other.address - one.address) if alike else None
