"""Requested images: the reads for which a peer asks for buffers of the stage here, and checks of what it asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from kvplan.plan import spans
from kvplan.plan.errors import BadRequestError
from kvplan.plan.layers import MOST_SETS, Layers
from kvplan.plan.stage import way
from kvplan.plan.types import Ints, Plan, Runs
from kvplan.runtime.control.card import WorkerCard, with_stage
from kvplan.runtime.control.messages import AskBuffer, WirePart, unpack_runs
from kvplan.runtime.errors import LimitedError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.images import image_parts
from kvplan.runtime.staging.lent import MOST_ASKED
from kvplan.runtime.staging.staged import ImagePart, StagedEnds, StagedPiece
from kvplan.runtime.transport.base import Transport

# Image parts by (number of the read, number of the part).
Images = dict[tuple[int, int], ImagePart]


def requested_reads(plan: Plan, decode_worker: int, *, push: bool, prefill_worker: int | None = None) -> list[int]:
    """Return the numbers of a decode worker's reads for which the side that posts asks the other for buffers.

    With a `prefill_worker`, only the reads from that worker.
    """
    wanted, reads = "unpack" if push else "pack", enumerate(plan.reads[decode_worker])
    return [n for n, read in reads if prefill_worker in (None, read.worker) and way(read.table, push) == wanted]


def lending(card: WorkerCard, stage: Stage, transport: Transport, reads: Sequence[int]) -> WorkerCard:
    """Return the card of a worker for a peer that asks for buffers for `reads`: with its stage, opened, if it has one.

    Raises what opening the stage raises, TransportError, RegisterError.
    """
    if not stage.buffer_bytes or not reads:
        return card
    stage.open()
    return with_stage(card, transport.metadata(), stage.buffer_bytes)


class RequestedImages:
    """The images of the reads for which a peer asks for buffers, the same as the peer has them.

    They are kept by the layers that move together. `pool` and `stage` are the memory here. Worker `asker` of the other
    side writes with `push`, and reads otherwise.
    """

    def __init__(self, plan: Plan, pool: Pool, stage: Stage, asker: int, *, push: bool) -> None:
        prefill_worker, decode_worker = (asker, pool.worker) if push else (pool.worker, asker)
        self._plan, self._decode_worker = plan, decode_worker
        self._ends = StagedEnds(not push, None, pool.geometry, stage.buffer_bytes)
        self._reads = requested_reads(plan, decode_worker, push=push, prefill_worker=prefill_worker)
        self._images: dict[Layers | None, Images] = {}

    def piece(self, asked: AskBuffer, before: Collection[int]) -> StagedPiece:
        """Return the piece that a peer asks for, checked. Pieces with the numbers `before` are not settled yet.

        Raises BadRequestError, LimitedError, CardError, AddressError.
        """
        if asked.number in before:
            raise BadRequestError(f"request {asked.request}: piece {asked.number} was asked for before")
        if len(before) >= 2 * MOST_ASKED:
            raise LimitedError(f"request {asked.request}: {len(before)} pieces are asked for: give some back")
        piece = StagedPiece.of(tuple(self._part(asked, wanted) for wanted in asked.parts))
        if len({part.memory for part, _, _ in piece.parts}) > 1:
            raise BadRequestError(f"request {asked.request}: a piece is for several memories: ask for one at a time")
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
                raise LimitedError(f"{MOST_SETS} different sets of layers: offer the same ones each time")
            every = (image_parts(self._plan, self._decode_worker, read, layers, self._ends) for read in self._reads)
            self._images[layers] = {part.number: part for parts in every for part in parts}
        return self._images[layers]


def check_written(request: str, piece: StagedPiece, wanted: Mapping[str, Runs]) -> None:
    """Check that a piece has only blocks that the request writes, `wanted` by pair. Raises BadRequestError."""
    for part, runs, _ in piece.parts:
        own = wanted.get(part.pair.name)
        if own is None or not np.isin(runs.decode_block, own.decode_block).all():
            raise BadRequestError(f"request {request}: a piece is of blocks that are not to be written for it")


def _unfit(plan: Plan, part: ImagePart, runs: Runs) -> str:
    """Return why a peer's runs name blocks or rows that do not exist; empty if they are valid.

    No copy for valid runs leaves the pool or the buffer.
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
