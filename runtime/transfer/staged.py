"""Staged reads: what goes by way of a stage, which blocks of a request do, in which slices, and what the wire copies.

Who drives a transfer stages. A reader reads the ranges of prefill pages as they lie and copies them into its own pages
(`unpack`); a writer copies into the image of decode pages and writes that (`pack`). A page that a slice does not fill
is never written that way: bytes that were not asked for are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from kvplan.plan import spans
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.stage import StageImage, image
from kvplan.plan.types import Ints, Pair, Read, Runs
from kvplan.runtime.errors import AddressError, LimitedError
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.staging.buffers import ALIGNED, Stage, StageBuffer
from kvplan.runtime.staging.copies import NestPlanes
from kvplan.runtime.staging.program import CopyProgram, Mask
from kvplan.runtime.staging.views import CopyMaker, StageBlocks

PREFILL, DECODE = 0, 1
# The region of the stage, which is none of a pool's.
STAGE = -1
# Copies of fewer bytes take less time than to hand them to a thread.
AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class StagedEnds:
    """What reads of a link are staged between: the peer's memory, which is imaged, and this process's pool.

    A buffer has `most` bytes. With `push` decode's pages are imaged, otherwise prefill's.
    """

    push: bool
    remote: Geometry
    pool: Geometry
    most: int


@dataclass(frozen=True, slots=True)
class ImagePart:
    """Some rows of a read's image, small enough for a buffer: `remote` are rows (address of block 0, stride, region).

    `size` are the bytes of one block in a stage; `page_rows` are the rows of tokens that fill a decode page, 0 for
    a state and where any run may be staged.
    """

    pair: Pair
    read: Read
    image: StageImage
    remote: Ints
    program: CopyProgram
    page_rows: int

    @property
    def size(self) -> int:
        return -(-self.image.size // ALIGNED) * ALIGNED

    def moved(self, runs: Runs) -> int:
        """Bytes that are asked for with `runs`."""
        whole = self.whole(runs)
        tokens = int(runs.count[~whole].sum())
        return int(whole.sum()) * self.program.page_bytes + tokens * self.program.token_bytes

    def whole(self, runs: Runs) -> Mask:
        return spans.whole_pages(self.pair.page, self.read.table, runs)


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """What one buffer holds at a time: parts, the runs of each, and the blocks that are imaged for them, rising.

    `moved` are bytes that are asked for; the wire copies `bytes`.
    """

    parts: tuple[tuple[ImagePart, Runs, Ints], ...]
    moved: int
    bytes: int

    @classmethod
    def of(cls, parts: tuple[tuple[ImagePart, Runs, Ints], ...]) -> StagedPiece:
        """A piece with its bytes counted."""
        moved = sum(part.moved(runs) for part, runs, _ in parts)
        return cls(parts, moved, sum(part.image.size * len(blocks) for part, _, blocks in parts))

    def placed(self, address: int) -> Iterator[tuple[ImagePart, Runs, Ints, StageBlocks]]:
        """Every part with its place in the buffer at `address`."""
        for part, runs, blocks in self.parts:
            yield part, runs, blocks, StageBlocks(address, len(blocks))
            address += part.size * len(blocks)

    def copy(self, maker: CopyMaker, address: int) -> None:
        """Make the copies between the buffer and the pool."""
        for part, runs, _, stage in self.placed(address):
            part.program.run(maker, stage, runs, part.whole(runs))

    def spelled(self, address: int, push: bool) -> Ints:
        """What the wire copies, as rows (prefill address, decode address, bytes, prefill region, decode region)."""
        found = [_spelled(part, blocks, stage) for part, _, blocks, stage in self.placed(address)]
        table = np.concatenate(found)
        return table if push else table[:, [1, 0, 2, 4, 3]]


class StagedMove:
    """One slice's way through a stage: the buffer that it waits for and then has, and its copy.

    A writer copies before the wire does, a reader afterwards. Whatever was borrowed belongs to the slice until
    `release`, which may follow only when no handle of it is under way and it is not `copying`.
    """

    def __init__(self, stage: Stage, piece: StagedPiece, peer: str, push: bool) -> None:
        self.piece = piece
        self._stage, self._peer, self._push = stage, peer, push
        self._buffer: StageBuffer | None = None
        self._copy: Future[None] | None = None
        self._kept = False

    @property
    def address(self) -> int:
        """Where its buffer begins. Only when it is `ready`."""
        assert self._buffer is not None
        return self._buffer.address

    @property
    def copying(self) -> bool:
        return self._copy is not None and not self._copy.done()

    def ready(self) -> bool:
        """Whether it may be posted: it has a buffer, and in it what is to be written. Raises what copying raises."""
        if self._buffer is None:
            self._buffer = self._borrowed()
        return self._buffer is not None and (not self._push or self._done())

    def arrived(self) -> bool:
        """Whether all bytes are in their place, now that the wire has copied. Raises what copying raises."""
        return self._push or self._done()

    def leave(self) -> None:
        """The slice is given up: no copy begins any more. It keeps its buffer until `release`."""
        self._stage.withdraw(self)
        if self._copy is not None:
            self._copy.cancel()
        if self._buffer is not None and not self._kept:
            self._kept = True
            self._stage.keep(self._buffer)

    def release(self) -> None:
        """Give the buffer back, and a place in the queue for one."""
        self._stage.withdraw(self)
        if self._buffer is not None:
            self._stage.give_back(self._buffer, self._kept)
        self._buffer, self._kept = None, False

    def _borrowed(self) -> StageBuffer | None:
        """Raises LimitedError where every buffer belongs to slices that were given up."""
        if self._stage.stuck(self._peer):
            raise LimitedError("every buffer of the stage may still be written for requests that have ended: ask again")
        return self._stage.borrow(self, self._peer)

    def _done(self) -> bool:
        """Begin to copy, and whether that has ended."""
        if self._copy is None:
            address = self.address
            self._copy = self._stage.copy(lambda maker: self.piece.copy(maker, address), self.piece.moved < AT_ONCE)
        if not self._copy.done():
            return False
        self._copy.result()
        return True


def split(part: ImagePart, runs: Runs) -> tuple[Runs, Runs]:
    """The runs that may go by way of a stage, and the others."""
    if not part.page_rows:
        return runs, NO_RUNS
    _, which = np.unique(runs.decode_block, return_inverse=True)
    full = np.bincount(which, runs.count)[which] == part.page_rows
    return (runs, NO_RUNS) if full.all() else (spans.pick(runs, full), spans.pick(runs, ~full))


def pieces(wanted: Sequence[tuple[ImagePart, Runs]], most: int) -> list[StagedPiece]:
    """What is wanted of every part, cut between blocks so that each piece fits a buffer of `most` bytes."""
    blocks = [np.unique(part.program.blocks(runs), return_inverse=True) for part, runs in wanted]
    weights = [np.full(len(ids), part.size) for (part, _), (ids, _) in zip(wanted, blocks, strict=True)]
    starts = np.cumsum([0, *map(len, weights)]).tolist()
    found: list[StagedPiece] = []
    for low, high in pairwise(edges(np.concatenate(weights), most)) if wanted else ():
        parts = [
            (part, *_between(runs, *of, low - start, high - start))
            for (part, runs), of, start in zip(wanted, blocks, starts[:-1], strict=True)
        ]
        found.append(StagedPiece.of(tuple(one for one in parts if len(one[2]))))
    return found


def _between(runs: Runs, ids: Ints, which: Ints, low: int, high: int) -> tuple[Runs, Ints]:
    """The runs of blocks `ids` from number `low` to `high`, and those blocks."""
    some = ids[max(low, 0) : max(high, 0)]
    return (runs if len(some) == len(ids) else spans.pick(runs, (which >= low) & (which < high))), some


def parts(
    pair: Pair, read: Read, nests: tuple[Sequence[NestPlanes], ...], ends: StagedEnds, page_rows: int
) -> tuple[ImagePart, ...]:
    """The image of what `nests` of a read's two tables move, in parts that each fit a buffer.

    There are none where one row of it does not, or where it is written and the nests, as some layers are moved by
    themselves, do not fill it. Raises AddressError where anything leaves its page or its range.
    """
    table, staged = read.placed, DECODE if ends.push else PREFILL
    whole = image(table.pack if ends.push else table.unpack)
    used = np.unique(np.concatenate([_rows(nest, staged, whole) for some in nests for nest in some]))
    if whole.bytes[used].max() > ends.most:
        return ()
    cuts = pairwise(edges(whole.bytes[used], ends.most))
    found = tuple(_part(pair, read, nests, ends, (whole, used[low:high], page_rows)) for low, high in cuts)
    filled = not ends.push or all(part.program.fills(part.image, max(page_rows, 1)) for part in found)
    return found if filled else ()


def _part(
    pair: Pair,
    read: Read,
    nests: tuple[Sequence[NestPlanes], ...],
    ends: StagedEnds,
    chosen: tuple[StageImage, Ints, int],
) -> ImagePart:
    whole, used, page_rows = chosen
    staged = DECODE if ends.push else PREFILL
    page, token = ([_among(nest, staged, whole, used) for nest in some] for some in nests)
    size = whole.bytes[used]
    start = np.cumsum(size) - size
    rows = StageImage(whole.plane[used], whole.offset[used], size, start, int(size.sum()))
    program = CopyProgram(page, token, staged, rows, ends.pool)
    return ImagePart(pair, read, rows, _remote(rows, ends.remote), program, page_rows)


def _among(nest: NestPlanes, staged: int, whole: StageImage, used: Ints) -> NestPlanes:
    """A nest in the planes that have one of some rows of the image."""
    return replace(nest, firsts=nest.firsts[np.isin(_rows(nest, staged, whole), used)])


def _rows(nest: NestPlanes, staged: int, whole: StageImage) -> Ints:
    """The image row of a nest's first span in every plane. Raises AddressError where one has none."""
    plane, offset = (nest.firsts[:, [2 * staged + column]] for column in range(2))
    inside = (plane == whole.plane) & (offset >= whole.offset) & (offset < whole.offset + whole.bytes)
    if not inside.any(axis=1).all():
        raise AddressError("a nest lies in no range of its table: compile the plan again")
    found: Ints = inside.argmax(axis=1)
    return found


