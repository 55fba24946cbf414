"""Copy program: the copies of a read's two tables between a stage and a pool, for any blocks and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from kvplan.plan import expand as rows
from kvplan.plan import spans
from kvplan.plan.blocks import Mask
from kvplan.plan.stage import StageImage
from kvplan.plan.types import Ints, Runs
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.staging.copies import Hops, NestPlanes, StridedCopy, copies
from kvplan.runtime.staging.views import CopyMaker, StageBlocks, index

# Most places in a page for which copies are cached: a run's first token on both sides and its length.
MOST_PLACES = 1024


class CopyProgram:
    """The copies of one read. Side `staged`, 0 for prefill and 1 for decode, is the one whose pages are imaged."""

    def __init__(
        self, page: Sequence[NestPlanes], token: Sequence[NestPlanes], staged: int, image: StageImage, pool: Geometry
    ) -> None:
        self._staged = staged
        self._page = copies(page, staged, image, pool)
        alike: dict[Hops, list[NestPlanes]] = {}
        for nest in token:
            alike.setdefault(nest.hops, []).append(nest)
        of_tokens = {hops: copies(nests, staged, image, pool) for hops, nests in alike.items()}
        # A part of an image may have no copies for some hops.
        self._token = {hops: some for hops, some in of_tokens.items() if some}
        self._placed = lru_cache(MOST_PLACES)(self._place)

    @property
    def pool_blocks(self) -> int:
        """The number of blocks that all copied planes of the pool have."""
        return min(copy.blocks for copy in (*self._page, *(copy for some in self._token.values() for copy in some)))

    @property
    def page_bytes(self) -> int:
        """Bytes copied for a whole page."""
        return sum(copy.moved for copy in self._page)

    @property
    def token_bytes(self) -> int:
        """Bytes copied for one row of tokens."""
        return sum(copy.moved for some in self._token.values() for copy in some)

    def fills(self, image: StageImage, tokens: int) -> bool:
        """Return whether the copies of `tokens` rows, all of a page, fill every row of the image."""
        every = [copy for some in self._token.values() for copy in some]
        filled = dict.fromkeys(image.start.tolist(), 0)
        for copy in self._page or every:
            for plane in range(copy.planes):
                filled[copy.row + plane * copy.row_step] += copy.moved // copy.planes * (1 if self._page else tokens)
        return bool(list(filled.values()) == image.bytes.tolist())

    def filled(self, runs: Runs) -> Iterator[tuple[Runs, Ints]]:
        """Yield `runs` of partial pages, grouped by place in the page, with the spans of the image that they fill.

        Spans are rows (start of the image row, first byte in it, bytes), adjacent ones joined.
        """
        for hops in self._token:
            for some, place in self._places(spans.in_tiles(runs, hops)):
                yield some, self._fill(hops, *place)

    def blocks(self, runs: Runs) -> Ints:
        """Return each run's block on the imaged side."""
        return runs.decode_block if self._staged else runs.prefill_block

    def run(self, maker: CopyMaker, stage: StageBlocks, runs: Runs, whole: Mask) -> None:
        """Make all copies for `runs`; those that are `whole` use the table of pages. The stage has their blocks."""
        for some, of_place in self._steps(runs, whole):
            at = np.searchsorted(stage.ids, self.blocks(some))
            rising = np.argsort(at, kind="stable")
            blocks, places = index(self._pooled(some)[rising]), index(at[rising])
            for copy in of_place:
                maker.make(copy, stage, places, blocks, pack=bool(self._staged))

    def _pooled(self, runs: Runs) -> Ints:
        return runs.prefill_block if self._staged else runs.decode_block

    def _steps(self, runs: Runs, whole: Mask) -> Iterator[tuple[Runs, tuple[StridedCopy, ...]]]:
        if whole.any():
            yield runs if whole.all() else spans.pick(runs, whole), self._page
        if not whole.all():
            ragged = spans.pick(runs, ~whole) if whole.any() else runs
            for hops in self._token:
                for some, place in self._places(spans.in_tiles(ragged, hops)):
                    yield some, self._placed(hops, *place)

    @staticmethod
    def _places(runs: Runs) -> Iterator[tuple[Runs, tuple[int, int, int]]]:
        """Yield runs grouped by place in their pages: even blocks of different sizes have few places."""
        places = np.stack((runs.prefill_token, runs.decode_token, runs.count))
        order = np.lexsort(places)
        ordered = places[:, order]
        ends = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
        for first, end in pairwise((0, *ends.tolist(), len(order))):
            prefill, decode, count = ordered[:, first].tolist()
            yield spans.pick(runs, order[first:end]), (prefill, decode, count)

    def _place(self, hops: Hops, prefill: int, decode: int, count: int) -> tuple[StridedCopy, ...]:
        stage, pool = (decode, prefill) if self._staged else (prefill, decode)
        return tuple(copy.at(stage, pool, count) for copy in self._token[hops])

    def _fill(self, hops: Hops, prefill: int, decode: int, count: int) -> Ints:
        row, inside, size = np.concatenate([copy.images for copy in self._placed(hops, prefill, decode, count)]).T
        # An image has the offsets of its page, so spans that are adjacent in one are adjacent in the other.
        return rows.joined(np.stack((row, inside, row, inside, size), axis=1))[:, [0, 1, 4]]
