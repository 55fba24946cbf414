"""The body of an object, piece by piece: each is summed and moved while it is in the processor's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol
from zlib import crc32

import numpy as np

from kvplan.store.errors import DamagedObjectError
from kvplan.store.header import PIECE, SUM, Bytes, ObjectHeader, Piece

# Bytes of a row of words for column sums. The first level cache holds two rows.
ROW = 8192


class Body(Protocol):
    """A source or target of an object's bytes. Several threads may use several bodies."""

    def get(self, low: int, out: Bytes) -> None:
        """Fill `out`, a piece, with the bytes from `low` on."""

    def put(self, low: int, piece: Bytes) -> None:
        """Take a checked piece, the bytes from `low` on."""


# Returns the body for an object's header, or raises a StoreError to refuse the object.
Place = Callable[[ObjectHeader], Body]


class HeldPages:
    """A body of pages in memory, one after the other."""

    def __init__(self, pages: Sequence[Bytes]) -> None:
        self._pages = pages

    def get(self, low: int, out: Bytes) -> None:
        for page, part in self._meets(low, out):
            part[:] = page

    def put(self, low: int, piece: Bytes) -> None:
        for page, part in self._meets(low, piece):
            page[:] = part

    def _meets(self, low: int, piece: Bytes) -> Iterator[tuple[Bytes, Bytes]]:
        """Yield the parts of pages that overlap a piece, with the matching parts of the piece."""
        start, high = 0, low + piece.nbytes
        for page in self._pages:
            first, end = max(start, low), min(start + page.nbytes, high)
            if first < end:
                yield page[first - start : end - start], piece[first - low : end - low]
            start += page.nbytes


def checksum(piece: Bytes) -> int:
    """Return a checksum of a piece, made of additions, for which numpy uses vector instructions.

    It is the CRC-32 of the sums of all columns and all rows of 64-bit words, 8 KiB per row, and of the remaining bytes.
    It finds faults of disks and memory, not forgeries.
    """
    whole = piece.nbytes // ROW * ROW
    words = piece[:whole].view("<u8").reshape(-1, ROW // 8)
    columns, rows = (np.add.reduce(words, axis) for axis in (0, 1))
    return crc32(piece[whole:].data, crc32(rows.data, crc32(columns.data)))


def batches(header: ObjectHeader, most: int = PIECE) -> Iterator[tuple[Piece, ...]]:
    """Yield the pieces of an object in batches of at most `most` bytes, but at least one piece."""
    some: tuple[Piece, ...] = ()
    for piece in header.pieces:
        if some and piece[1] - some[0][0] > most:
            yield some
            some = ()
        some = (*some, piece)
    if some:
        yield some


def fill(body: Body, pieces: Sequence[Piece], out: Bytes) -> list[int]:
    """Fill `out` with adjacent pieces of a body, and return their checksums."""
    sums, first = list[int](), pieces[0][0] if pieces else 0
    for low, high in pieces:
        body.get(low, out[low - first : high - first])
        sums.append(checksum(out[low - first : high - first]))
    return sums


def read_body(header: ObjectHeader, body: Body, read: Callable[[int, int], Bytes], most: int = PIECE) -> None:
    """Read an object's body by `read(low, high)`, about `most` bytes at a time, and put its checked pieces into `body`.

    Raises DamagedObjectError at the first piece with a wrong checksum, which is not put into `body`.
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
