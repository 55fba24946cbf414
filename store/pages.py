"""Pages of an object, read a piece at a time: each is summed while the processor's caches still hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kvplan.store.errors import DamagedObjectError
from kvplan.store.header import Bytes, ObjectHeader

try:
    # The same sums: by instructions of the processor, in a quarter of the time and less.
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

# An object's pages in memory by name, in their order.
Pages = Mapping[str, Bytes]
# Where the pages of an object go, by its header; raises a StoreError where it is refused.
Place = Callable[[ObjectHeader], Pages]
# Bytes that the cache of a processor's core holds.
PIECE = 1 << 20


def checksum(page: Bytes) -> int:
    """CRC-32 of a page: it finds faults of disks and memory, not forgeries."""
    return int(crc32(page.data))


def read_pages(
    header: ObjectHeader, pages: Pages, read: Callable[[int, Sequence[Bytes]], None], most: int = PIECE
) -> None:
    """Have `read` fill the pages of an object, at most `most` bytes at a time, from byte n of them all on.

    Raises DamagedObjectError with the first page that is not as it was written.
    """
    sums = dict.fromkeys(pages, 0)
    for start, pieces in _calls(pages, most):
        read(start, [piece for _, piece in pieces])
        for name, piece in pieces:
            sums[name] = crc32(piece.data, sums[name])
    for (_, written), (name, found) in zip(header.pages, sums.items(), strict=True):
        if found != written:
            raise DamagedObjectError(f"{name} of object {header.name} is not as it was written: it is damaged")


def fill(pieces: Sequence[Bytes], data: Bytes) -> None:
    """Copy bytes into pieces of pages, one after the other."""
    start = 0
    for piece in pieces:
        piece[:] = data[start : start + piece.nbytes]
        start += piece.nbytes


def _calls(pages: Pages, most: int) -> Iterator[tuple[int, list[tuple[str, Bytes]]]]:
    """What is read at a time: where it begins, and pieces of pages, by name."""
    start, size, pieces = 0, 0, list[tuple[str, Bytes]]()
    for name, piece in _pieces(pages, most):
        if pieces and size + piece.nbytes > most:
            yield start, pieces
            start, size, pieces = start + size, 0, []
        pieces.append((name, piece))
        size += piece.nbytes
    if pieces:
        yield start, pieces


def _pieces(pages: Pages, most: int) -> Iterator[tuple[str, Bytes]]:
    for name, page in pages.items():
        for start in range(0, page.nbytes, most):
            yield name, page[start : start + most]
