"""Objects by name: written whole or not at all, in files of a folder or in memory.

A file is written under a temporary name, synced, and renamed; so a name stands for a whole object, whenever the process
or the machine dies. What is found under a name is checked all the same, each time that it is read.
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
# Seconds after which a file that nobody finished is nobody's.
ABANDONED = 3600.0
# Objects that are read or written at once, by a thread each: as many as a server answers well, and no more of files or
# of memory than there are cores, as each thread keeps a piece in the cache of its own.
AT_ONCE = 4
COPIED_AT_ONCE = min(AT_ONCE, CORES)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object that is to be written: its header, which has no checksums yet, and where its body comes from."""

    header: ObjectHeader
    body: Body

    @property
    def head_bytes(self) -> int:
        """Bytes of the head that it will have."""
        return len(encoded(self.header.summed([0] * len(self.header.pieces))))

    def filled(self, out: Bytes) -> ObjectHeader:
        """Fill `out` with the body. Returns the header with its checksums."""
        return self.header.summed(fill(self.body, self.header.pieces, out))


class Objects(Protocol):
    """Where objects are. Names are made by `header.object_name`. So many `threads` read or write best at once."""

    @property
    def threads(self) -> int: ...

    def put(self, objects: Sequence[NewObject]) -> list[ObjectHeader]:
        """Write objects, each whole or not at all; those that are there are replaced. Returns what their heads say.

        Raises StoreFileError, and what bodies raise.
        """

    def header(self, name: str) -> ObjectHeader:
        """What an object is said to hold. Raises MissingObjectError, DamagedObjectError, ForeignObjectError,
        StoreFileError."""

    def read(self, name: str, place: Place) -> None:
        """Read an object into the body that `place` gives for its header. Raises what `header` and `place` raise.

        The body has no piece that is not as it was written, and all of them when this returns.
        """

    def names(self) -> Iterator[str]:
        """All names, those of objects that are damaged among them."""

    def written(self, name: str) -> float:
        """When an object was written, in seconds since 1970; 0 where there is none."""

    def gone(self, names: Sequence[str]) -> list[str]:
        """Those of names just written or read that another process has removed, as far as that is known at no cost.

        Raises StoreFileError, DamagedObjectError.
        """

    def remove(self, name: str) -> None:
        """Remove an object; once more does nothing. Raises StoreFileError."""

    def set_aside(self, name: str) -> None:
        """Keep an object that is wrong under another name, which is none of an object's."""

    def sweep(self, age: float = ABANDONED) -> int:
        """Remove what was not finished for `age` seconds, and what was set aside; returns how many."""


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
                self._name(headers, begun)
            finally:
                for path in begun:
                    path.unlink(missing_ok=True)
        return headers

    def _begin(self, made: NewObject) -> Path:
        target = self.path / made.header.name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.with_name(f"{target.name}.{uuid.uuid4().hex}{UNFINISHED}")

    def _write(self, made: NewObject, path: Path) -> ObjectHeader:
        """Write a new file, its head last, as that has the checksums of all that was written."""
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

    def _name(self, headers: Sequence[ObjectHeader], begun: Sequence[Path]) -> None:
        targets = [self.path / header.name for header in headers]
        for path, target in zip(begun, targets, strict=True):
            path.rename(target)
        # A name lasts when its folder does.
        for folder in {parent for target in targets for parent in (target.parent, target.parent.parent, self.path)}:
            _sync_folder(folder)

    def _buffer(self, header: ObjectHeader) -> Bytes:
        """Memory for what one call moves of an object."""
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
            return _changed(self.path / name)

    def gone(self, names: Sequence[str]) -> list[str]:
        with _errors("what was written"):
            return [name for name in names if not _changed(self.path / name)]

    def remove(self, name: str) -> None:
        with _errors(f"object {name}", reads=False):
            (self.path / name).unlink(missing_ok=True)

    def set_aside(self, name: str) -> None:
        # It is refused without that, too, each time that it is read.
        with suppress(OSError):
            (self.path / name).rename(self.path / f"{name}{REFUSED}")

    def sweep(self, age: float = ABANDONED) -> int:
        beside = [path for end in (UNFINISHED, REFUSED) for path in self.path.glob(f"*/*/*{end}")]
        old = [path for path in beside if (changed := _changed(path)) and time.time() - changed >= age]
        return sum(map(_unlinked, old))


@dataclass(frozen=True, slots=True)
class InMemoryObjects:
    """Objects in this process alone."""

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
    """What `action` returns for each of the things given, in threads. Raises the first error once none is running."""
    with ThreadPoolExecutor(threads, "kvplan-store") as pool:
        return list(pool.map(action, *given))


@contextmanager
def _errors(what: str, *, reads: bool = True) -> Iterator[None]:
    """The system's errors as a store's: what a disk cannot read back is damaged."""
    try:
        yield
    except OSError as error:
        if reads and error.errno == errno.EIO:
            raise DamagedObjectError(f"{what}: {error}: look at the disk") from error
        text = "make room, allow more open files, or let one user have the store"
        raise StoreFileError(f"{what}: {error}: {text}") from error


@contextmanager
def _opened(path: Path, name: str) -> Iterator[int]:
    """A file that is open. Raises MissingObjectError where there is none, ForeignObjectError where it is no file."""
    with ExitStack() as stack:
        try:
            # A pipe of that name would be waited for.
            fd = stack.enter_context(_descriptor(path, os.O_RDONLY | os.O_NONBLOCK))
        except FileNotFoundError:
            raise MissingObjectError(f"there is no object {name}") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ForeignObjectError(f"{path} is no plain file: move it away")
        yield fd


def _unlinked(path: Path) -> bool:
    """Whether a file is removed; one that cannot be is for the next sweep."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _changed(path: Path) -> float:
    """When a file was changed last, 0 where another process has finished or removed it meanwhile."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@contextmanager
def _descriptor(path: Path, flags: int) -> Iterator[int]:
    """A file or folder that is open; a new file is its owner's alone."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _header(fd: int, name: str) -> tuple[ObjectHeader, int]:
    """The header of an open file that is as long as that says, and where its pages begin."""
    return read_header(lambda size: os.pread(fd, size, 0), os.fstat(fd).st_size, name)


def _sync_folder(path: Path) -> None:
    with _descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)
