"""Staged reads: which blocks of a request go through a stage, in which pieces, and the spans that the wire copies.

With `unpack` the wire moves ranges of prefill pages as they lie, and decode copies them into its own pages. With `pack`
prefill copies into images of decode pages, which the wire moves. The side that posts uses its own stage, or asks for
buffers of the peer's (lent.py). If a request does not fill a page, the wire copies only the filled spans of the image,
so that no other bytes of the page change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kvplan.plan import spans
from kvplan.plan.blocks import Mask, chains
from kvplan.plan.stage import StageImage
from kvplan.plan.types import GroupPair, Ints, Read, Runs
from kvplan.runtime.errors import LimitedError
from kvplan.runtime.memory.geometry import Geometry, Memory
from kvplan.runtime.staging.buffers import ALIGNED, StageBuffers
from kvplan.runtime.staging.program import CopyProgram
from kvplan.runtime.staging.views import CopyMaker, StageBlocks

# Copies of fewer bytes take less time than to hand them to a thread.
AT_ONCE = 1 << 18
# Up to so many bytes are one piece. More are cut in two even if one buffer has room: one half is copied while the other
# is on the wire.
UNCUT = 4 << 20
# Most runs of one piece: a peer is asked for it in one message, with 40 bytes per run.
MOST_RUNS = 1 << 18
# Seconds for which a slice waits for buffers of requests that were given up. Usually the wire is done with them soon;
# if a peer is frozen, it is not.
PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class StagedEnds:
    """The two memories of staged reads of a link: the one that is imaged, and the pool on the stage's side.

    A buffer has `most` bytes. If `packed`, it has images of decode's pages, otherwise of prefill's. `imaged` is None on
    a side that only lends buffers.
    """

    packed: bool
    imaged: Geometry | None
    pool: Geometry
    most: int


@dataclass(frozen=True, slots=True)
class ImagePart:
    """Some rows of a read's image, small enough for a buffer: `imaged` are rows (address of block 0, stride, region).

    `number` are the read's number in its link, and the part's number in the read. `packed` parts are of decode pages.
    `size` are the bytes of one block in a stage. `page_rows` are the rows of tokens that fill a decode page; it is 0
    for a state, and for prefill pages, which are read whole. The stage lies in the `memory` of the pool's planes;
    `region` is the first region of that memory.
    """

    number: tuple[int, int]
    packed: bool
    pair: GroupPair
    read: Read
    image: StageImage
    imaged: Ints
    program: CopyProgram
    page_rows: int
    memory: Memory
    region: int

    @property
    def size(self) -> int:
        return -(-self.image.size // ALIGNED) * ALIGNED

    def moved(self, runs: Runs) -> int:
        """Return the bytes that `runs` ask for."""
        whole = self.whole(runs)
        tokens = int(runs.count[~whole].sum())
        return int(whole.sum()) * self.program.page_bytes + tokens * self.program.token_bytes

    def whole(self, runs: Runs) -> Mask:
        return spans.whole_pages(self.pair.page_rows, self.read.table, runs)

    def copied(self, runs: Runs) -> Mask:
        """Return which runs belong to blocks whose image the wire copies whole: full pages, or prefill pages."""
        if not self.page_rows:
            return np.ones(len(runs.count), np.bool_)
        _, which = np.unique(runs.decode_block, return_inverse=True)
        filled: Mask = np.bincount(which, runs.count)[which] == self.page_rows
        return filled

    def spelled(self, runs: Runs, stage: StageBlocks) -> Iterator[tuple[Ints, int]]:
        """Yield tables of spans that the wire copies, each with its number of spans before any are joined.

        Rows are (address in the stage, in imaged pages, bytes, a region of the stage's memory, the pages' region).
        """
        copied = self.copied(runs)
        whole = stage.ids if copied.all() else np.unique(self.program.blocks(spans.pick(runs, copied)))
        yield self._pages(whole, stage), len(self.image.bytes) * len(whole)
        if len(whole) < stage.count:
            for some, filled in self.program.filled(spans.pick(runs, ~copied)):
                yield self._rows(filled, self.program.blocks(some), stage), len(filled) * len(some.count)

    def _pages(self, blocks: Ints, stage: StageBlocks) -> Ints:
        """Return rows that copy the whole images of some blocks, by row of the image and chain of blocks.

        In a stage the blocks of a row follow each other. In the imaged pages they do only if the row is a whole block.
        """
        at, size, stride = np.searchsorted(stage.ids, blocks), self.image.bytes[:, None], self.imaged[:, 1:2]
        first, length = chains(at, blocks) if (size == stride).all() else (np.arange(len(blocks)), 1)
        address = stage.address + self.image.start[:, None] * stage.count + size * at[first]
        return self._table(address, self.imaged[:, :1] + stride * blocks[first], size * length, self.imaged[:, 2:])

    def _rows(self, filled: Ints, blocks: Ints, stage: StageBlocks) -> Ints:
        """Return rows that copy the `filled` spans of each block's image, which `CopyProgram.filled` yields."""
        start, inside, size = (column[:, None] for column in filled.T)
        row = np.searchsorted(self.image.start, filled[:, 0])
        base, stride, region = (column[:, None] for column in self.imaged[row].T)
        address = start * stage.count + self.image.bytes[row, None] * np.searchsorted(stage.ids, blocks) + inside
        return self._table(stage.address + address, base + stride * blocks + inside, size, region)

    def _table(self, staged: Ints, imaged: Ints, size: Ints, region: Ints) -> Ints:
        found = np.empty((*staged.shape, 5), np.int64)
        found[:, :, 0], found[:, :, 1], found[:, :, 2], found[:, :, 3], found[:, :, 4] = (
            staged, imaged, size, self.region, region
        )  # fmt: skip
        return found.reshape(-1, 5)


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """The contents of one buffer: parts, the runs of each, and the blocks that are imaged for them, rising.

    All parts are `packed`, or none is, and all are of one `memory`. `moved` are bytes that are asked for; the wire
    copies `bytes`, which are more if pages are read whole and the request needs a part of them.
    """

    parts: tuple[tuple[ImagePart, Runs, Ints], ...]
    moved: int
    bytes: int

    @classmethod
    def of(cls, parts: tuple[tuple[ImagePart, Runs, Ints], ...]) -> StagedPiece:
        """Return a piece with its bytes counted."""
        moved = sum(part.moved(runs) for part, runs, _ in parts)
        imaged = sum(part.image.size * len(blocks) for part, _, blocks in parts)
        return cls(parts, moved, moved if parts[0][0].packed else imaged)

    @property
    def packed(self) -> bool:
        return self.parts[0][0].packed

    @property
    def memory(self) -> Memory:
        """The memory that its buffer has to lie in."""
        return self.parts[0][0].memory

    @property
    def room(self) -> int:
        """Bytes that it takes of a buffer."""
        return sum(part.size * len(blocks) for part, _, blocks in self.parts)

    def placed(self, address: int) -> Iterator[tuple[ImagePart, Runs, StageBlocks]]:
        """Yield every part with its place in the buffer at `address`."""
        for part, runs, blocks in self.parts:
            yield part, runs, StageBlocks(address, blocks)
            address += part.size * len(blocks)

    def copy(self, maker: CopyMaker, address: int) -> None:
        """Make the copies between the buffer and the pool."""
        for part, runs, stage in self.placed(address):
            part.program.run(maker, stage, runs, part.whole(runs))

    def spelled(self) -> tuple[Ints, int]:
        """Return a table of the spans that the wire copies, and their number before any are joined.

        Rows are (prefill address, decode address, bytes, prefill region, decode region). Addresses in the stage are
        counted from the start of the buffer.
        """
        found = [some for part, runs, stage in self.placed(0) for some in part.spelled(runs, stage)]
        table = np.concatenate([rows for rows, _ in found])
        return table if self.packed else table[:, [1, 0, 2, 4, 3]], sum(spans for _, spans in found)


