"""Packed reads: what prefill packs into its stage in the order of decode pages, and a reader takes from there.

The reader asks for a piece, is told where its buffer begins, reads it into its own pages and gives the buffer back. A
buffer that was lent is not used again before: what is asked for is given back once, whatever becomes of it, and only
when no read of it is under way.
"""

from __future__ import annotations

import itertools
from typing import Protocol

import msgspec

from kvplan.runtime.control.messages import AskPack, PackPart, ReturnPack, pack_runs
from kvplan.runtime.staging.buffers import SHARE
from kvplan.runtime.transfer.layers import Layers
from kvplan.runtime.transfer.staged import StagedPiece

# Pieces that are asked for at once: while as many as one peer may have are read, the next ones are packed.
MOST_ASKED = 2 * SHARE


class PackControl(Protocol):
    """How a prefill worker is spoken to."""

    def say(self, message: msgspec.Struct) -> None: ...

    def send(self, message: msgspec.Struct) -> bool: ...


class PeerStage:
    """A prefill worker's stage as one who reads from it knows it, with buffers of `buffer_bytes`; 0 for none."""

    def __init__(self, control: PackControl, buffer_bytes: int) -> None:
        self.buffer_bytes = buffer_bytes
        self._control, self._numbers = control, itertools.count()
        self._queue: dict[PackedMove, None] = {}
        self._asked: dict[int, PackedMove] = {}
        self._kept = 0
        # As the worker said last.
        self.packs = True

    @property
    def stuck(self) -> bool:
        """Whether every buffer that this reader may have belongs to slices that were given up: go without."""
        return self._kept >= SHARE or not self.packs

    def ask(self, move: PackedMove) -> int | None:
        """Ask for a piece: its number, None while others are to be asked for first. Raises PeerLostError, CardError."""
        self._queue.setdefault(move)
        if len(self._asked) >= MOST_ASKED or next(iter(self._queue)) is not move:
            return None
        del self._queue[move]
        number = next(self._numbers)
        self._control.say(move.question(number))
        self._asked[number] = move
        return number

    def packed(self, number: int, address: int) -> bool:
        """A piece is packed in the buffer at `address`; False where it is wanted no more, or was told before."""
        move = self._asked.get(number)
        return move is not None and move.take(address)

    def withdraw(self, move: PackedMove) -> None:
        """A piece is not to be asked for any more."""
        self._queue.pop(move, None)

    def keep(self) -> None:
        """A buffer belongs to a slice that was given up, and may be read for a long time."""
        self._kept += 1

    def give_back(self, request: str, number: int, kept: bool) -> None:
        """Nothing reads a piece that was asked for any more, which was to `keep` or not."""
        self._kept -= kept
        if self._asked.pop(number, None) is not None:
            self._control.send(ReturnPack(request, number))


class PackedMove:
    """One slice's way through its peer's stage: as StagedMove, whose buffer is here."""

    at_peer = True

    def __init__(self, stage: PeerStage, piece: StagedPiece, request: str, layers: Layers | None) -> None:
        self.piece = piece
        self._stage, self._request, self._layers = stage, request, layers
        self._number: int | None = None
        self._address: int | None = None
        self._left = self._kept = False

    @property
    def begun(self) -> bool:
        """Whether it was asked for."""
        return self._number is not None

    @property
    def address(self) -> int:
        """Where its buffer begins, at the peer. Only when it is `ready`."""
        assert self._address is not None
        return self._address

    @property
    def copying(self) -> bool:
        """Nothing is copied here."""
        return False

    def question(self, number: int) -> AskPack:
        """What asks for it."""
        parts = tuple(PackPart(*part.number, part.size, pack_runs(runs)) for part, runs, _ in self.piece.parts)
        layers = None if self._layers is None else tuple(sorted(self._layers))
        return AskPack(self._request, number, layers, parts)

    def take(self, address: int) -> bool:
        """It is packed at `address`; False where it was before, or is given up."""
        if self._left or self._address is not None:
            return False
        self._address = address
        return True

    def ready(self) -> bool:
        """Whether it may be read; it is asked for first. Raises PeerLostError, CardError."""
        if self._number is None:
            self._number = self._stage.ask(self)
        return self._address is not None

    def arrived(self) -> bool:
        """What the wire has copied is in its place."""
        return True

    def leave(self) -> None:
        """The slice is given up; what it was lent is its own until `release`."""
        self._stage.withdraw(self)
        self._left = True
        if self._address is not None and not self._kept:
            self._kept = True
            self._stage.keep()

    def release(self) -> None:
        """Say that it is not read any more, or not wanted."""
        self._stage.withdraw(self)
        if self._number is not None:
            self._stage.give_back(self._request, self._number, self._kept)
        self._number, self._left, self._kept = None, True, False
