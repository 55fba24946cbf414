"""Transfers of pages between memory and files, by system calls or by NIXL's POSIX backend."""

from __future__ import annotations

import os
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from kvplan.runtime.errors import TransportError
from kvplan.store.errors import DamagedObjectError
from kvplan.store.nixl_storage import NixlStorage

Bytes = npt.NDArray[np.uint8]
# The most bytes of one request to NIXL.
PART = 1 << 20


class Files(Protocol):
    """A backend that reads and writes open files. A call returns when all bytes have moved.

    It raises OSError, TransportError, or DamagedObjectError if a file ends too early. `together` is the size in bytes
    that one call moves best.
    """

    together: int

    def write(self, fd: int, offset: int, data: Bytes) -> None: ...

    def read(self, fd: int, offset: int, data: Bytes) -> None: ...


class PlainFiles:
    """Files by `preadv` and `pwritev`. The bytes of one read are in the cache of the processor's core afterwards."""

    together = 1 << 20

    def write(self, fd: int, offset: int, data: Bytes) -> None:
        if (done := os.pwritev(fd, [data.data], offset)) != data.nbytes:
            raise TransportError(f"a file took {done} bytes of {data.nbytes}: is the disk full?")

    def read(self, fd: int, offset: int, data: Bytes) -> None:
        if os.preadv(fd, [data.data], offset) != data.nbytes:
            raise DamagedObjectError("a file ends before its pages do: it was cut off")


class NixlFiles(NixlStorage):
    """Files by NIXL's POSIX backend, which keeps many requests in progress."""

    together = 64 << 20

    def __init__(self, name: str = "files") -> None:
        super().__init__(name, "POSIX", "FILE", {})

    def write(self, fd: int, offset: int, data: Bytes) -> None:
        # NIXL moves nothing more after a failed transfer, so a full disk must be found before one begins.
        os.posix_fallocate(fd, offset, data.nbytes)
        self._file("WRITE", fd, offset, data)

    def read(self, fd: int, offset: int, data: Bytes) -> None:
        if os.fstat(fd).st_size < offset + data.nbytes:
            raise DamagedObjectError("a file ends before its pages do: it was cut off")
        self._file("READ", fd, offset, data)

    def _file(self, op: Literal["READ", "WRITE"], fd: int, offset: int, data: Bytes) -> None:
        """Move bytes of a file in parallel requests of PART bytes."""
        parts = range(0, data.nbytes, PART)
        memory, places = [data[at : at + PART] for at in parts], [(offset + at, fd) for at in parts]
        self.move(op, memory, places, [(0, offset + data.nbytes, fd, "")])