class StagedMove:
    """One slice that moves through the stage here: the buffer that it waits for and then has, and its copy.

    A writer copies before the wire does, a reader afterwards. The buffer at `address`, 0 for none yet, belongs to the
    slice until `release`. Call that only when no handle of the slice is in progress and it is not `copying`.
    """

    at_peer = False

    def __init__(self, stage: StageBuffers, piece: StagedPiece, peer: str, push: bool) -> None:
        self.piece = piece
        self._stage, self._peer, self._push = stage, peer, push
        self.address = 0
        self._copy: Future[None] | None = None
        self._kept = False

    @property
    def begun(self) -> bool:
        """Whether it has a buffer."""
        return self.address > 0

    @property
    def copying(self) -> bool:
        return self._copy is not None and not self._copy.done()

    def ready(self) -> bool:
        """Return whether it may be posted: it has a buffer, with its bytes if it writes. Raises what copying raises."""
        self.address = self.address or self._borrowed()
        return self.begun and (not self._push or self._done())

    def arrived(self) -> bool:
        """Return whether all bytes are in place, after the wire has copied. Raises what copying raises."""
        return self._push or self._done()

    def leave(self) -> None:
        """Give the slice up: no copy begins any more. It keeps its buffer until `release`."""
        self._stage.withdraw(self)
        if self._copy is not None:
            self._copy.cancel()
        if self.address and not self._kept:
            self._kept = True
            self._stage.keep(self.address)

    def release(self) -> None:
        """Give back the buffer, or the place in the queue for one."""
        self._stage.withdraw(self)
        (buffer, kept), self.address, self._kept = (self.address, self._kept), 0, False
        if buffer:
            self._stage.give_back(buffer, kept)

    def _borrowed(self) -> int:
        """Return a buffer, 0 while none is free. Raises LimitedError if given-up slices had all for PATIENCE."""
        if self._stage.stuck(self._peer) and self._stage.stuck_for(self._peer) > PATIENCE:
            raise LimitedError("every buffer of the stage may still be written for requests that have ended: ask again")
        return self._stage.borrow(self, self._peer)

    def _done(self) -> bool:
        """Begin to copy, if it has not begun. Returns whether the copy has ended."""
        if self._copy is None:
            address = self.address
            self._copy = self._stage.copy(lambda maker: self.piece.copy(maker, address), self.piece.moved < AT_ONCE)
        if not self._copy.done():
            return False
        self._copy.result()
        return True


