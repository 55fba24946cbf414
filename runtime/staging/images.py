"""Images of reads: the rows of pages that a read has in a stage, in parts that each fit a buffer.

Both ends of a link make the same images, from the plan and the size of a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from kvplan.plan import expand, spans
from kvplan.plan.layers import Layers, chosen
from kvplan.plan.stage import StageImage, image
from kvplan.plan.types import GroupPair, Ints, Plan, Read
from kvplan.runtime.errors import AddressError
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.staging.copies import NestPlanes, by_planes
from kvplan.runtime.staging.program import CopyProgram
from kvplan.runtime.staging.staged import ImagePart, StagedEnds, edges

PREFILL, DECODE = 0, 1
NOWHERE = np.empty((0, 3), np.int64)


def image_parts(
    plan: Plan, decode_worker: int, number: int, layers: Layers | None, ends: StagedEnds
) -> tuple[ImagePart, ...]:
    """Return the image of a decode worker's read `number`, of all layers or some; empty if the read is not staged.

    Raises BadRequestError if a page holds some of `layers` and also other layers; AddressError.
    """
    read = plan.reads[decode_worker][number]
    pair, table = spans.pair_named(plan, read.groups), read.placed
    if not ends.most or not (table.pack if ends.packed else table.unpack):
        return ()
    every = [[by_planes(nest) for nest in some] for some in (table.per_page, table.per_token)]
    nests = tuple([_of_layers(plan, decode_worker, read, nest, layers) for nest in some] for some in every)
    group = spans.group_named(plan.decode, pair.decode)
    page_rows = spans.page_rows(group, pair.rows) if ends.packed and table.per_token else 0
    return parts(pair, (number, read), nests, ends, page_rows)


def parts(
    pair: GroupPair,
    numbered: tuple[int, Read],
    nests: tuple[Sequence[NestPlanes], ...],
    ends: StagedEnds,
    page_rows: int,
) -> tuple[ImagePart, ...]:
    """Return the image of what `nests` of a read's two tables move, in parts that each fit a buffer.

    It is empty if one row does not fit a buffer; if a packed image is not filled, because only some layers move; or if
    the pool's planes lie in several memories, because a buffer lies in one. Raises AddressError if anything leaves its
    page or its range.
    """
    table, side = numbered[1].placed, DECODE if ends.packed else PREFILL
    whole = image(table.pack if ends.packed else table.unpack)
    used = np.unique(np.concatenate([_rows(nest, side, whole) for some in nests for nest in some]))
    regions = sorted({int(one) for some in nests for nest in some for one in _pooled(nest, side, ends.pool)})
    memories = {ends.pool.memories[region] for region in regions}
    if not len(used) or whole.bytes[used].max() > ends.most or len(memories) > 1:
        return ()
    (memory,) = memories
    # Use one region for all parts of a memory, so that adjacent spans of a stage can be joined.
    region = ends.pool.memories.index(memory)
    found = list[ImagePart]()
    for n, (low, high) in enumerate(pairwise(edges(whole.bytes[used], ends.most))):
        rows = _image(whole, some := used[low:high])
        page, token = ([_among(nest, side, whole, some) for nest in of_table] for of_table in nests)
        program = CopyProgram(page, token, side, rows, ends.pool)
        if ends.packed and not program.fills(rows, max(page_rows, 1)):
            return ()
        imaged = _imaged(rows, ends.imaged)
        found.append(
            ImagePart(
                (numbered[0], n), ends.packed, pair, numbered[1], rows, imaged, program, page_rows, memory, region
            )
        )
    return tuple(found)


def _pooled(nest: NestPlanes, side: int, pool: Geometry) -> Ints:
    """Return the regions of a nest's planes in the pool. Raises AddressError for a plane that the pool lacks."""
    planes = nest.firsts[:, expand.P_PLANE if side else expand.D_PLANE]
    if ((planes < 0) | (planes >= len(pool.region))).any():
        raise AddressError("a nest lies in a plane that there is not: compile the plan again")
    found: Ints = pool.region[planes]
    return found


def _of_layers(plan: Plan, decode_worker: int, read: Read, nest: NestPlanes, layers: Layers | None) -> NestPlanes:
    if layers is None:
        return nest
    return replace(nest, firsts=chosen(plan, decode_worker, read, (nest.firsts, ()), layers)[0])


def _image(whole: StageImage, used: Ints) -> StageImage:
    """Return some rows of an image, one behind the other."""
    size = whole.bytes[used]
    return StageImage(whole.plane[used], whole.offset[used], size, np.cumsum(size) - size, int(size.sum()))


def _among(nest: NestPlanes, side: int, whole: StageImage, used: Ints) -> NestPlanes:
    """Return a nest with only the planes that lie in some rows of the image."""
    return replace(nest, firsts=nest.firsts[np.isin(_rows(nest, side, whole), used)])


def _rows(nest: NestPlanes, side: int, whole: StageImage) -> Ints:
    """Return the image row of a nest's first span in every plane. Raises AddressError if a span lies in none."""
    plane, offset = (nest.firsts[:, [2 * side + column]] for column in range(2))
    inside = (plane == whole.plane) & (offset >= whole.offset) & (offset < whole.offset + whole.bytes)
    if not inside.any(axis=1).all():
        raise AddressError("a nest lies in no range of its table: compile the plan again")
    found: Ints = inside.argmax(axis=1)
    return found


def _imaged(rows: StageImage, geometry: Geometry | None) -> Ints:
    """Return by image row its address in block 0 of the imaged memory, the stride of blocks, and the region.

    The table is empty if that memory is not known. Raises AddressError if a row leaves its page.
    """
    if geometry is None:
        return NOWHERE
    plane = rows.plane
    if ((rows.offset < 0) | (rows.bytes < 1) | (rows.offset + rows.bytes > geometry.page[plane])).any():
        raise AddressError("a range of the plan leaves its page: compile the plan again")
    return np.stack([geometry.base[plane] + rows.offset, geometry.stride[plane], geometry.region[plane]], axis=1)
