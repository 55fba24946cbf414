"""The store: whole blocks by key, their index, what is evicted, and whether all of it is as it was written."""

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
# Seconds for which an index that could not be written is told of nothing that it can do without.
REST = 60.0
# Blocks that are written before they have their names: a process that is killed, or fails, has written so many in vain.
WRITTEN = 32
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block of a group: its key, the tokens up to its end, which of them it has, and the body of each part."""

    group: str
    key: bytes
    end: int
    ranges: Ranges
    body: Callable[[StoredPart], Body]


@dataclass(frozen=True, slots=True)
class Collected:
    """What `Store.collect` did: objects and their bytes that were removed, and those that are left."""

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
        """The store in the folder `path`, which is made where there is none. Raises StoreIndexError, OSError."""
        root = Path(path)
        (root / OBJECTS).mkdir(parents=True, exist_ok=True)
        return cls(Folder(root / OBJECTS, files or PlainFiles()), StoreIndex.opened(root / INDEX))

    @classmethod
    def at(cls, url: str, index: Path | str = ":memory:", bucket: NixlBucket | None = None) -> Store:
        """The store at a URL, s3://bucket/folder. Its index is a file of this machine, or none: it begins empty then.

        `bucket` moves pages where it is given. Raises StoreFileError, StoreIndexError.
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
        """Whether its index is in memory, and knows what this process did, or took stock of."""
        return self._index.in_memory

    def has(self, layout: StoredLayout, group: str, key: bytes, ranges: Ranges) -> bool:
        """Whether a block of a group is there with these tokens."""
        found = [self._ranges(_name(layout, part, key)) for part in layout.parts[group]]
        return all(have is not None and covers(have, ranges) for have in found)

    def write(self, layout: StoredLayout, blocks: Sequence[StoredBlock]) -> None:
        """Keep blocks, those of which the store has the same tokens and more as they are there.

        Raises StoreFileError, TransportError, and StoreIndexError where the index cannot be read.
        """
        for start in range(0, len(blocks), WRITTEN):
            made = [
                NewObject(_header(layout, part, block), block.body(part))
                for block in blocks[start : start + WRITTEN]
                for part in layout.parts[block.group]
                if not self._has_more(_name(layout, part, block.key), block.ranges)
            ]
            self._note(self._indexed, self._objects.put(made))

    def use(self, layout: StoredLayout, blocks: Iterable[tuple[str, bytes]]) -> None:
        """Blocks, (group, key) each, of one request were used now, all at once: its last ones are evicted first."""
        names = [_name(layout, part, key) for group, key in blocks for part in layout.parts[group]]
        self._note(self._index.use, names)

    def read(self, layout: StoredLayout, blocks: Sequence[StoredBlock]) -> None:
        """Read blocks, which are right when this returns.

        Raises MissingObjectError, DamagedObjectError, ForeignObjectError or StoreFileError, after which they may be
        anything; what is at fault is found no more.
        """
        parts = [(block, part) for block in blocks for part in layout.parts[block.group]]
        names = [_name(layout, part, block.key) for block, part in parts]
        at_once(
            self._objects.threads, self._read, names, [partial(_placed, layout, part, block) for block, part in parts]
        )

    def entries(self) -> list[StoredObject]:
        """All objects that are known, the first to be evicted first."""
        return self._index.entries()

    def take_stock(self) -> list[StoredObject]:
        """Take in what is there and the index lacks, and forget what is not there. Returns all, the first to be evicted
        first, those too that the index cannot take, as the disk is full.

        Raises StoreFileError, and StoreIndexError where the index cannot be read.
        """
        known, there = {entry.name: entry for entry in self._index.entries()}, set(self._objects.names())
        self._try(self._index.forget, sorted(known.keys() - there))
        found, writable = [entry for name, entry in known.items() if name in there], True
        for name in sorted(there - known.keys()):
            # What is foreign here may be another release's own.
            with suppress(ForeignObjectError):
                if (header := self._header(name)) is not None:
                    written = self._objects.written(name)
                    writable = writable and self._try(partial(self._indexed, created=written), [header])
                    found.append(StoredObject(name, header.ranges, header.size, header.end, written, written))
        return in_order(found)

    def collect(
        self, most_bytes: int | None = None, age: float | None = None, abandoned: float = ABANDONED
    ) -> Collected:
        """Remove what was not used for `age` seconds, and what was not used longest above `most_bytes` in all.

        What the index lacks counts by when it was written; what is not there is forgotten, and what nobody finished is
        removed.
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
        """Every object by name, read whole, and what is wrong with it."""
        for name in list(self._objects.names()):
            try:
                self._objects.read(name, _anywhere)
            except MissingObjectError:
                continue
            except StoreError as error:
                yield name, error
            else:
                yield name, None

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects, damaged ones, too. Raises StoreFileError once all are removed that can be."""
        # First, too: who is killed then leaves files that are found by their names, and nothing that is not there.
        self._note(self._index.forget, names)
        errors = [error for name in names if (error := self._removed(name)) is not None]
        # Where the disk was full there is room now.
        self._try(self._index.forget, names)
        if errors:
            raise errors[0]

    def _removed(self, name: str) -> StoreFileError | None:
        """Remove an object, or say why it cannot be."""
        try:
            self._objects.remove(name)
        except StoreFileError as error:
            return error
        return None

    def _has_more(self, name: str, ranges: Ranges) -> bool:
        """Whether another process has written more meanwhile."""
        there = self._ranges(name)
        return there is not None and there != ranges and covers(there, ranges)

    def _header(self, name: str) -> ObjectHeader | None:
        """The header of an object that the index lacks, None where it is no object any more."""
        try:
            return self._objects.header(name)
        except MissingObjectError:
            return None
        except (DamagedObjectError, StoreFileError) as error:
            self._put_away(name, error)
            return None

    def _ranges(self, name: str) -> Ranges | None:
        """The tokens of an object, None where there is none. One that a process wrote and did not index is found."""
        if (entry := self._index.get(name)) is not None:
            return entry.ranges
        try:
            header = self._header(name)
        except ForeignObjectError as error:
            self._put_away(name, error)
            return None
        if header is None:
            return None
        self._note(self._indexed, [header])
        return header.ranges

    def _put_away(self, name: str, error: StoreError) -> None:
        """Set an object aside where it is wrong; one that cannot be read now may be right."""
        logs.event(logs.WARNING, "object refused", object=name, error=error)
        if isinstance(error, DamagedObjectError | ForeignObjectError):
            self._objects.set_aside(name)

    def _read(self, name: str, place: Place) -> None:
        """Read an object. One that is missing or wrong is not found again, so that it may be saved again."""
        try:
            self._objects.read(name, place)
        except StoreError as error:
            if not isinstance(error, MissingObjectError):
                self._put_away(name, error)
            self._note(self._index.forget, [name])
            raise

    def _indexed(self, headers: Sequence[ObjectHeader], created: float | None = None) -> None:
        """Take objects into the index. Raises StoreIndexError."""
        self._index.put(headers, created)
        # Who removed one before it was in the index has told the index of that in vain.
        self._index.forget(self._objects.gone([header.name for header in headers]))

    def _note(self, change: Callable[[Sequence[T]], None], what: Sequence[T]) -> None:
        """Change the index if that can be: what it lacks costs time later, and what is right is loaded all the same."""
        # Wait for a lock once, and not for every block.
        if now() >= self._rests and not self._try(change, what):
            self._rests = now() + REST

    def _try(self, change: Callable[[Sequence[T]], None], what: Sequence[T]) -> bool:
        """Change the index; whether it could be changed."""
        try:
            change(what)
        except StoreIndexError as error:
            logs.event(logs.WARNING, "index not written", error=error)
            return False
        return True


def _name(layout: StoredLayout, part: StoredPart, key: bytes) -> str:
    return object_name(layout.space, key.hex(), part.name)


def held(pages: Mapping[int, Bytes]) -> Callable[[StoredPart], Body]:
    """The bodies of a block whose pages are in memory, by plane."""
    return lambda part: HeldPages([pages[number] for number in part.planes])


def _placed(layout: StoredLayout, part: StoredPart, block: StoredBlock, header: ObjectHeader) -> Body:
    """Where an object goes. What its header says counts, not the index."""
    if not covers(header.ranges, block.ranges):
        raise MissingObjectError(f"object {header.name} has tokens {header.ranges}, not {block.ranges}")
    if header.pages != part.pages or header.end != block.end:
        raise ForeignObjectError(f"object {header.name} has other pages than the layout says")
    return block.body(part)


def _anywhere(header: ObjectHeader) -> Body:
    """A body that keeps nothing."""
    return HeldPages(())


def _header(layout: StoredLayout, part: StoredPart, block: StoredBlock) -> ObjectHeader:
    return ObjectHeader(layout.space, block.key.hex(), part.name, block.end, block.ranges, part.pages)