def pieces(wanted: Sequence[tuple[ImagePart, Runs]], most: int) -> list[StagedPiece]:
    """Return the wanted runs of all parts, cut between blocks so that each piece fits a buffer and a message.

    A buffer has `most` bytes. The result has at least two pieces, unless all of it is small.
    """
    blocks = [np.unique(part.program.blocks(runs), return_inverse=True) for part, runs in wanted]
    # A run weighs at least so many bytes, so that no piece has more than MOST_RUNS.
    run = most // MOST_RUNS
    weights = [
        np.maximum(part.size, np.bincount(which) * run) for (part, _), (_, which) in zip(wanted, blocks, strict=True)
    ]
    starts = np.cumsum([0, *map(len, weights)]).tolist()
    found: list[StagedPiece] = []
    weight = np.concatenate(weights) if wanted else np.empty(0, np.int64)
    for low, high in pairwise(edges(weight, limit(weight, most))):
        parts = [
            (part, *_between(runs, *of, low - start, high - start))
            for (part, runs), of, start in zip(wanted, blocks, starts[:-1], strict=True)
        ]
        found.append(StagedPiece.of(tuple(one for one in parts if len(one[2]))))
    return found


def limit(weight: Ints, most: int) -> int:
    """Return the most bytes of a piece, for blocks of these weights and a buffer of `most` bytes."""
    total = int(weight.sum())
    # The first half includes the block that reaches the middle, but never all blocks.
    half = min(total // 2 + int(weight.max(initial=0)), total - 1)
    return min(most, max(half, UNCUT))


def _between(runs: Runs, ids: Ints, which: Ints, low: int, high: int) -> tuple[Runs, Ints]:
    """Return the runs of the blocks `ids[low:high]`, and these blocks."""
    some = ids[max(low, 0) : max(high, 0)]
    return (runs if len(some) == len(ids) else spans.pick(runs, (which >= low) & (which < high))), some


def edges(cost: Ints, most: int) -> list[int]:
    """Return the edges of pieces, from 0 on: each is as long as `most` allows, and has at least one item."""
    ends, found = np.cumsum(cost), [0]
    while found[-1] < len(cost):
        before = int(ends[found[-1] - 1]) if found[-1] else 0
        found.append(max(int(np.searchsorted(ends, before + most, side="right")), found[-1] + 1))
    return found
