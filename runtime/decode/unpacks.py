"""Unpacks: the pieces that prefill workers write into the stage here, until they are copied to their place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvplan.plan.errors import BadRequestError
from kvplan.runtime.control.messages import AskBuffer
from kvplan.runtime.decode.engines import PrefillConnection
from kvplan.runtime.protocol.decode import DecodeCore
from kvplan.runtime.protocol.effects import Buffer
from kvplan.runtime.protocol.loads import LoadPart, PrefillPeer
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lending import LentPieces
from kvplan.runtime.staging.staged import StagedPiece
from kvplan.runtime.transfer.demand import Demand


class PageUnpacks:
    """The pieces for which writers asked buffers, for each part of a load. The `core` is told what came of them."""

    def __init__(self, core: DecodeCore, stage: Stage, connection: Callable[[PrefillPeer], PrefillConnection]) -> None:
        self._core, self._stage, self._connection = core, stage, connection
        self.parts: dict[LoadPart, LentPieces] = {}

    def buffer(self, buffer: Buffer) -> None:
        """A writer asks for a buffer for a piece, or returns one."""
        part, message = buffer.part, buffer.message
        if isinstance(message, AskBuffer):
            self._ask(buffer, message)
        elif part in self.parts and self.parts[part].give_back(message.number, moved=message.moved):
            self._core.returned(part, message.number)

    def stop(self, part: LoadPart) -> bool:
        """Copy nothing more of a part that has not begun. Whether anything of it was asked for."""
        if part not in self.parts:
            return False
        self.parts[part].leave()
        self._unpack(part, self.parts[part])
        return True

    def step(self) -> None:
        """Move on with every piece."""
        for part, pieces in list(self.parts.items()):
            self._unpack(part, pieces)

    def _ask(self, buffer: Buffer, asked: AskBuffer) -> None:
        part = buffer.part
        if part not in self.parts:
            self.parts[part] = self._pieces(part)
        pieces = self.parts[part]
        try:
            wanted = pieces.wanted(asked)
            _check_written(asked.request, wanted, buffer.load.demand, part.peer.shard)
        except Exception as error:
            self._fail(part, error)
        else:
            pieces.add(asked, wanted)

    def _pieces(self, part: LoadPart) -> LentPieces:
        connection = self._connection(part.peer)
        return LentPieces(
            self._stage,
            connection.images,
            part.peer.name,
            packed=False,
            say=connection.control.say,
            failed=lambda _, error: self._fail(part, error),
        )

    def _fail(self, part: LoadPart, error: Exception) -> None:
        """Lend nothing more for a part, at once."""
        self.parts[part].leave()
        self._core.loads.broken(part, error)

    def _unpack(self, part: LoadPart, pieces: LentPieces) -> None:
        """Copy what was written to its place, or take back what nothing touches any more of a part that was stopped."""
        if not pieces.left:
            pieces.step()
        if pieces.left:
            pieces.settle(touched=part.writes)
        if len(pieces):
            return
        del self.parts[part]
        (self._core.settled if pieces.left else self._core.placed)(part)


def _check_written(request: str, piece: StagedPiece, demand: Demand, shard: int) -> None:
    """Raises BadRequestError where a piece is of blocks that the request does not write."""
    wanted = demand.of(shard)
    for part, runs, _ in piece.parts:
        own = wanted.get(part.pair.name)
        if own is None or not np.isin(runs.decode_block, own.decode_block).all():
            raise BadRequestError(f"request {request}: a piece is of blocks that are not to be written for it")
