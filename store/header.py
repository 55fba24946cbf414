"""The head of an object: its content and checksums. A file without a valid head is never loaded.

An object begins with MAGIC, the sizes of the head and of its text, the text's SHA-256, and the text. The pages, which
are its body, follow at a multiple of ALIGNED bytes. The body is read, checked and moved in pieces.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Interval
from kvplan.store.errors import DamagedObjectError, ForeignObjectError

Bytes = npt.NDArray[np.uint8]
# Also part of every object's name, so that releases that share a store do not replace each other's objects.
VERSION = "kvplan object 2"
MAGIC = f"{VERSION}\n".encode()
ALIGNED = 4096
# The most bytes of a piece, which fits the cache of a processor's core.
PIECE = 1 << 20
# The begin and the end of a piece in the body, in bytes.
Piece = tuple[int, int]
_FRONT = struct.Struct("<16sII32s")
SUM = "<u4"
# The most bytes of a head. No layout has enough planes for more, so a larger head is damaged.
MOST_BYTES = 1 << 24


class ObjectHeader(msgspec.Struct, frozen=True):
    """The content of an object: `ranges` of tokens of the part `part`, up to token `end`.

    `pages` are the bytes of each page, `sums` the checksums of all pieces, four bytes each, so that the head's size is
    known before they are.
    """

    space: str
    key: str
    part: str
    end: int
    ranges: tuple[Interval, ...]
    pages: tuple[int, ...]
    sums: bytes = b""

    @property
    def name(self) -> str:
        return object_name(self.space, self.key, self.part)

    @property
    def size(self) -> int:
        """The bytes of all pages."""
        return sum(self.pages)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(_pieces(self.pages))

    def summed(self, sums: Sequence[int]) -> ObjectHeader:
        """Return the header with the checksums of its pieces."""
        return msgspec.structs.replace(self, sums=np.array(sums, SUM).tobytes())


def object_name(space: str, key: str, part: str) -> str:
    return f"{space}/{key[:2]}/{key}.{part}"


def encoded(header: ObjectHeader) -> bytes:
    """Return the head: the bytes before the pages."""
    text = msgspec.json.encode(header)
    size = -(-(_FRONT.size + len(text)) // ALIGNED) * ALIGNED
    front = _FRONT.pack(MAGIC, size, len(text), hashlib.sha256(text).digest())
    return (front + text).ljust(size, b"\0")


def head_bytes(front: bytes, name: str) -> int:
    """Return the size in bytes of the head that begins with `front`. Raises DamagedObjectError, ForeignObjectError."""
    if len(front) < _FRONT.size:
        raise DamagedObjectError(f"object {name} ends within its head: it was cut off")
    magic, size, length, _ = _FRONT.unpack(front[: _FRONT.size])
    if magic != MAGIC:
        raise ForeignObjectError(f"{name} is no object of a store, or of another version: move it away")
    if not _FRONT.size + length <= size <= MOST_BYTES:
        raise DamagedObjectError(f"object {name} has a head of {size} bytes: it is damaged")
    return int(size)


def decoded(head: bytes, name: str) -> ObjectHeader:
    """Return the header. Raises DamagedObjectError if the head was altered, ForeignObjectError for another object's."""
    size = head_bytes(head, name)
    _, _, length, digest = _FRONT.unpack(head[: _FRONT.size])
    text = head[_FRONT.size : _FRONT.size + length]
    if len(head) < size or hashlib.sha256(text).digest() != digest:
        raise DamagedObjectError(f"the head of object {name} is not as it was written: it is damaged")
    header = _parse(text, name)
    if header.name != name:
        raise ForeignObjectError(f"{name} holds object {header.name}: it was renamed or copied here")
    return header


def read_header(read: Callable[[int], bytes], there: int, name: str) -> tuple[ObjectHeader, int]:
    """Return the header of an object of `there` bytes, and the offset of its pages. `read(n)` reads its first n bytes.

    Raises DamagedObjectError if the object is longer or shorter than in its header, and as `decoded`.
    """
    front = read(ALIGNED)
    size = head_bytes(front, name)
    header = decoded(front if size <= ALIGNED else read(size), name)
    if there != size + header.size:
        raise DamagedObjectError(f"object {name} has {there} bytes of {size + header.size}: it was cut off or added to")
    if len(header.sums) != len(header.pieces) * np.dtype(SUM).itemsize:
        raise ForeignObjectError(f"object {name} has not one checksum for each piece: nobody of ours wrote it")
    return header, size


def _pieces(pages: Sequence[int]) -> Iterator[Piece]:
    """Yield pieces of as many whole pages as fit. A page longer than PIECE is cut at multiples of it."""
    low = end = 0
    for size in pages:
        if end > low and end + size - low > PIECE:
            yield low, end
            low = end
        end += size
        while end - low > PIECE:
            yield low, low + PIECE
            low += PIECE
    if end > low:
        yield low, end


def _parse(text: bytes, name: str) -> ObjectHeader:
    try:
        header: Any = msgspec.json.decode(text, type=ObjectHeader)
    except msgspec.DecodeError as error:
        raise ForeignObjectError(f"object {name} was written by another version: {error}") from error
    found: ObjectHeader = header
    if any(size < 1 for size in found.pages):
        raise ForeignObjectError(f"object {name} has a page of no bytes: nobody of ours wrote it")
    return found
