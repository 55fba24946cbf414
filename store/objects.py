"""Objects by name: written whole or not at all, in files of a folder or in memory.

A file is written under a temporary name, synced, and renamed, so a name always stands for a whole object, even after a
crash of the process or the machine. Nevertheless every read checks the object.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from kvplan.runtime.staging.buffers import CORES
from kvplan.store.errors import DamagedObjectError, ForeignObjectError, MissingObjectError, StoreFileError
from kvplan.store.files import Files, PlainFiles
from kvplan.store.header import Bytes, ObjectHeader, encoded, read_header
from kvplan.store.pages import Body, Place, batches, fill, read_body

UNFINISHED, REFUSED = ".unfinished", ".refused"
# Seconds after which an unfinished file counts as abandoned.
ABANDONED = 3600.0
# Objects that are read or written at once, each in a thread: from a server as many as it answers well; from files or
# memory at most one per core, because each thread keeps a piece in its core's cache.
AT_ONCE = 4
COPIED_AT_ONCE = min(AT_ONCE, CORES)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to be written: its header, still without checksums, and the source of its body."""

    header: ObjectHeader
    body: Body

    @property
    def head_bytes(self) -> int:
        """The size of its future head in bytes."""
        return len(encoded(self.header.summed([0] * len(self.header.pieces))))

    def filled(self, out: Bytes) -> ObjectHeader:
        """Fill `out` with the body, and return the header with checksums."""
        return self.header.summed(fill(self.body, self.header.pieces, out))


class Objects(Protocol):
    """A place of objects. `header.object_name` makes their names. It works best with `threads` threads."""

    @property
    def threads(self) -> int: ...

    def put(self, objects: Sequence[NewObject]) -> list[ObjectHeader]:
        """Write objects, each whole or not at all, replacing older ones, and return their headers.

        Raises StoreFileError, and what bodies raise.
        """

    def header(self, name: str) -> ObjectHeader:
        """Read an object's header.

        Raises MissingObjectError, DamagedObjectError, ForeignObjectError, StoreFileError.
        """

    def read(self, name: str, place: Place) -> None:
        """Read an object into the body that `place` returns for its header. Raises what `header` and `place` raise.

        Every piece is checked before it goes to the body. When this returns, the body has all of them.
        """

    def names(self) -> Iterator[str]:
        """Yield all names, even of damaged objects."""

    def written(self, name: str) -> float:
        """Return when an object was written, in seconds since 1970, or 0 if it does not exist."""

    def gone(self, names: Sequence[str]) -> list[str]:
        """Return those of some names just written or read that another process has removed, if this is cheap to check.

        Raises StoreFileError, DamagedObjectError.
        """

    def remove(self, name: str) -> None:
        """Remove an object, if it exists. Raises StoreFileError."""

    def set_aside(self, name: str) -> None:
        """Rename an invalid object to a name that no object has."""

    def sweep(self, age: float = ABANDONED) -> int:
        """Remove files that are unfinished or set aside for `age` seconds, and return how many."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Objects as files below `path`, whose pages are moved by `files`."""

    path: Path
    files: Files = field(default_factory=PlainFiles)
    threads: ClassVar[int] = COPIED_AT_ONCE

    def put(self, objects: Sequence[NewObject]) -> list[ObjectHeader]:
        with _errors("a new object", reads=False):
            begun = [self._begin(each) for each in objects]
            try:
                headers = at_once(self.threads, self._write, objects, begun)
                self._rename_all(headers, begun)
            finally:
                for path in begun:
                    path.unlink(missing_ok=True)
        return headers

    def _begin(self, made: NewObject) -> Path:
        target = self.path / made.header.name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.with_name(f"{target.name}.{uuid.uuid4().hex}{UNFINISHED}")

    def _write(self, made: NewObject, path: Path) -> ObjectHeader:
        """Write a new file, its head last, because the head has the checksums of the body."""
        buffer, sums, head = self._buffer(made.header), list[int](), made.head_bytes
        with _descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
            for pieces in batches(made.header, self.files.together):
                data = buffer[: pieces[-1][1] - pieces[0][0]]
                sums += fill(made.body, pieces, data)
                self.files.write(fd, head + pieces[0][0], data)
            header = made.header.summed(sums)
            self.files.write(fd, 0, np.frombuffer(encoded(header), np.uint8))
            os.fsync(fd)
        return header

    def _rename_all(self, headers: Sequence[ObjectHeader], begun: Sequence[Path]) -> None:
        targets = [self.path / header.name for header in headers]
        for path, target in zip(begun, targets, strict=True):
            path.rename(target)
        # A rename survives a crash only once its folder is synced.
        for folder in {parent for target in targets for parent in (target.parent, target.parent.parent, self.path)}:
            _sync_folder(folder)

    def _buffer(self, header: ObjectHeader) -> Bytes:
        """Return a buffer for the bytes that one call moves of an object."""
        return np.empty(min(self.files.together, header.size) if header.pages else 0, np.uint8)

    def header(self, name: str) -> ObjectHeader:
        with _errors(f"object {name}"), _opened(self.path / name, name) as fd:
            return _header(fd, name)[0]

    def read(self, name: str, place: Place) -> None:
        with _errors(f"object {name}"), _opened(self.path / name, name) as fd:
            header, offset = _header(fd, name)
            body, buffer = place(header), self._buffer(header)

            def read(low: int, high: int) -> Bytes:
                self.files.read(fd, offset + low, data := buffer[: high - low])
                return data

            read_body(header, body, read, self.files.together)

    def names(self) -> Iterator[str]:
        for path in sorted(self.path.glob("*/*/*")):
            if not path.name.endswith((UNFINISHED, REFUSED)):
                yield path.relative_to(self.path).as_posix()

    def written(self, name: str) -> float:
        with _errors(f"object {name}"):
            return _changed_at(self.path / name)

    def gone(self, names: Sequence[str]) -> list[str]:
        with _errors("what was written"):
            return [name for name in names if not _changed_at(self.path / name)]

    def remove(self, name: str) -> None:
        with _errors(f"object {name}", reads=False):
            (self.path / name).unlink(missing_ok=True)

    def set_aside(self, name: str) -> None:
        # If this fails, every read still refuses the object.
        with suppress(OSError):
            (self.path / name).rename(self.path / f"{name}{REFUSED}")

    def sweep(self, age: float = ABANDONED) -> int:
        beside = [path for end in (UNFINISHED, REFUSED) for path in self.path.glob(f"*/*/*{end}")]
        old = [path for path in beside if (changed := _changed_at(path)) and time.time() - changed >= age]
        return sum(map(_try_unlink, old))


