"""Pages between memory and files: by the system's own calls, or by NIXL's POSIX backend."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from kvplan.runtime.errors import TransportError
from kvplan.store.errors import DamagedObjectError
from kvplan.store.nixl_storage import NixlStorage

# Buffers of one call, which the system bounds.
MOST_BUFFERS = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16
# Bytes of one call: the system moves no more than 2 GiB at once, and says so by moving less.
MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class FilePages:
    """Pages in memory, and where they lie in a file that is open: one after the other, from `offset` on."""

    fd: int
    offset: int
    pages: tuple[npt.NDArray[np.uint8], ...]

    @property
    def bytes(self) -> int:
        return sum(page.nbytes for page in self.pages)


class Files(Protocol):
    """What moves pages. A call returns when all are there; it raises OSError or TransportError where one is not.

    `together` are the bytes that are best read by one call.
    """

    together: int

    def write(self, files: Sequence[FilePages]) -> None: ...

    def read(self, files: Sequence[FilePages]) -> None: ...


class PlainFiles:
    """By `preadv` and `pwritev`. What is read by one call is in the cache of the processor's core afterwards."""

    together = 1 << 20

    def write(self, files: Sequence[FilePages]) -> None:
        for each in files:
            for pages, at in _calls(each):
                _whole(os.pwritev(each.fd, pages, at), pages)

    def read(self, files: Sequence[FilePages]) -> None:
        for each in files:
            for pages, at in _calls(each):
                _whole(os.preadv(each.fd, pages, at), pages)


class NixlFiles(NixlStorage):
    """By NIXL's POSIX backend, which keeps many requests in progress."""

    together = MOST_BYTES

    def __init__(self, name: str = "files") -> None:
        super().__init__(name, "POSIX", "FILE", {})

    def write(self, files: Sequence[FilePages]) -> None:
        # NIXL moves nothing more once a transfer has failed: a disk that is full must say so before one begins.
        for each in files:
            os.posix_fallocate(each.fd, 0, each.offset + each.bytes)
        self._files("WRITE", files)

    def read(self, files: Sequence[FilePages]) -> None:
        for each in files:
            if os.fstat(each.fd).st_size < each.offset + each.bytes:
                raise DamagedObjectError("a file ends before its pages do: it was cut off")
        self._files("READ", files)

    def _files(self, op: Literal["READ", "WRITE"], files: Sequence[FilePages]) -> None:
        memory = [page for each in files for page in each.pages]
        whole = [(0, each.offset + each.bytes, each.fd, "") for each in files]
        self.move(op, memory, [place for each in files for place in _places(each)], whole)


def _places(each: FilePages) -> Iterator[tuple[int, int]]:
    """Where the pages lie, and in which file."""
    at = each.offset
    for page in each.pages:
        yield at, each.fd
        at += page.nbytes


def _calls(each: FilePages) -> Iterator[tuple[list[memoryview], int]]:
    """Buffers, and where they lie in the file, of every call."""
    at, size, pages = each.offset, 0, list[memoryview]()
    for page in each.pages:
        if pages and (len(pages) == MOST_BUFFERS or size + page.nbytes > MOST_BYTES):
            yield pages, at
            at, size, pages = at + size, 0, []
        pages.append(page.data.cast("B"))
        size += page.nbytes
    if pages:
        yield pages, at


def _whole(done: int, pages: Sequence[memoryview]) -> None:
    if done != sum(page.nbytes for page in pages):
        raise TransportError(
            f"a file took or gave {done} bytes of {sum(page.nbytes for page in pages)}: is the disk full?"
        )
