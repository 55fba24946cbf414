"""Lending: buffers of the stage here that a peer moves bytes through, piece by piece.

For a reader, each piece is packed in the order of the reader's pages before the reader gets its address. A writer fills
a buffer with its pages as they lie; a buffer that it returns full is copied to its place. A lent buffer is the peer's
until the peer returns it, or can touch nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from kvplan.runtime.control.messages import AskBuffer, Lent, ReturnBuffer
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.requested_images import RequestedImages
from kvplan.runtime.staging.staged import StagedMove, StagedPiece

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True, eq=False)
class LentPiece:
    """A piece of a request. Its buffer is `lent` once the peer knows its address, and `filled` once the peer wrote it.

    `left` says that it was given up, `over` that the peer moves it no more.
    """

    request: str
    move: StagedMove
    lent: bool = False
    filled: bool = False
    left: bool = False
    over: bool = False

    def leave(self) -> None:
        """Give the piece up: no copy begins any more. A lent buffer is the peer's until it is returned."""
        self.move.leave()
        self.left = True


class LentPieces:
    """The pieces that one peer asked for, by number. It reads them if they are `packed`, and writes them otherwise.

    `say` sends it a message. `failed` is called with a request and an error if a piece cannot be lent or copied. `left`
    says that all of them were given up.
    """

    def __init__(
        self,
        stage: Stage,
        images: RequestedImages,
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
        """Return how many pieces have a buffer, or wait for one."""
        return len(self._pieces)

    @property
    def lent(self) -> bool:
        """Whether the peer has a buffer."""
        return any(piece.lent for piece in self._pieces.values())

    def want(self, asked: AskBuffer, check: Callable[[StagedPiece], None]) -> None:
        """Lend a piece that passes the `check` a buffer as soon as one is free.

        Raises BadRequestError, LimitedError, CardError, AddressError, and what the check raises.
        """
        wanted = self._images.piece(asked, self._pieces)
        check(wanted)
        piece = LentPiece(asked.request, StagedMove(self._stage.of(wanted.memory), wanted, self._peer, self._packed))
        self._pieces[asked.number] = piece
        # Begin at once, so that it is copied while the peer asks for the next one. If the peer is stuck, wait for a
        # step: its next message may return a buffer.
        if not self._stage.stuck(self._peer):
            self.advance(asked.number, piece)

    def give_back(self, number: int, *, moved: bool) -> bool:
        """Take a piece back from the peer. Returns whether it was asked for and, if the peer writes, filled."""
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
        """Advance every piece."""
        for number, piece in list(self._pieces.items()):
            self.advance(number, piece)

    def advance(self, number: int, piece: LentPiece) -> None:
        """Lend a piece's buffer when it is ready, or copy a filled one to its place and take the buffer back."""
        try:
            if piece.over:
                self._reclaim(number, piece, touched=True)
            elif not (piece.lent or piece.left) and piece.move.ready():
                self.say(Lent(piece.request, number, piece.move.address))
                piece.lent = True
            elif piece.filled and not piece.left and piece.move.arrived():
                self._pieces.pop(number).move.release()
        except Exception as error:
            piece.leave()
            self._failed(piece.request, error)

    def leave(self, request: str | None = None) -> None:
        """Give up the pieces of a request, or all: no copy begins any more."""
        self.left = self.left or request is None
        for piece in self._pieces.values():
            if request in (None, piece.request):
                piece.leave()

    def reclaim(self, *, touched: bool) -> None:
        """Take back the buffers of pieces that were given up. If `touched`, the peer may still use lent ones."""
        for number, piece in list(self._pieces.items()):
            piece.over = True
            self._reclaim(number, piece, touched)

    def _reclaim(self, number: int, piece: LentPiece, touched: bool) -> None:
        if not piece.move.copying and (piece.filled or not piece.lent or not touched):
            self._pieces.pop(number).move.release()


class Lender(Generic[K]):
    """The pieces of all peers that ask for buffers here, by key; `pieces` makes the pieces of a new key.

    `touched` returns whether a peer may still touch a buffer of a key that was left. A key is forgotten when it was
    left and none of its pieces has a buffer or waits for one. With `over`, it is forgotten even if it was not left;
    `over` is called with the key and whether it was.
    """

    def __init__(
        self,
        pieces: Callable[[K], LentPieces],
        touched: Callable[[K], bool] = lambda key: False,
        over: Callable[[K, bool], object] | None = None,
    ) -> None:
        self._pieces, self._touched, self._over = pieces, touched, over
        self.all: dict[K, LentPieces] = {}

    def __len__(self) -> int:
        """Return how many pieces have a buffer, or wait for one."""
        return sum(map(len, self.all.values()))

    def want(self, key: K, asked: AskBuffer, check: Callable[[StagedPiece], None] = lambda wanted: None) -> None:
        """Do what `LentPieces.want` does, for a key."""
        if key not in self.all:
            self.all[key] = self._pieces(key)
        self.all[key].want(asked, check)

    def give_back(self, key: K, returned: ReturnBuffer) -> bool:
        """Do what `LentPieces.give_back` does, for a key; False if nothing was asked for it."""
        pieces = self.all.get(key)
        return pieces is not None and pieces.give_back(returned.number, moved=returned.moved)

    def leave(self, key: K, request: str | None = None) -> bool:
        """Give up a key, or one request of it: no copy begins any more. Returns False if the key is unknown."""
        if (pieces := self.all.get(key)) is None:
            return False
        pieces.leave(request)
        if request is None:
            self._advance(key, pieces)
        return True

    def step(self) -> None:
        """Advance every piece, and take back the buffers of left keys that nothing touches any more."""
        for key, pieces in list(self.all.items()):
            self._advance(key, pieces)

    def _advance(self, key: K, pieces: LentPieces) -> None:
        if not pieces.left:
            pieces.step()
        if pieces.left:
            pieces.reclaim(touched=self._touched(key))
        if len(pieces) or not (pieces.left or self._over):
            return
        del self.all[key]
        if self._over is not None:
            self._over(key, pieces.left)
