"""The body of an object, piece by piece: each is summed and moved while the processor's cache still holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol
from zlib import crc32

import numpy as np

from kvplan.store.errors import DamagedObjectError
from kvplan.store.header import PIECE, SUM, Bytes, ObjectHeader, Piece

# Bytes of a row of words whose columns are summed: the first level of a cache holds two.
ROW = 8192


class Body(Protocol):
    """Where the bytes of an object come from or go to. Several threads may use several bodies."""

    def get(self, low: int, out: Bytes) -> None:
        """Fill `out` with the bytes from `low` on, a piece."""

    def put(self, low: int, piece: Bytes) -> None:
        """Take a piece that is as it was written, the bytes from `low` on."""


# The body of an object by its header; raises a StoreError where the object is refused.
Place = Callable[[ObjectHeader], Body]


class HeldPages:
    """Pages that memory holds: the body is one after the other."""

    def __init__(self, pages: Sequence[Bytes]) -> None:
        self._pages = pages

    def get(self, low: int, out: Bytes) -> None:
        for page, part in self._meets(low, out):
            part[:] = page

    def put(self, low: int, piece: Bytes) -> None:
        for page, part in self._meets(low, piece):
            page[:] = part

    def _meets(self, low: int, piece: Bytes) -> Iterator[tuple[Bytes, Bytes]]:
        """The parts of pages that are of a piece, and where they lie in it."""
        start, high = 0, low + piece.nbytes
        for page in self._pages:
            first, end = max(start, low), min(start + page.nbytes, high)
            if first < end:
                yield page[first - start : end - start], piece[first - low : end - low]
            start += page.nbytes


def checksum(piece: Bytes) -> int:
    """A checksum of a piece, by additions that numpy makes with the processor's vector instructions.

    It is the CRC-32 of the sums of all columns and of all rows of 64-bit words, 8 KiB each, and of the bytes behind
    them. It finds faults of disks and memory, not forgeries.
    """
    whole = piece.nbytes // ROW * ROW
    words = piece[:whole].view("<u8").reshape(-1, ROW // 8)
    columns, rows = (np.add.reduce(words, axis) for axis in (0, 1))
    return crc32(piece[whole:].data, crc32(rows.data, crc32(columns.data)))


def batches(header: ObjectHeader, most: int = PIECE) -> Iterator[tuple[Piece, ...]]:
    """The pieces of an object, as many at a time as have `most` bytes, one at least."""
    some: tuple[Piece, ...] = ()
    for piece in header.pieces:
        if some and piece[1] - some[0][0] > most:
            yield some
            some = ()
        some = (*some, piece)
    if some:
        yield some


def fill(body: Body, pieces: Sequence[Piece], out: Bytes) -> list[int]:
    """Fill `out` with pieces that follow each other. Returns their checksums."""
    sums, first = list[int](), pieces[0][0] if pieces else 0
    for low, high in pieces:
        body.get(low, out[low - first : high - first])
        sums.append(checksum(out[low - first : high - first]))
    return sums


def read_body(header: ObjectHeader, body: Body, read: Callable[[int, int], Bytes], most: int = PIECE) -> None:
    """Have `read` give the bytes of an object's body, at most `most` at a time, from one byte to another.

    Raises DamagedObjectError with the first piece that is not as it was written; that one is not put into the body.
    """
    written = dict(zip(header.pieces, np.frombuffer(header.sums, SUM).tolist(), strict=True))
    for pieces in batches(header, most):
        first, data = pieces[0][0], read(pieces[0][0], pieces[-1][1])
        for low, high in pieces:
            piece = data[low - first : high - first]
            if checksum(piece) != written[low, high]:
                text = f"bytes {low} to {high} of the pages of object {header.name} are not as they were written"
                raise DamagedObjectError(f"{text}: it is damaged")
            body.put(low, piece)