@dataclass(frozen=True, slots=True)
class InMemoryObjects:
    """Objects in this process' memory."""

    kept: dict[str, tuple[ObjectHeader, Bytes]] = field(default_factory=dict)
    threads: ClassVar[int] = COPIED_AT_ONCE

    def put(self, objects: Sequence[NewObject]) -> list[ObjectHeader]:
        return at_once(self.threads, self._put, objects)

    def _put(self, made: NewObject) -> ObjectHeader:
        body = np.empty(made.header.size, np.uint8)
        header = made.filled(body)
        self.kept[header.name] = header, body
        return header

    def header(self, name: str) -> ObjectHeader:
        return self._at(name)[0]

    def read(self, name: str, place: Place) -> None:
        header, kept = self._at(name)
        read_body(header, place(header), lambda low, high: kept[low:high])

    def names(self) -> Iterator[str]:
        yield from sorted(self.kept)

    def written(self, name: str) -> float:
        return time.time() if name in self.kept else 0.0

    def gone(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name not in self.kept]

    def remove(self, name: str) -> None:
        self.kept.pop(name, None)

    def set_aside(self, name: str) -> None:
        self.remove(name)

    def sweep(self, age: float = ABANDONED) -> int:
        return 0

    def _at(self, name: str) -> tuple[ObjectHeader, Bytes]:
        if name not in self.kept:
            raise MissingObjectError(f"there is no object {name}")
        return self.kept[name]


def at_once(threads: int, action: Callable[..., Found], *given: Iterable[Any]) -> list[Found]:
    """Call `action` for each element in threads, and return the results. Raises the first error once all have ended."""
    with ThreadPoolExecutor(threads, "kvplan-store") as pool:
        return list(pool.map(action, *given))


@contextmanager
def _errors(what: str, *, reads: bool = True) -> Iterator[None]:
    """Turn system errors into store errors. If a disk cannot read an object back, it counts as damaged."""
    try:
        yield
    except OSError as error:
        if reads and error.errno == errno.EIO:
            raise DamagedObjectError(f"{what}: {error}: look at the disk") from error
        text = "make room, allow more open files, or let one user have the store"
        raise StoreFileError(f"{what}: {error}: {text}") from error


@contextmanager
def _opened(path: Path, name: str) -> Iterator[int]:
    """Open an object's file. Raises MissingObjectError if there is none, ForeignObjectError if it is no plain file."""
    with ExitStack() as stack:
        try:
            # Without O_NONBLOCK, opening a pipe of that name would block.
            fd = stack.enter_context(_descriptor(path, os.O_RDONLY | os.O_NONBLOCK))
        except FileNotFoundError:
            raise MissingObjectError(f"there is no object {name}") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ForeignObjectError(f"{path} is no plain file: move it away")
        yield fd


def _try_unlink(path: Path) -> bool:
    """Remove a file and return True, or return False if that fails: the next sweep tries again."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _changed_at(path: Path) -> float:
    """Return when a file was last changed, or 0 if another process has renamed or removed it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@contextmanager
def _descriptor(path: Path, flags: int) -> Iterator[int]:
    """Open a file or folder. Only its owner may read or write a new file."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _header(fd: int, name: str) -> tuple[ObjectHeader, int]:
    """Return the header of an open file, checked against the file's size, and the offset of its pages."""
    return read_header(lambda size: os.pread(fd, size, 0), os.fstat(fd).st_size, name)


def _sync_folder(path: Path) -> None:
    with _descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)
