"""Pages between memory and files: by the system's own calls, or by NIXL's POSIX backend."""

from __future__ import annotations

import os
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from kvplan.runtime.errors import TransportError
from kvplan.store.errors import DamagedObjectError
from kvplan.store.nixl_storage import NixlStorage

Bytes = npt.NDArray[np.uint8]
# Bytes of a request to NIXL.
PART = 1 << 20


class Files(Protocol):
    """What moves bytes of files that are open. A call returns when all are there.

    It raises OSError, TransportError, or DamagedObjectError where a file ends too early. `together` are the bytes that
    one call moves best.
    """

    together: int

    def write(self, fd: int, offset: int, data: Bytes) -> None: ...

    def read(self, fd: int, offset: int, data: Bytes) -> None: ...


class PlainFiles:
    """By `preadv` and `pwritev`. What is read by one call is in the cache of the processor's core afterwards."""

    together = 1 << 20

    def write(self, fd: int, offset: int, data: Bytes) -> None:
        if (done := os.pwritev(fd, [data.data], offset)) != data.nbytes:
            raise TransportError(f"a file took {done} bytes of {data.nbytes}: is the disk full?")

    def read(self, fd: int, offset: int, data: Bytes) -> None:
        if os.preadv(fd, [data.data], offset) != data.nbytes:
            raise DamagedObjectError("a file ends before its pages do: it was cut off")


class NixlFiles(NixlStorage):
    """By NIXL's POSIX backend, which keeps many requests in progress."""

    together = 64 << 20

    def __init__(self, name: str = "files") -> None:
        super().__init__(name, "POSIX", "FILE", {})

    def write(self, fd: int, offset: int, data: Bytes) -> None:
        # NIXL moves nothing more once a transfer has failed: a disk that is full must say so before one begins.
        os.posix_fallocate(fd, offset, data.nbytes)
        self._file("WRITE", fd, offset, data)

    def read(self, fd: int, offset: int, data: Bytes) -> None:
        if os.fstat(fd).st_size < offset + data.nbytes:
            raise DamagedObjectError("a file ends before its pages do: it was cut off")
        self._file("READ", fd, offset, data)

    def _file(self, op: Literal["READ", "WRITE"], fd: int, offset: int, data: Bytes) -> None:
        """In requests of PART bytes, which run beside each other."""
        parts = range(0, data.nbytes, PART)
        memory, places = [data[at : at + PART] for at in parts], [(offset + at, fd) for at in parts]
        self.move(op, memory, places, [(0, offset + data.nbytes, fd, "")])
