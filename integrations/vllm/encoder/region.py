"""Memory that all processes of an engine share: the rows of its pool, and each worker's last completed step.

The scheduler's process moves bytes between engines, which needs no worker and no step. Workers copy between
these rows and the device.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from kvplan.integrations.shared.errors import ConnectorError
from kvplan.plan.types import Ints

PAGE = 4096
SHARED = Path("/dev/shm")
# The completed step of a worker that has not opened the memory, and of one without a completed step. Steps are greater.
ABSENT, HERE = 0, 1


class SharedRows:
    """`blocks` blocks of `block_bytes` bytes, shared by `ranks` workers and their scheduler.

    The first process makes the memory. It has a name only until the scheduler has it, too (`unlink`), so that nothing
    is left behind, however processes end. Raises ConnectorError (I013) if there is not enough memory.
    """

    def __init__(self, name: str, blocks: int, block_bytes: int, ranks: int) -> None:
        self.blocks, self.block_bytes = blocks, block_bytes
        shape = np.array([blocks, block_bytes, ranks], np.int64)
        head = -(-(len(shape) + ranks + blocks) * 8 // PAGE) * PAGE
        self._path = _folder() / f"kvplan-{sha256(name.encode()).hexdigest()[:24]}"
        self._map = _opened(self._path, head + blocks * block_bytes)
        numbers: Ints = np.frombuffer(self._map, np.int64, len(shape) + ranks + blocks)
        self._shape, self._steps, self._tickets = np.split(numbers, [len(shape), len(shape) + ranks])
        if self._shape.any() and not np.array_equal(self._shape, shape):
            help = "start all workers of the engine with the same options"
            raise ConnectorError("I013", f"{self._path} is of other sizes than this process has", help)
        self._shape[:] = shape
        # The bytes of all blocks, block after block.
        self.rows: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(self._map, np.uint8, offset=head)

    def unlink(self) -> None:
        """Remove the memory's name, because every process of the engine has it. Raises ConnectorError (I013)."""
        absent = [rank for rank, step in enumerate(self._steps.tolist()) if step == ABSENT]
        self._path.unlink(missing_ok=True)
        if absent:
            help = "run all workers of an engine with an encoder cache connector on one machine, in one container"
            raise ConnectorError("I013", f"workers {absent} do not share the memory of their scheduler", help)

    def join(self, rank: int) -> None:
        """Note that this worker shares the memory."""
        self._steps[rank] = HERE

    def did(self, rank: int, step: int) -> None:
        """Note that this worker has done a step: it no longer reads or writes for earlier orders."""
        self._steps[rank] = step

    def done(self, step: int, ranks: Sequence[int]) -> bool:
        """Whether these workers have all done a step."""
        return all(self._steps[rank] >= step for rank in ranks)

    def sign(self, block: int, ticket: int) -> None:
        """Note that the rows from a block on belong to this ticket."""
        self._tickets[block] = ticket

    def signed(self, block: int, ticket: int) -> bool:
        return bool(self._tickets[block] == ticket)

    def part(self, first: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return `size` bytes from a block on."""
        start = first * self.block_bytes
        return self.rows[start : start + size]


def _folder() -> Path:
    return SHARED if SHARED.is_dir() else Path(tempfile.gettempdir())


def _opened(path: Path, size: int) -> mmap.mmap:
    """Open a memory file that only this user can access, with all of its pages. Raises ConnectorError (I013)."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(path, size, error) from error
    try:
        if os.fstat(file).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "another user has it")
        # Without this, a missing page would end the process when it is written. Here it is an error.
        os.posix_fallocate(file, 0, size)
        return mmap.mmap(file, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _unusable(path, size, error) from error
    finally:
        os.close(file)


def _unusable(path: Path, size: int, error: OSError) -> ConnectorError:
    help = 'give the container more shared memory, as `docker run --shm-size 2g`, or a smaller "ec_buffer_size"'
    return ConnectorError("I013", f"{path}: {size} bytes of shared memory for items: {error.strerror}", help)
