"""The copies of a stage in a device's memory as one Triton kernel, for blocks in no order.

torch copies such blocks twice, through a temporary tensor (`between` in views.py); the kernel reads and writes each
byte once. On an H200, 64 MiB of pages with tokens first took 0.8 of the time to come through a stage as pages with
heads first (docs/performance.md). torch copies blocks that follow each other as fast.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from kvplan.plan.types import Ints

# Most items of a row that one program copies, and items of all its rows.
MOST_COLUMNS, TILE = 1024, 4096
# Most loops of a copy besides planes and blocks. No plan of `layouts/` has more, because adjacent spans are joined.
LOOPS = 3


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def copy_rows(  # type: ignore[no-untyped-def]
    source, target, chosen, place, rows, columns, blocks, n0, n1, n2,
    s_plane, s_block, s0, s1, s2, t_plane, t_block, t0, t1, t2,
    height: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Copy `rows` rows of `columns` items. Row r is (plane, block, loop 0, loop 1, loop 2), the last one fastest."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    inside = row < rows
    left, i2 = row // n2, row % n2
    left, i1 = left // n1, left % n1
    left, i0 = left // n0, left % n0
    plane, block = left // blocks, left % blocks
    read = tl.load(chosen + block, inside, 0) * s_block + plane * s_plane + i0 * s0 + i1 * s1 + i2 * s2
    write = tl.load(place + block, inside, 0) * t_block + plane * t_plane + i0 * t0 + i1 * t1 + i2 * t2
    column = tl.program_id(1) * width + tl.arange(0, width)
    mask = inside[:, None] & (column < columns)[None, :]
    items = tl.load(source + read[:, None] + column[None, :], mask)
    tl.store(target + write[:, None] + column[None, :], items, mask)


def takes(source: Any) -> bool:
    """Return whether the kernel has enough loops for a tensor of (plane, block, loops, item)."""
    return bool(source.dim() <= LOOPS + 3)


def copy(source: Any, target: Any, chosen: Ints, place: Ints) -> None:
    """Copy blocks `chosen` of a torch tensor, its axis 1, into the blocks `place` of another.

    Both are (plane, block, at most LOOPS loops, item) of integers, and an item follows the one before it.
    """
    planes, _, *loops, columns = source.shape
    counts = [1] * (LOOPS - len(loops)) + loops
    rows = planes * len(chosen) * math.prod(counts)
    width = min(triton.next_power_of_2(columns), MOST_COLUMNS)
    height = max(1, TILE // width)
    steps = [step for tensor in (source, target) for step in _steps(tensor, LOOPS - len(loops))]
    numbers = torch.from_numpy(np.stack((chosen, place))).to(source.device)
    copy_rows[(triton.cdiv(rows, height), triton.cdiv(columns, width))](
        source, target, numbers[0], numbers[1], rows, columns, len(chosen), *counts, *steps, height, width
    )


def tried(where: str) -> bool:
    """Return whether the kernel copies correctly on device `where`. Raises what Triton raises without a C compiler."""
    source = torch.arange(4, dtype=torch.int64, device=where).reshape(1, 4, 1)
    target = torch.zeros_like(source)
    copy(source, target, np.array([3, 1]), np.array([0, 2]))
    return bool(target.flatten().tolist() == [3, 0, 1, 0])


def _steps(tensor: Any, missing: int) -> list[int]:
    """Return the strides in items of planes, blocks and loops, with 0 for the `missing` loops, which come first."""
    plane, block, *loops = tensor.stride()[:-1]
    return [plane, block, *[0] * missing, *loops]
