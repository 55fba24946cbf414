"""Pages between memory and files: by the system's own calls, or by NIXL's POSIX backend."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Ints
from kvplan.runtime.clock import now
from kvplan.runtime.errors import DamagedObjectError, TransportError
from kvplan.runtime.transport.nixl import api
from kvplan.runtime.transport.nixl_handles import attempt, errors

# Buffers of one call, which the system bounds.
MOST_BUFFERS = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16
# Bytes of one call: the system moves no more than 2 GiB at once, and says so by moving less.
MOST_BYTES = 1 << 30
SECONDS = 600.0
PAUSE = 50e-6


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


class NixlFiles:
    """By NIXL's POSIX backend, which keeps many requests under way.

    Threads take turns. After a failure nothing says that no byte moves any more, so that nothing is moved again, and
    the memory is kept.
    """

    together = MOST_BYTES

    def __init__(self, name: str = "files") -> None:
        module = api()
        self.name, self.bindings = f"{name}-{uuid.uuid4().hex}", module.nixlBind
        self._turn, self._under_way = Lock(), tuple[FilePages, ...]()
        config = module.nixl_agent_config(enable_prog_thread=False, enable_listen_thread=False, backends=[])
        with errors(self.bindings):
            self._agent: Any = module.nixl_agent(self.name, config)
            self._agent.create_backend("POSIX", {})

    def write(self, files: Sequence[FilePages]) -> None:
        with self._turn:
            self._move("WRITE", files)

    def read(self, files: Sequence[FilePages]) -> None:
        for each in files:
            if os.fstat(each.fd).st_size < each.offset + each.bytes:
                raise DamagedObjectError("a file ends before its pages do: it was cut off")
        with self._turn:
            self._move("READ", files)

    def _move(self, op: Literal["READ", "WRITE"], files: Sequence[FilePages]) -> None:
        memory, there = _rows(files)
        if self._under_way:
            raise TransportError("files were not moved before, and may still be: make a new NixlFiles, and new memory")
        if not len(memory):
            return
        whole = [(0, each.offset + each.bytes, each.fd, "") for each in files]
        with errors(self.bindings), self._registered(memory, "DRAM"), self._registered(whole, "FILE"):
            local = self._agent.get_xfer_descs(memory, "DRAM")
            handle = self._agent.initialize_xfer(op, local, self._agent.get_xfer_descs(there, "FILE"), self.name)
            self._under_way = tuple(files)
            self._wait(handle)
            self._under_way = ()
            self._agent.release_xfer_handle(handle)

    def _wait(self, handle: Any) -> None:
        end, state = now() + SECONDS, self._agent.transfer(handle)
        while state == "PROC":
            if now() > end:
                raise TransportError(f"files were not moved within {SECONDS:g} s: look at the disk")
            time.sleep(PAUSE)
            state = self._agent.check_xfer_state(handle)
        if state != "DONE":
            raise TransportError(f"NIXL says {state} about files")

    @contextmanager
    def _registered(self, rows: Any, kind: str) -> Iterator[None]:
        registered = self._agent.register_memory(rows, kind)
        try:
            yield
        finally:
            attempt(f"deregistration of {kind}", self._agent.deregister_memory, registered)


def _rows(files: Sequence[FilePages]) -> tuple[Ints, Ints]:
    """Rows (address, bytes, 0) of memory and (offset, bytes, file) of what lies there."""
    memory: list[tuple[int, int, int]] = []
    there: list[tuple[int, int, int]] = []
    for each in files:
        at = each.offset
        for page in each.pages:
            memory.append((page.ctypes.data, page.nbytes, 0))
            there.append((at, page.nbytes, each.fd))
            at += page.nbytes
    return np.array(memory, np.int64), np.array(there, np.int64)


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
