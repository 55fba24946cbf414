"""Nests between two random layouts of one array, and their bytes copied one span at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from kvplan.plan.stage import StageImage, extent, image, planes
from kvplan.plan.types import Ints, Loop, Nest, PageRange, Runs
from kvplan.runtime.memory.geometry import Geometry

Bytes = npt.NDArray[np.uint8]
AXES = "ab"
BLOCKS = 9


@dataclass(frozen=True, slots=True)
class Side:
    """Steps by axis in bytes, `token` among them; tiles of `tile` tokens lie `hop` bytes further still."""

    steps: dict[str, int]
    offset: int
    tile: int
    hop: int
    plane_step: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """A nest of a table of tokens, and how many there are in a page."""

    nest: Nest
    tokens: int
    pages: tuple[int, int]
    planes: tuple[int, int]


@st.composite
def nests(draw: st.DrawFn) -> Drawn:
    """An array of (plane, a, b, token) in elements of some bytes, of which either side has another order."""
    size = draw(st.sampled_from([1, 2, 3, 4, 8, 16, 24, 64, 80]))
    counts = {axis: draw(st.integers(1, 3)) for axis in AXES}
    tokens, across = draw(st.sampled_from([4, 8])), draw(st.integers(1, 3))
    sides = [_side(draw, size, counts, tokens) for _ in range(2)]
    loops = [Loop("plane", across, *((side.plane_step, 0) for side in sides))] if across > 1 else []
    loops += [Loop(a, counts[a], *((0, side.steps[a]) for side in sides)) for a in AXES if counts[a] > 1]
    hops = {size: [0, 0] for size in sorted({side.tile for side in sides if side.tile})}
    for number, side in enumerate(sides):
        if side.tile:
            hops[side.tile][number] = side.hop
    starts = [(draw(st.integers(0, 1)), side.offset) for side in sides]
    (p_start, d_start), (p_token, d_token) = starts, (side.steps["token"] for side in sides)
    found = tuple((tile, prefill, decode) for tile, (prefill, decode) in hops.items())
    nest = Nest(("k",), p_start, d_start, size, tuple(loops), (p_token, d_token), found)
    pages = tuple(extent(nest, side, tokens)[1] + draw(st.sampled_from([0, 5, 16])) for side in range(2))
    return Drawn(nest, tokens, pages, tuple(max(planes(nest, side)) + 1 for side in range(2)))  # type: ignore[arg-type]


def _side(draw: st.DrawFn, size: int, counts: dict[str, int], tokens: int) -> Side:
    tile = draw(st.sampled_from([0, 0, 2]))
    extents = {**counts, "token": tile or tokens}
    step, steps = size, dict[str, int]()
    for axis in draw(st.permutations([*AXES, "token"])):
        steps[axis] = step
        step *= extents[axis]
    hop = step - steps["token"] * tile if tile else 0
    return Side(steps, draw(st.sampled_from([0, 2, 16])), tile, hop, draw(st.integers(1, 2)))


def imaged(drawn: Drawn, side: int) -> StageImage:
    """The image of one range of every plane of a side."""
    low, high = extent(drawn.nest, side, drawn.tokens)
    return image(tuple(PageRange(plane, low, high - low) for plane in planes(drawn.nest, side)))


def pool(drawn: Drawn, side: int, apart: int) -> tuple[Bytes, Geometry]:
    """Noise for the planes of a side, each `apart` bytes behind the one before."""
    page, count = drawn.pages[side], drawn.planes[side]
    stride = page + 8
    room = stride * BLOCKS
    memory = np.random.default_rng(1).integers(0, 256, count * (room + apart), np.uint8)
    base = memory.ctypes.data + np.arange(count) * (room + apart)
    every = np.ones(count, np.int64)
    regions = np.array([[memory.ctypes.data, memory.nbytes, 0]])
    return memory, Geometry(
        base, every * stride, every * page, every * BLOCKS, every * 0, every * 0, regions, ("DRAM",)
    )


def by_hand(drawn: Drawn, staged: int, runs: Runs, memory: tuple[Bytes, Bytes], where: Geometry) -> tuple[Bytes, Bytes]:
    """Stage and pool after the runs were copied, one span at a time."""
    stage, pool = (one.copy() for one in memory)
    rows = imaged(drawn, staged)
    order = sorted(set((runs.decode_block if staged else runs.prefill_block).tolist()))
    for prefill, first_p, decode, first_d, count in zip(*(column.tolist() for column in runs), strict=True):
        blocks = (prefill, decode)
        for token in range(count):
            for at in _spans(drawn.nest, (first_p + token, first_d + token)):
                row = rows.row(*at[staged])
                inside = at[staged][1] - int(rows.offset[row])
                n = order.index(blocks[staged])
                source = int(rows.start[row]) * len(order) + n * int(rows.bytes[row]) + inside
                plane, offset = at[1 - staged]
                place = int(where.base[plane] + offset + where.stride[plane] * blocks[1 - staged])
                target = place - int(where.regions[0, 0])
                size = drawn.nest.bytes
                if staged:
                    stage[source : source + size] = pool[target : target + size]
                else:
                    pool[target : target + size] = stage[source : source + size]
    return stage, pool


def _spans(nest: Nest, tokens: tuple[int, int]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The (plane, offset) of every span of one token on both sides."""
    assert nest.token_step is not None
    for turn in itertools.product(*(range(loop.count) for loop in nest.loops)):
        found = []
        for side, (plane, offset) in enumerate((nest.prefill, nest.decode)):
            steps = [(loop.prefill, loop.decode)[side] for loop in nest.loops]
            plane += sum(n * step[0] for n, step in zip(turn, steps, strict=True))
            offset += sum(n * step[1] for n, step in zip(turn, steps, strict=True))
            offset += tokens[side] * nest.token_step[side]
            found.append((plane, offset + sum(tokens[side] // hop[0] * hop[1 + side] for hop in nest.hops)))
        yield found[0], found[1]


@st.composite
def asked(draw: st.DrawFn, tokens: int) -> Runs:
    """Runs of at most a page's tokens, in distinct pairs of blocks."""
    number = draw(st.integers(1, 5))
    blocks = [draw(st.permutations(range(BLOCKS)))[:number] for _ in range(2)]
    counts = [draw(st.integers(1, tokens)) for _ in range(number)]
    starts = [[draw(st.integers(0, tokens - count)) for count in counts] for _ in range(2)]
    columns = (blocks[0], starts[0], blocks[1], starts[1], counts)
    return Runs(*(np.array(column, np.int64) for column in columns))


def stage_of(rows: StageImage, count: int) -> Bytes:
    """Noise for the image of `count` blocks."""
    return np.random.default_rng(2).integers(0, 256, max(1, rows.size * count), np.uint8)


def blocks_of(runs: Runs, staged: int) -> Ints:
    return np.unique(runs.decode_block if staged else runs.prefill_block)


def volume(drawn: Drawn) -> int:
    """Bytes of one row of tokens."""
    return drawn.nest.bytes * math.prod(loop.count for loop in drawn.nest.loops)
