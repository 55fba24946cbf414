"""The head of an object: what it holds, and checksums of it. A file without a right one is never loaded.

An object begins with MAGIC, the bytes of the head and of its text, the text's SHA-256, and the text; the pages follow
after a multiple of ALIGNED bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Interval
from kvplan.store.errors import DamagedObjectError, ForeignObjectError

Bytes = npt.NDArray[np.uint8]
# Part of every object's name, too: releases that share a store do not replace each other's objects.
VERSION = "kvplan object 1"
MAGIC = f"{VERSION}\n".encode()
ALIGNED = 4096
_FRONT = struct.Struct("<16sII32s")
# No layout has that many planes: what says so is damaged.
MOST_BYTES = 1 << 24


class ObjectHeader(msgspec.Struct, frozen=True):
    """What an object holds: `ranges` of tokens of the part `part`, `end` tokens in all; `pages` are (bytes, CRC-32)."""

    space: str
    key: str
    part: str
    end: int
    ranges: tuple[Interval, ...]
    pages: tuple[tuple[int, int], ...]

    @property
    def name(self) -> str:
        return object_name(self.space, self.key, self.part)

    @property
    def size(self) -> int:
        """Bytes of the pages."""
        return sum(size for size, _ in self.pages)


def object_name(space: str, key: str, part: str) -> str:
    return f"{space}/{key[:2]}/{key}.{part}"


def encoded(header: ObjectHeader) -> bytes:
    """The bytes in front of the pages."""
    text = msgspec.json.encode(header)
    size = -(-(_FRONT.size + len(text)) // ALIGNED) * ALIGNED
    front = _FRONT.pack(MAGIC, size, len(text), hashlib.sha256(text).digest())
    return (front + text).ljust(size, b"\0")


def head_bytes(front: bytes, name: str) -> int:
    """How many bytes the head has that begins with `front`. Raises DamagedObjectError, ForeignObjectError."""
    if len(front) < _FRONT.size:
        raise DamagedObjectError(f"object {name} ends within its head: it was cut off")
    magic, size, length, _ = _FRONT.unpack(front[: _FRONT.size])
    if magic != MAGIC:
        raise ForeignObjectError(f"{name} is no object of a store, or of another version: move it away")
    if not _FRONT.size + length <= size <= MOST_BYTES:
        raise DamagedObjectError(f"object {name} has a head of {size} bytes: it is damaged")
    return int(size)


def decoded(head: bytes, name: str) -> ObjectHeader:
    """The header. Raises DamagedObjectError where it is not as it was written, ForeignObjectError where it is another
    object's."""
    size = head_bytes(head, name)
    _, _, length, digest = _FRONT.unpack(head[: _FRONT.size])
    text = head[_FRONT.size : _FRONT.size + length]
    if len(head) < size or hashlib.sha256(text).digest() != digest:
        raise DamagedObjectError(f"the head of object {name} is not as it was written: it is damaged")
    header = _parsed(text, name)
    if header.name != name:
        raise ForeignObjectError(f"{name} holds object {header.name}: it was renamed or copied here")
    return header


def read_header(read: Callable[[int], bytes], there: int, name: str) -> tuple[ObjectHeader, int]:
    """The header of an object of which there are so many bytes, and where its pages begin; `read` gives its first ones.

    Raises DamagedObjectError where it is longer or shorter than the header says, and what `decoded` raises.
    """
    front = read(ALIGNED)
    size = head_bytes(front, name)
    header = decoded(front if size <= ALIGNED else read(size), name)
    if there != size + header.size:
        raise DamagedObjectError(f"object {name} has {there} bytes of {size + header.size}: it was cut off or added to")
    return header, size


def _parsed(text: bytes, name: str) -> ObjectHeader:
    try:
        header: Any = msgspec.json.decode(text, type=ObjectHeader)
    except msgspec.DecodeError as error:
        raise ForeignObjectError(f"object {name} was written by another version: {error}") from error
    found: ObjectHeader = header
    if any(size < 0 for size, _ in found.pages):
        raise ForeignObjectError(f"object {name} has a page of less than no bytes: nobody of ours wrote it")
    return found
