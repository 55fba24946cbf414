"""Lent buffers: slices that go by way of the peer's stage, which who moves them asks for piece by piece.

A reader has a piece packed there, in the order of its own pages; a writer fills the buffer with pages as they lie, and
the other one copies from it. A buffer that was lent is used for nothing else before it is given back: that is said once
of what was asked for, whatever becomes of it, and only when no read or write of it is in progress.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from kvplan.plan.layers import Layers
from kvplan.runtime.control.messages import AskBuffer, ReturnBuffer, WirePart, pack_runs
from kvplan.runtime.inspection import PeerStageState
from kvplan.runtime.staging.buffers import SHARE
from kvplan.runtime.staging.staged import StagedPiece

# Pieces that are asked for at once: while as many as one peer may have are moved, the next ones are made ready.
MOST_ASKED = 2 * SHARE


class PeerStage:
    """A peer's stage as who moves bytes through it knows it, with buffers of `buffer_bytes` bytes; 0 for none.

    The peer is asked by `say`, which raises what keeps it from being asked, and is told by `tell` what is given back.
    """

    def __init__(
        self, say: Callable[[AskBuffer], object], tell: Callable[[ReturnBuffer], object], buffer_bytes: int
    ) -> None:
        self.buffer_bytes = buffer_bytes
        self._say, self._tell, self._numbers = say, tell, itertools.count()
        self._queue: dict[LentMove, None] = {}
        self._asked: dict[int, LentMove] = {}
        self._kept = 0
        # As the worker said last.
        self.lends = True

    @property
    def stuck(self) -> bool:
        """Whether every buffer that may be had belongs to slices that were given up: go without."""
        return self._kept >= SHARE or not self.lends

    def inspected(self, peer: str) -> PeerStageState:
        """What the stage of the peer of this name lends."""
        ready = sum(move.has_buffer for move in self._asked.values())
        return PeerStageState(peer, len(self._asked), ready, self._kept, len(self._queue), self.lends)

    def ask(self, move: LentMove) -> int | None:
        """Ask for a piece: its number, None while others are to be asked for first. Raises PeerLostError, CardError."""
        self._queue.setdefault(move)
        if len(self._asked) >= MOST_ASKED or next(iter(self._queue)) is not move:
            return None
        del self._queue[move]
        number = next(self._numbers)
        self._say(move.question(number))
        self._asked[number] = move
        return number

    def lent(self, request: str, number: int, address: int) -> bool:
        """A piece of a request has the buffer at `address`; False where it is wanted no more, or was told before."""
        move = self._asked.get(number)
        return move is not None and move.request == request and move.take(address)

    def withdraw(self, move: LentMove) -> None:
        """A piece is not to be asked for any more."""
        self._queue.pop(move, None)

    def keep(self) -> None:
        """A buffer belongs to a slice that was given up, and may be read or written for a long time."""
        self._kept += 1

    def give_back(self, request: str, number: int, *, moved: bool, kept: bool) -> None:
        """Nothing moves a piece that was asked for any more. All of it was `moved` or not; it was `kept` or not."""
        self._kept -= kept
        if self._asked.pop(number, None) is not None:
            self._tell(ReturnBuffer(request, number, moved))


class LentMove:
    """One slice's way through its peer's stage: as StagedMove, whose buffer is here."""

    at_peer = True

    def __init__(self, stage: PeerStage, piece: StagedPiece, request: str, layers: Layers | None) -> None:
        self.piece = piece
        self.request, self._stage, self._layers = request, stage, layers
        self._number: int | None = None
        self._address: int | None = None
        self._left = self._kept = self._moved = False

    @property
    def begun(self) -> bool:
        """Whether it was asked for."""
        return self._number is not None

    @property
    def has_buffer(self) -> bool:
        """Whether the peer said which buffer it has."""
        return self._address is not None

    @property
    def address(self) -> int:
        """Where its buffer begins, at the peer. Only when it is `ready`."""
        assert self._address is not None
        return self._address

    @property
    def copying(self) -> bool:
        """Nothing is copied here."""
        return False

    def question(self, number: int) -> AskBuffer:
        """What asks for it."""
        parts = tuple(WirePart(*part.number, part.size, pack_runs(runs)) for part, runs, _ in self.piece.parts)
        layers = None if self._layers is None else tuple(sorted(self._layers))
        return AskBuffer(self.request, number, layers, parts)

    def take(self, address: int) -> bool:
        """It has the buffer at `address`; False where it had one before, or is given up."""
        if self._left or self._address is not None:
            return False
        self._address = address
        return True

    def ready(self) -> bool:
        """Whether it may be posted; it is asked for first. Raises PeerLostError, CardError."""
        if self._number is None:
            self._number = self._stage.ask(self)
        return self.has_buffer

    def arrived(self) -> bool:
        """The wire has copied all of it: the rest is the peer's, or in its place."""
        self._moved = True
        return True

    def leave(self) -> None:
        """The slice is given up; what it was lent is its own until `release`."""
        self._stage.withdraw(self)
        self._left = True
        if self._address is not None and not self._kept:
            self._kept = True
            self._stage.keep()

    def release(self) -> None:
        """Say that it is not moved any more, or not wanted."""
        self._stage.withdraw(self)
        number, moved, kept = self._number, self._moved and not self._left, self._kept
        self._number, self._left, self._kept = None, True, False
        if number is not None:
            self._stage.give_back(self.request, number, moved=moved, kept=kept)