def _remote(rows: StageImage, geometry: Geometry) -> Ints:
    """By image row, where it lies in the peer's block 0, how far apart blocks are, and the region."""
    plane = rows.plane
    if ((rows.offset < 0) | (rows.bytes < 1) | (rows.offset + rows.bytes > geometry.page[plane])).any():
        raise AddressError("a range of the plan leaves its page: compile the plan again")
    return np.stack([geometry.base[plane] + rows.offset, geometry.stride[plane], geometry.region[plane]], axis=1)


def _spelled(part: ImagePart, blocks: Ints, stage: StageBlocks) -> Ints:
    """Rows (address in the stage, peer's address, bytes, region of the stage, peer's region), one a row and block."""
    rows, size = part.image, part.image.bytes[:, None]
    spelled = np.empty((len(rows.start), len(blocks), 5), np.int64)
    spelled[:, :, 0] = stage.address + rows.start[:, None] * len(blocks) + size * np.arange(len(blocks))
    spelled[:, :, 1] = part.remote[:, :1] + part.remote[:, 1:2] * blocks
    spelled[:, :, 2], spelled[:, :, 3], spelled[:, :, 4] = size, STAGE, part.remote[:, 2:]
    return spelled.reshape(-1, 5)


def edges(cost: Ints, most: int) -> list[int]:
    """Where pieces begin and end: each as long as `most` allows, and one at least."""
    ends, found = np.cumsum(cost), [0]
    while found[-1] < len(cost):
        before = int(ends[found[-1] - 1]) if found[-1] else 0
        found.append(max(int(np.searchsorted(ends, before + most, side="right")), found[-1] + 1))
    return found
