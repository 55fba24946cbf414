"""Labels: one number for every byte that a model's caches hold, so that each byte in a buffer identifies itself.

A label is the byte's place in one long array of all tensors of all layers and tokens; negative numbers are not data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from kvplan.compiler.bound import BoundGroup, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.check.oracle import OraclePlane, PageField
from kvplan.plan.block_tables import Ring, Slot, Table
from kvplan.plan.types import Blocks, Needs

Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PADDING, UNWRITTEN, FOREIGN = -1, -2, -3
NOT_DATA = {PADDING: "padding", UNWRITTEN: "nothing", FOREIGN: "a byte outside the request's blocks"}


@dataclass(frozen=True, slots=True)
class LabelRegion:
    """The labels of one tensor of one cache: an array of `shape` over `axes` from `base`, bytes last."""

    cache: str
    tensor: str
    base: int
    axes: tuple[str, ...]
    shape: tuple[int, ...]


Atlas = Mapping[tuple[str, str], LabelRegion]


@dataclass(frozen=True, slots=True)
class NeededTokens:
    """The tokens that a reader of [first, end) must have."""

    needs: Needs
    first: int
    end: int

    def test(self, token: Labels, rows: int = 1) -> Mask:
        """Return a mask of the needed tokens; with `rows`, of the rows of `rows` tokens, given by their last tokens."""
        end = self.end - self.end % self.needs.whole
        inside: Mask = (token >= self.first) & (token < end)
        if self.needs.keep is None and self.needs.chunk is None:
            return inside
        late = np.ones(token.shape, np.bool_)
        late &= True if self.needs.keep is None else token >= end - self.needs.keep
        late &= True if self.needs.chunk is None else token // self.needs.chunk == end // self.needs.chunk
        return inside & (late | (token - rows + 1 < self.needs.sink))


@dataclass(frozen=True, slots=True)
class TableBlocks:
    """The kernel blocks (or the slot) of one table on one worker: `ids` ascending, `token[i]` the tokens in block i."""

    ids: Labels
    token: Labels


def atlas(side: BoundSide, tokens: int) -> Atlas:
    """Return regions for every tensor of a side, with room for `tokens` tokens."""
    regions: dict[tuple[str, str], LabelRegion] = {}
    base = 0
    for cache in side.caches:
        for t in cache.tensors:
            rows = -(-tokens // t.tokens_per_row)
            shape = (max(cache.layers) + 1, *(n or rows for _, n in t.axes), t.size)
            axes = ("layer", *(a for a, _ in t.axes))
            regions[cache.name, t.name] = LabelRegion(cache.name, t.name, base, axes, shape)
            base += prod(shape)
    return regions


def paged(side: BoundSide, worker: BoundWorker, group: BoundGroup, table: Table) -> TableBlocks:
    """Return the tokens in each kernel block on `worker`, by computing the place of every token of the table."""
    if isinstance(table, Slot):
        return TableBlocks(np.array([table.slot]), np.zeros((1, 0), np.int64))
    if isinstance(table, Ring):
        return _ring(group, table)
    behind = (
        table.first + len(table.ids)
    ) * group.tokens * side.token_shards + side.token_shards * side.interleave_tokens
    t = np.arange(behind)
    t = t[(t // side.interleave_tokens) % side.token_shards == worker.token_shard]
    local = t // (side.token_shards * side.interleave_tokens) * side.interleave_tokens + t % side.interleave_tokens
    position = local // group.tokens - table.first
    inside = (position >= 0) & (position < len(table.ids))
    t, local, block = t[inside], local[inside] % group.tokens, table.ids[position[inside]]
    return _by_block(group, t[block >= 0], block[block >= 0], local[block >= 0])


def _ring(group: BoundGroup, table: Ring) -> TableBlocks:
    """Return a ring's contents after its tokens were written one by one, each over the oldest in its place."""
    holds = np.full(len(table.ids) * group.tokens, -1, np.int64)
    for turn in range(max(0, table.at // max(holds.size, 1) - 1), -(-table.at // max(holds.size, 1))):
        written = np.arange(turn * holds.size, min((turn + 1) * holds.size, table.at))
        holds[: written.size] = written
    place = np.arange(holds.size)
    block = table.ids[place // group.tokens]
    there = block >= 0
    return _by_block(group, holds[there], block[there], place[there] % group.tokens)


def _by_block(group: BoundGroup, t: Labels, block: Labels, local: Labels) -> TableBlocks:
    kernel_block = block * group.ratio + local // group.kernel
    ids, row = np.unique(kernel_block, return_inverse=True)
    token = np.full((ids.size, group.kernel), -1, np.int64)
    token[row, local % group.kernel] = t
    return TableBlocks(ids, token)


def paint(plane: OraclePlane, regions: Atlas, token: Labels, want: NeededTokens | None = None) -> Labels:
    """Return the labels of the pages whose tokens are `token`, one page per row.

    Padding, tokens below 0, rows of tokens whose last one is not wanted, and a state that is not wanted are PADDING.
    """
    page = np.full((len(token), plane.page), PADDING, np.int64)
    for f in plane.fields:
        region = regions.get((plane.cache, f.tensor.name))
        if region is not None:
            _paint_field(page, f, region, token, want)
    return page


def _paint_field(page: Labels, f: PageField, region: LabelRegion, token: Labels, want: NeededTokens | None) -> None:
    """Write one tensor's labels into pages: the labels of its elements, and from these the labels of their bytes."""
    first = np.broadcast_to(_elements(f, region, token, want), (len(token), *f.offset.shape))
    labels, offset = first.reshape(len(token), -1).copy(), f.offset.reshape(-1)
    # A label increases by one from byte to byte, unless it is PADDING.
    more = labels >= 0
    for byte in range(f.tensor.size):
        spot = offset + byte
        for row, label in zip(page, labels, strict=True):
            row[spot] = label
        labels += more


def _elements(f: PageField, region: LabelRegion, token: Labels, want: NeededTokens | None) -> Labels:
    """Return the label of each element's first byte, pages first; PADDING if it is missing or not wanted."""
    label = np.full((1,) * (1 + f.offset.ndim), region.base)
    known = np.full(label.shape, want is None or want.first < want.end)
    rows, names = f.tensor.tokens_per_row, [a for a, _ in f.axes]
    for place, (name, numbers) in enumerate(f.axes):
        extent, step = region.shape[place], prod(region.shape[place + 1 :])
        where = [1] * len(names)
        where[names.index(name)] = -1
        index = numbers.reshape(1, *where)
        if name in token_axes(f.tensor):
            row = np.where(token >= 0, token // rows, -1)[:, numbers * rows]
            index = row.reshape(len(token), *where)
            known = known & (index >= 0) & (index < extent)
            known = known & want.test((index + 1) * rows - 1, rows) if want else known
        label = label + index * step
    return np.where(known, label, PADDING)


def token_axes(tensor: BoundTensor) -> set[str]:
    """The axes that grow with the context."""
    return {a for a, n in tensor.axes if not n}


def region_of(regions: Atlas, label: int) -> LabelRegion:
    """Return the region of a label."""
    return next(r for r in regions.values() if r.base <= label < r.base + prod(r.shape))


def ragged(start: Labels, size: Labels) -> Labels:
    """Return the ranges start[i], start[i] + 1 … of size[i] numbers, one after the other."""
    ends = np.cumsum(size)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(start - ends + size, size)


def words(regions: Atlas, label: int) -> str:
    """Describe a label: `layer 3 · conv_b · group 0 · st 17`, and the byte if an element has several."""
    if label < 0:
        return NOT_DATA[label]
    region = region_of(regions, label)
    index = [int(i) for i in np.unravel_index(label - region.base, region.shape)]
    axes = [f"{a} {i}" for a, i in zip(region.axes[1:], index[1:], strict=False)]
    byte = [f"byte {index[-1]}"] if region.shape[-1] > 1 else []
    return " · ".join([f"layer {index[0]}", f"{region.cache}.{region.tensor}", *axes, *byte])


def table_of(tables: Mapping[str, Table], group: BoundGroup) -> Table:
    """Return the table of a group, an empty one if the request has none."""
    return tables.get(group.name, Blocks(0, np.empty(0, np.int64)))
