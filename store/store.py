"""The store: whole blocks by key, with an index, eviction and verification."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from kvplan.remote.folder import RemoteFolder
from kvplan.runtime.clock import now
from kvplan.runtime.ops import logs
from kvplan.store.bucket import NixlBucket
from kvplan.store.errors import (
    DamagedObjectError,
    ForeignObjectError,
    MissingObjectError,
    StoreError,
    StoreFileError,
    StoreIndexError,
)
from kvplan.store.files import Files, PlainFiles
from kvplan.store.header import Bytes, ObjectHeader, object_name
from kvplan.store.index import StoredObject, StoreIndex, in_order
from kvplan.store.layout import Ranges, StoredLayout, StoredPart, covers
from kvplan.store.objects import ABANDONED, Folder, InMemoryObjects, NewObject, Objects, at_once
from kvplan.store.pages import Body, HeldPages, Place
from kvplan.store.remote import RemoteObjects

INDEX, OBJECTS = "index.sqlite", "objects"
# Seconds without optional index changes after one has failed.
REST = 60.0
# The most blocks that are written before they get their names, and so the most that a killed process writes in vain.
WRITTEN = 32
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block of a group: its key, the tokens up to its end, the ranges that it holds, and the body of each part."""

    group: str
    key: bytes
    end: int
    ranges: Ranges
    body: Callable[[StoredPart], Body]


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of `Store.collect`: the number and bytes of removed and of remaining objects, and unfinished files."""

    removed: int
    removed_bytes: int
    kept: int
    kept_bytes: int
    unfinished: int


class Store:
    """Objects, found by an index. Several processes may have one folder open."""

    def __init__(self, objects: Objects | None = None, index: StoreIndex | None = None) -> None:
        self._objects: Objects = InMemoryObjects() if objects is None else objects
        self._index = index or StoreIndex()
        self._rests = now()

    @classmethod
    def open(cls, path: Path | str, files: Files | None = None) -> Store:
        """Open the store in the folder `path`, which is made if missing. Raises StoreIndexError, OSError."""
        root = Path(path)
        (root / OBJECTS).mkdir(parents=True, exist_ok=True)
        return cls(Folder(root / OBJECTS, files or PlainFiles()), StoreIndex.opened(root / INDEX))

    @classmethod
    def at(cls, url: str, index: Path | str = ":memory:", bucket: NixlBucket | None = None) -> Store:
        """Open the store at a URL, such as s3://bucket/folder. Its index is a local file, or begins empty in memory.

        A given `bucket` moves the pages. Raises StoreFileError, StoreIndexError.
        """
        return cls(RemoteObjects(RemoteFolder(url, StoreFileError), bucket), StoreIndex(index))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._index.close()

    @property
    def forgets(self) -> bool:
        """Whether the index is in memory, and only has objects that this process used or took stock of."""
        return self._index.in_memory

    def has(self, layout: StoredLayout, group: str, key: bytes, ranges: Ranges) -> bool:
        """Return whether the store has a block of a group with these tokens."""
        found = [self._ranges(_name(layout, part, key)) for part in layout.parts[group]]
        return all(have is not None and covers(have, ranges) for have in found)

    def write(self, layout: StoredLayout, blocks: Sequence[StoredBlock]) -> None:
        """Write blocks, except those that the store has with more tokens.

        Raises StoreFileError, TransportError, and StoreIndexError if the index cannot be read.
        """
        for start in range(0, len(blocks), WRITTEN):
            made = [
                NewObject(_header(layout, part, block), block.body(part))
                for block in blocks[start : start + WRITTEN]
                for part in layout.parts[block.group]
                if not self._has_more(_name(layout, part, block.key), block.ranges)
            ]
            self._note(self._add_to_index, self._objects.put(made))

    def use(self, layout: StoredLayout, blocks: Iterable[tuple[str, bytes]]) -> None:
        """Mark the blocks (group, key) of one request as used now. They share one time, so its last ones go first."""
        names = [_name(layout, part, key) for group, key in blocks for part in layout.parts[group]]
        self._note(self._index.use, names)

    def read(self, layout: StoredLayout, blocks: Sequence[StoredBlock]) -> None:
        """Read blocks, and check every byte.

        Raises MissingObjectError, DamagedObjectError, ForeignObjectError or StoreFileError; then the target may hold
        anything, and the store no longer finds the faulty object.
        """
        parts = [(block, part) for block in blocks for part in layout.parts[block.group]]
        names = [_name(layout, part, block.key) for block, part in parts]
        at_once(
            self._objects.threads, self._read, names, [partial(_body_for, layout, part, block) for block, part in parts]
        )

    def entries(self) -> list[StoredObject]:
        """Return all objects in the index, in order of eviction."""
        return self._index.entries()

    def take_stock(self) -> list[StoredObject]:
        """Add objects that the index lacks, remove entries without an object, and return all in order of eviction.

        The result includes objects that the index cannot take because the disk is full. Raises StoreFileError, and
        StoreIndexError if the index cannot be read.
        """
        known, there = {entry.name: entry for entry in self._index.entries()}, set(self._objects.names())
        self._try(self._index.forget, sorted(known.keys() - there))
        found, writable = [entry for name, entry in known.items() if name in there], True
        for name in sorted(there - known.keys()):
            # A foreign object may belong to another release.
            with suppress(ForeignObjectError):
                if (header := self._header(name)) is not None:
                    written = self._objects.written(name)
                    writable = writable and self._try(partial(self._add_to_index, created=written), [header])
                    found.append(StoredObject(name, header.ranges, header.size, header.end, written, written))
        return in_order(found)

    def collect(
        self, most_bytes: int | None = None, age: float | None = None, abandoned: float = ABANDONED
    ) -> Collected:
        """Remove objects unused for `age` seconds, then the longest unused until at most `most_bytes` remain.

        An object that the index lacked counts as used when it was written. This also removes index entries without an
        object, and files unfinished for `abandoned` seconds.
        """
        entries = self.take_stock()
        total, now = sum(entry.size for entry in entries), time.time()
        removed, left = list[StoredObject](), total
        for entry in entries:
            old = age is not None and now - entry.used >= age
            if old or (most_bytes is not None and left > most_bytes):
                removed.append(entry)
                left -= entry.size
        unfinished = self._objects.sweep(abandoned)
        self.remove([entry.name for entry in removed])
        return Collected(len(removed), total - left, len(entries) - len(removed), left, unfinished)

    def verify(self) -> Iterator[tuple[str, StoreError | None]]:
        """Read every object, and yield its name with its error or None."""
        for name in list(self._objects.names()):
            try:
                self._objects.read(name, _discard)
            except MissingObjectError:
                continue
            except StoreError as error:
                yield name, error
            else:
                yield name, None

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects, even damaged ones. Raises StoreFileError after removing all that it can."""
        # Entries go first: a process killed here leaves files, which are found by name, and no entry without a file.
        self._note(self._index.forget, names)
        errors = [error for name in names if (error := self._try_remove(name)) is not None]
        # If the disk was full, there is room now.
        self._try(self._index.forget, names)
        if errors:
            raise errors[0]

    def _try_remove(self, name: str) -> StoreFileError | None:
        """Remove an object. Return the error if that fails."""
        try:
            self._objects.remove(name)
        except StoreFileError as error:
            return error
        return None

    def _has_more(self, name: str, ranges: Ranges) -> bool:
        """Return whether the store has an object with more tokens than `ranges`."""
        there = self._ranges(name)
        return there is not None and there != ranges and covers(there, ranges)

    def _header(self, name: str) -> ObjectHeader | None:
        """Return the header of an object that the index lacks, None if it is missing or unusable."""
        try:
            return self._objects.header(name)
        except MissingObjectError:
            return None
        except (DamagedObjectError, StoreFileError) as error:
            self._put_away(name, error)
            return None

    def _ranges(self, name: str) -> Ranges | None:
        """Return the tokens of an object, None if there is none. An object that is not in the index is added to it."""
        if (entry := self._index.get(name)) is not None:
            return entry.ranges
        try:
            header = self._header(name)
        except ForeignObjectError as error:
            self._put_away(name, error)
            return None
        if header is None:
            return None
        self._note(self._add_to_index, [header])
        return header.ranges

    def _put_away(self, name: str, error: StoreError) -> None:
        """Log the error, and set the object aside if it is invalid. An object that cannot be read now may be valid."""
        logs.event(logs.WARNING, "object refused", object=name, error=error)
        if isinstance(error, DamagedObjectError | ForeignObjectError):
            self._objects.set_aside(name)

    def _read(self, name: str, place: Place) -> None:
        """Read an object. If it is missing or invalid, remove its entry, so that it may be saved again."""
        try:
            self._objects.read(name, place)
        except StoreError as error:
            if not isinstance(error, MissingObjectError):
                self._put_away(name, error)
            self._note(self._index.forget, [name])
            raise

    def _add_to_index(self, headers: Sequence[ObjectHeader], created: float | None = None) -> None:
        """Add objects to the index. Raises StoreIndexError."""
        self._index.put(headers, created)
        # Another process may have removed an object, and its entry, before this one added the entry.
        self._index.forget(self._objects.gone([header.name for header in headers]))

    def _note(self, change: Callable[[Sequence[T]], None], what: Sequence[T]) -> None:
        """Change the index if possible. A missing change only costs time later."""
        # After a failure, do not wait for the lock again for every block.
        if now() >= self._rests and not self._try(change, what):
            self._rests = now() + REST

    def _try(self, change: Callable[[Sequence[T]], None], what: Sequence[T]) -> bool:
        """Change the index, and return whether that succeeded."""
        try:
            change(what)
        except StoreIndexError as error:
            logs.event(logs.WARNING, "index not written", error=error)
            return False
        return True


def _name(layout: StoredLayout, part: StoredPart, key: bytes) -> str:
    return object_name(layout.space, key.hex(), part.name)


def held(pages: Mapping[int, Bytes]) -> Callable[[StoredPart], Body]:
    """Return a function that makes the bodies of a block whose pages are in memory, by plane."""
    return lambda part: HeldPages([pages[number] for number in part.planes])


def _body_for(layout: StoredLayout, part: StoredPart, block: StoredBlock, header: ObjectHeader) -> Body:
    """Return the body that an object goes to, after checks of its header, which counts more than the index."""
    if not covers(header.ranges, block.ranges):
        raise MissingObjectError(f"object {header.name} has tokens {header.ranges}, not {block.ranges}")
    if header.pages != part.pages or header.end != block.end:
        raise ForeignObjectError(f"object {header.name} has other pages than the layout says")
    return block.body(part)


def _discard(header: ObjectHeader) -> Body:
    """Return a body that discards all bytes."""
    return HeldPages(())


def _header(layout: StoredLayout, part: StoredPart, block: StoredBlock) -> ObjectHeader:
    return ObjectHeader(layout.space, block.key.hex(), part.name, block.end, block.ranges, part.pages)
