"""Lent buffers: slices that move through the peer's stage. The side that moves them asks for buffers piece by piece.

A reader has the peer pack a piece, in the order of the reader's pages. A writer fills the buffer with pages as they
lie, and the peer copies from it. The peer uses a lent buffer for nothing else until it is returned. Each piece that was
asked for is returned once, on any outcome, and only when no read or write of it is in progress.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from kvplan.plan.layers import Layers
from kvplan.runtime.control.messages import AskBuffer, ReturnBuffer, WirePart, pack_runs
from kvplan.runtime.inspection import PeerStageState
from kvplan.runtime.staging.buffers import SHARE
from kvplan.runtime.staging.staged import StagedPiece

# Pieces that are asked for at once: one peer's share of buffers is moved while the next pieces are packed.
MOST_ASKED = 2 * SHARE


class PeerStage:
    """A peer's stage, as the side that moves bytes through it knows it: buffers of `buffer_bytes`, 0 for none.

    `say` asks the peer for a buffer, and raises if it cannot be asked. `tell` returns a buffer to it.
    """

    def __init__(
        self, say: Callable[[AskBuffer], object], tell: Callable[[ReturnBuffer], object], buffer_bytes: int
    ) -> None:
        self.buffer_bytes = buffer_bytes
        self._say, self._tell, self._numbers = say, tell, itertools.count()
        self._queue: dict[LentMove, None] = {}
        self._asked: dict[int, LentMove] = {}
        self._kept = 0
        # Whether the peer lends buffers now, by its last message.
        self.lends = True

    @property
    def stuck(self) -> bool:
        """Whether slices that were given up have every buffer of this side, or the peer lends none: do not stage."""
        return self._kept >= SHARE or not self.lends

    def inspected(self, peer: str) -> PeerStageState:
        """Return what the stage of the peer of this name lends."""
        ready = sum(move.address > 0 for move in self._asked.values())
        return PeerStageState(peer, len(self._asked), ready, self._kept, len(self._queue), self.lends)

    def ask(self, move: LentMove) -> int | None:
        """Ask for a piece. Returns its number, None while others come first. Raises PeerLostError, CardError."""
        self._queue.setdefault(move)
        if len(self._asked) >= MOST_ASKED or next(iter(self._queue)) is not move:
            return None
        del self._queue[move]
        number = next(self._numbers)
        self._say(move.question(number))
        self._asked[number] = move
        return number

    def lent(self, request: str, number: int, address: int) -> bool:
        """Give a piece of a request the buffer at `address`; False if it was given up, or had a buffer before."""
        move = self._asked.get(number)
        return move is not None and move.request == request and move.take(address)

    def withdraw(self, move: LentMove) -> None:
        """Remove a piece from the queue: it is not asked for any more."""
        self._queue.pop(move, None)

    def keep(self) -> None:
        """Note that a slice with a buffer was given up, and that the buffer may be used for a long time."""
        self._kept += 1

    def give_back(self, request: str, number: int, *, moved: bool, kept: bool) -> None:
        """Return a piece's buffer that nothing uses any more. `moved`: all of it was. `kept`: `keep` was called."""
        self._kept -= kept
        if self._asked.pop(number, None) is not None:
            self._tell(ReturnBuffer(request, number, moved))


class LentMove:
    """One slice that moves through its peer's stage. It has the methods of StagedMove, whose buffer is here.

    `address` is the start of its buffer in the peer's memory, 0 until the peer has lent it one.
    """

    # The peer copies, so it is never `copying` here.
    at_peer, copying = True, False

    def __init__(self, stage: PeerStage, piece: StagedPiece, request: str, layers: Layers | None) -> None:
        self.piece = piece
        self.request, self._stage, self._layers = request, stage, layers
        self._number: int | None = None
        self.address = 0
        self._left = self._kept = self._moved = False

    @property
    def begun(self) -> bool:
        """Whether it was asked for."""
        return self._number is not None

    def question(self, number: int) -> AskBuffer:
        """Return the message that asks for a buffer for it."""
        parts = tuple(WirePart(*part.number, part.size, pack_runs(runs)) for part, runs, _ in self.piece.parts)
        layers = None if self._layers is None else tuple(sorted(self._layers))
        return AskBuffer(self.request, number, layers, parts)

    def take(self, address: int) -> bool:
        """Take the buffer at `address`; False if it had one before, or was given up."""
        if self._left or self.address:
            return False
        self.address = address
        return True

    def ready(self) -> bool:
        """Ask for a buffer, if that was not done. Returns whether it has one. Raises PeerLostError, CardError."""
        if self._number is None:
            self._number = self._stage.ask(self)
        return self.address > 0

    def arrived(self) -> bool:
        """Note that the wire has copied all of it, and return True: what is left to copy is the peer's work."""
        self._moved = True
        return True

    def leave(self) -> None:
        """Give the slice up. It keeps its buffer until `release`."""
        self._stage.withdraw(self)
        self._left = True
        if self.address and not self._kept:
            self._kept = True
            self._stage.keep()

    def release(self) -> None:
        """Return the buffer to the peer, or withdraw the question for one."""
        self._stage.withdraw(self)
        number, moved, kept = self._number, self._moved and not self._left, self._kept
        self._number, self._left, self._kept = None, True, False
        if number is not None:
            self._stage.give_back(self.request, number, moved=moved, kept=kept)
