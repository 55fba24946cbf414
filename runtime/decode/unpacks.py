"""Page unpacks, where a pair pushes: buffers of the stage here that prefill fills, and the copies from them.

A writer asks for a buffer for each piece, fills it with its pages as they lie, and gives it back: then the piece is
copied to its place. A buffer that was lent is the writer's until it gives it back, or can write nothing any more, which
ends its request's quarantine, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.plan.errors import BadRequestError
from kvplan.runtime.control.messages import AskBuffer, Lent
from kvplan.runtime.staging.asked import AskedImages
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lent import StageControl
from kvplan.runtime.staging.staged import StagedMove, StagedPiece
from kvplan.runtime.transfer.demand import Demand


@dataclass(slots=True, eq=False)
class PageUnpack:
    """One piece. Its buffer is `lent` once the writer was told where it is; it is `moved` once all of it is there."""

    move: StagedMove
    lent: bool = False
    moved: bool = False

    def settled(self, writes: bool) -> bool:
        """Whether nothing touches a piece that is given up, where its writer still `writes` or does not."""
        return not self.move.copying and (self.moved or not self.lent or not writes)


class PageUnpacks:
    """The pieces of one request that one prefill worker writes by way of the stage here, by number."""

    def __init__(self, stage: Stage | None, peer: str) -> None:
        self._stage, self._peer = stage, peer
        self._pieces: dict[int, PageUnpack] = {}

    def __len__(self) -> int:
        """How many are not in their place."""
        return len(self._pieces)

    def want(self, images: AskedImages, demand: Demand, shard: int, asked: AskBuffer, control: StageControl) -> None:
        """A piece of a request is to be written here.

        Raises BadRequestError, LimitedError, CardError, AddressError, PeerLostError.
        """
        if (stage := self._stage) is None:
            raise BadRequestError(f"request {asked.request}: this worker has no stage")
        piece = images.piece(asked, self._pieces)
        _check_written(asked.request, piece, demand, shard)
        move = StagedMove(stage.of(piece.memory), piece, self._peer, push=False)
        self._pieces[asked.number] = unpack = PageUnpack(move)
        self._lend(asked.request, asked.number, unpack, control)

    def give_back(self, number: int, moved: bool) -> bool:
        """The writer is done with a buffer. Whether it filled it, now or before."""
        piece = self._pieces.get(number)
        if piece is None or piece.moved:
            return piece is not None
        piece.moved = moved and piece.lent
        if not piece.moved:
            self._free(number)
        return piece.moved

    def step(self, request: str, control: StageControl) -> None:
        """Lend what there is, copy what was written. Raises LimitedError, PeerLostError, and what copying raises."""
        for number, piece in list(self._pieces.items()):
            if not piece.lent:
                self._lend(request, number, piece, control)
            if piece.moved and piece.move.arrived():
                self._free(number)

    def leave(self) -> None:
        """The request is given up: nothing is copied any more that has not begun."""
        for piece in self._pieces.values():
            piece.move.leave()

    def settle(self, writes: bool) -> None:
        """Take back the buffers that nothing touches any more, of a request that was given up."""
        for number, piece in list(self._pieces.items()):
            if piece.settled(writes):
                self._free(number)

    def _free(self, number: int) -> None:
        self._pieces.pop(number).move.release()

    def _lend(self, request: str, number: int, piece: PageUnpack, control: StageControl) -> None:
        if piece.move.ready():
            control.say(Lent(request, number, piece.move.address))
            piece.lent = True


def _check_written(request: str, piece: StagedPiece, demand: Demand, shard: int) -> None:
    """Raises BadRequestError where a piece is of blocks that the request does not write."""
    wanted = demand.of(shard)
    for part, runs, _ in piece.parts:
        own = wanted.get(part.pair.name)
        if own is None or not np.isin(runs.decode_block, own.decode_block).all():
            raise BadRequestError(f"request {request}: a piece is of blocks that are not to be written for it")
