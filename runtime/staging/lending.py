"""Lending: buffers of the stage here that a peer moves bytes through, piece by piece.

A reader has each piece packed before it is told where it lies, in the order of its own pages. A writer fills a buffer
with its pages as they lie, and what it returned full is copied to its place. A buffer that was lent is the peer's until
it gives it back, or can touch nothing any more.
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
        """A request is given up, or all of them: nothing is copied any more that has not begun."""
        self.left = self.left or request is None
        for piece in self._pieces.values():
            if request in (None, piece.request):
                piece.leave()

    def reclaim(self, *, touched: bool) -> None:
        """Take back what nothing touches any more of pieces that were given up; the peer still may, or may not."""
        for number, piece in list(self._pieces.items()):
            piece.over = True
            self._reclaim(number, piece, touched)

    def _reclaim(self, number: int, piece: LentPiece, touched: bool) -> None:
        if not piece.move.copying and (piece.filled or not piece.lent or not touched):
            self._pieces.pop(number).move.release()


class Lender(Generic[K]):
    """The pieces of all who ask for buffers here, by key; `pieces` begins those of one.

    Whether a peer may still touch a buffer of a key that is left, `touched` says. A key is forgotten when none of its
    pieces has a buffer, or waits for one, and it was left; with `over`, which is told whether it was, in any case.
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
        """How many pieces have a buffer, or wait for one."""
        return sum(map(len, self.all.values()))

    def want(self, key: K, asked: AskBuffer, check: Callable[[StagedPiece], None] = lambda wanted: None) -> None:
        """Lend a buffer for a piece that stands the `check`. Raises what that raises, and as `LentPieces.wanted`."""
        if key not in self.all:
            self.all[key] = self._pieces(key)
        wanted = self.all[key].wanted(asked)
        check(wanted)
        self.all[key].add(asked, wanted)

    def give_back(self, key: K, returned: ReturnBuffer) -> bool:
        """As `LentPieces.give_back`, for a key; False if nothing was asked for it."""
        pieces = self.all.get(key)
        return pieces is not None and pieces.give_back(returned.number, moved=returned.moved)

    def leave(self, key: K, request: str | None = None) -> bool:
        """A key, or one request of it, is given up: nothing is copied any more that has not begun.

        Whether anything of the key was asked for.
        """
        if (pieces := self.all.get(key)) is None:
            return False
        pieces.leave(request)
        if request is None:
            self._advance(key, pieces)
        return True

    def step(self) -> None:
        """Move on with every piece, and take back what nothing touches any more of keys that are left."""
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
