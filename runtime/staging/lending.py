"""Lending: buffers of the stage here that a peer moves bytes through, piece by piece.

A reader has each piece packed before it is told where it lies, in the order of its own pages. A writer fills a buffer
with its pages as they lie, and what it returned full is copied to its place. A buffer that was lent is the peer's until
it gives it back, or can touch nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from kvplan.runtime.control.messages import AskBuffer, Lent
from kvplan.runtime.staging.asked import AskedImages
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.staged import StagedMove, StagedPiece


@dataclass(slots=True, eq=False)
class LentPiece:
    """A piece of a request. Its buffer is `lent` once the peer was told where it is, and `filled` once that wrote it.

    Nobody wants it any more once it is `left`, and nobody moves it once it is `over`.
    """

    request: str
    move: StagedMove
    lent: bool = False
    filled: bool = False
    left: bool = False
    over: bool = False

    def leave(self) -> None:
        """No copy begins any more. A buffer that was lent is the peer's until it is given back."""
        self.move.leave()
        self.left = True


class LentPieces:
    """The pieces for which one peer asked, by number. It writes them, or reads them where they are `packed`.

    `say` tells it something. What cannot be lent or copied is told to `failed`, with the request. They are `left` once
    all of them are given up.
    """

    def __init__(
        self,
        stage: Stage,
        images: AskedImages,
        peer: str,
        *,
        packed: bool,
        say: Callable[[msgspec.Struct], None],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self.say, self._failed, self.left = say, failed, False
        self._stage, self._images, self._peer, self._packed = stage, images, peer, packed
        self._pieces: dict[int, LentPiece] = {}

    def __len__(self) -> int:
        """How many have a buffer, or wait for one."""
        return len(self._pieces)

    @property
    def lent(self) -> bool:
        """Whether the peer has a buffer."""
        return any(piece.lent for piece in self._pieces.values())

    def wanted(self, asked: AskBuffer) -> StagedPiece:
        """What is asked for. Raises BadRequestError, LimitedError, CardError, AddressError."""
        return self._images.piece(asked, self._pieces)

    def add(self, asked: AskBuffer, wanted: StagedPiece) -> None:
        """Lend a buffer for a piece, as soon as there is one."""
        piece = LentPiece(asked.request, StagedMove(self._stage.of(wanted.memory), wanted, self._peer, self._packed))
        self._pieces[asked.number] = piece
        # At once, that it is copied while the next one is asked for; what may come next gives a buffer back.
        if not self._stage.stuck(self._peer):
            self.advance(asked.number, piece)

    def give_back(self, number: int, *, moved: bool) -> bool:
        """The peer is done with a piece. Whether it was asked for and, where the peer wrote it, filled."""
        if (piece := self._pieces.get(number)) is None:
            return False
        piece.filled = piece.filled or (moved and piece.lent and not self._packed)
        if not piece.filled:
            if not piece.lent:
                piece.leave()
            piece.lent, piece.over = False, True
            self.advance(number, piece)
        return piece.filled or self._packed

    def step(self) -> None:
        """Move on with every piece."""
        for number, piece in list(self._pieces.items()):
            self.advance(number, piece)

    def advance(self, number: int, piece: LentPiece) -> None:
        """Tell the peer where its buffer is once it has what is to be read, copy what was filled, and take it back."""
        try:
            if piece.over:
                self._free_settled(number, piece, touched=True)
            elif not (piece.lent or piece.left) and piece.move.ready():
                self.say(Lent(piece.request, number, piece.move.address))
                piece.lent = True
            elif piece.filled and not piece.left and piece.move.arrived():
                self._pieces.pop(number).move.release()
        except Exception as error:
            piece.leave()
            self._failed(piece.request, error)

    def leave(self, request: str | None = None) -> None:
        """A request is given up, or all of them: nothing is copied any more that has not begun."""
        self.left = self.left or request is None
        for piece in self._pieces.values():
            if request in (None, piece.request):
                piece.leave()

    def settle(self, *, touched: bool) -> None:
        """Take back what nothing touches any more of pieces that were given up; the peer still may, or may not."""
        for number, piece in list(self._pieces.items()):
            piece.over = True
            self._free_settled(number, piece, touched)

    def _free_settled(self, number: int, piece: LentPiece, touched: bool) -> None:
        if not piece.move.copying and (piece.filled or not piece.lent or not touched):
            self._pieces.pop(number).move.release()
