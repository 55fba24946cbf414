"""Asked images: what a peer asks a buffer for, by this side's own images of the same reads, checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvplan.plan import spans
from kvplan.plan.errors import BadRequestError
from kvplan.plan.layers import MOST_SETS, Layers
from kvplan.plan.types import Ints, Plan, Runs
from kvplan.runtime.control.messages import AskBuffer, WirePart, unpack_runs
from kvplan.runtime.errors import LimitedError
from kvplan.runtime.staging.images import image_parts
from kvplan.runtime.staging.staged import ImagePart, StagedEnds, StagedPiece

# By number of read and of part.
Images = dict[tuple[int, int], ImagePart]


class AskedImages:
    """The images of some `reads` of a decode worker, as its peer has them, by the layers that move together."""

    def __init__(self, plan: Plan, decode_worker: int, reads: Sequence[int], ends: StagedEnds) -> None:
        self._plan, self._decode_worker, self._reads, self._ends = plan, decode_worker, reads, ends
        self._images: dict[Layers | None, Images] = {}

    def piece(self, asked: AskBuffer) -> StagedPiece:
        """What is to be copied for a question. Raises BadRequestError, LimitedError, CardError, AddressError."""
        piece = StagedPiece.of(tuple(self._part(asked, wanted) for wanted in asked.parts))
        if piece.room > self._ends.most:
            text = f"a piece of {piece.room} bytes does not fit a buffer of {self._ends.most}"
            raise BadRequestError(f"request {asked.request}: {text}")
        return piece

    def _part(self, asked: AskBuffer, wanted: WirePart) -> tuple[ImagePart, Runs, Ints]:
        part = self._of(None if asked.layers is None else frozenset(asked.layers)).get((wanted.read, wanted.part))
        if part is None or part.size != wanted.size:
            text = f"part {wanted.part} of read {wanted.read}, {wanted.size} bytes a block, is none that is staged here"
            raise BadRequestError(f"request {asked.request}: {text}: run one release on both sides")
        runs = unpack_runs(wanted.runs)
        if why := _unfit(self._plan, part, runs):
            raise BadRequestError(f"request {asked.request}: {why}")
        return part, runs, np.unique(part.program.blocks(runs))

    def _of(self, layers: Layers | None) -> Images:
        if layers not in self._images:
            if len(self._images) >= MOST_SETS:
                raise LimitedError(f"{MOST_SETS} unlike sets of layers were asked for: offer the same ones each time")
            every = (image_parts(self._plan, self._decode_worker, read, layers, self._ends) for read in self._reads)
            self._images[layers] = {part.number: part for parts in every for part in parts}
        return self._images[layers]


def _unfit(plan: Plan, part: ImagePart, runs: Runs) -> str:
    """Why runs that a peer asked for are none of pages and blocks that there are; empty where they are.

    Nothing that is copied for them is then outside the pool, or the buffer.
    """
    groups = spans.group_named(plan.prefill, part.pair.prefill), spans.group_named(plan.decode, part.pair.decode)
    prefill, decode = (spans.page_rows(group, part.pair.rows) for group in groups)
    block, token, to, at, count = runs
    own, other = (block, to) if part.packed else (to, block)
    if not len(count):
        return "nothing is asked for"
    if ((own < 0) | (own >= part.program.pool_blocks) | (other < 0)).any():
        return "a block is asked for that there is not"
    if ((token < 0) | (at < 0) | (count < 1) | (count > prefill - token) | (count > decode - at)).any():
        return "rows are asked for that no page has"
    return ""
