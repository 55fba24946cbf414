"""The index of a store in SQLite: objects, their sizes, and when they were last used.

Files are the truth. If the index lacks an object, a request finds it by its name; if it names one that was removed, the
request removes the entry. So the loss of an index costs only time.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from kvplan.runtime.clock import now
from kvplan.runtime.ops import logs
from kvplan.store.errors import StoreIndexError
from kvplan.store.header import ObjectHeader
from kvplan.store.layout import Ranges

VERSION = 1
# Seconds that a process waits for another one's change: when it opens the index, and when it changes it. The second is
# short, because readers in other threads wait as well, and a process that hangs in a change must not stop them.
PATIENCE, PATIENCE_OF_CHANGES, PAUSE = 30.0, 1.0, 0.01
# SQLite's errors if the index cannot be written: the disk is full or read-only.
UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_TABLE = """
create table if not exists object (
    name text primary key, ranges text not null, size integer not null, end integer not null,
    created real not null, used real not null
) without rowid
"""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An index entry: an object's tokens, the bytes of its pages, the tokens up to its end, and its times."""

    name: str
    ranges: Ranges
    size: int
    end: int
    created: float
    used: float


class StoreIndex:
    """The index in the file `path`, or in memory (`:memory:`). Several threads and processes may use it."""

    def __init__(self, path: Path | str = ":memory:") -> None:
        self._path, self._lock = path, Lock()
        with self._errors():
            self._database = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False, isolation_level=None)
        try:
            with self._errors():
                version = self._version()
                self._set_mode()
                # If the machine crashes and changes are lost, the files still have the objects.
                self._database.execute("pragma synchronous = normal")
                if not version:
                    self._database.execute(_TABLE)
                    self._database.execute(f"pragma user_version = {VERSION}")
                self._database.execute(f"pragma busy_timeout = {PATIENCE_OF_CHANGES * 1000:.0f}")
        except StoreIndexError:
            self._database.close()
            raise

    @classmethod
    def opened(cls, path: Path) -> StoreIndex:
        """Return the index in a file, or an empty one in memory if the file cannot be written.

        Raises StoreIndexError.
        """
        try:
            return cls(path)
        except StoreIndexError as error:
            if _code(error.__cause__) not in UNWRITABLE:
                raise
            logs.event(logs.WARNING, "index in memory", error=error)
            return cls()

    @property
    def in_memory(self) -> bool:
        """Whether the index began empty and ends with this process."""
        return self._path == ":memory:"

    def _set_mode(self) -> None:
        """Set WAL mode. If two processes do so at once, SQLite refuses one instead of waiting, so this retries."""
        end = now() + PATIENCE
        while True:
            try:
                self._database.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or now() > end:
                    raise
                time.sleep(PAUSE)

    def _version(self) -> int:
        """Return the version of the index, 0 if it is new. Raises StoreIndexError for an unknown one."""
        version: int = self._database.execute("pragma user_version").fetchone()[0]
        if version not in (0, VERSION):
            text = f"the index {self._path} is of version {version}, this release writes {VERSION}"
            raise StoreIndexError(f"{text}: remove it, it is made again")
        return version

    def put(self, headers: Iterable[ObjectHeader], created: float | None = None) -> None:
        """Add objects, used now unless `created` has another time."""
        made = time.time() if created is None else created
        rows = [(one.name, json.dumps(one.ranges), one.size, one.end, made, made) for one in headers]
        self._many("insert or replace into object values (?, ?, ?, ?, ?, ?)", rows)

    def get(self, name: str) -> StoredObject | None:
        with self._errors(), self._lock:
            row = self._database.execute("select * from object where name = ?", (name,)).fetchone()
            return _entry(row) if row else None

    def use(self, names: Iterable[str], when: float | None = None) -> None:
        """Set when objects were last used: now, or at `when`."""
        used = time.time() if when is None else when
        self._many("update object set used = ? where name = ?", [(used, name) for name in names])

    def forget(self, names: Iterable[str]) -> None:
        self._many("delete from object where name = ?", [(name,) for name in names])

    def entries(self) -> list[StoredObject]:
        """Return all objects, `in_order`."""
        with self._errors(), self._lock:
            return in_order(_entry(row) for row in self._database.execute("select * from object"))

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _many(self, change: str, rows: Sequence[Sequence[object]]) -> None:
        """Apply a change to all rows or to none."""
        if not rows:
            return
        with self._errors(), self._lock:
            try:
                self._database.execute("begin immediate")
                self._database.executemany(change, rows)
                self._database.execute("commit")
            except BaseException:
                # If the disk is full, SQLite has already rolled back.
                if self._database.in_transaction:
                    self._database.execute("rollback")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as error:
            text = f"the index {self._path}: {error}"
            help = "Where it is damaged remove it: it is made again from the objects"
            if _code(error) == sqlite3.SQLITE_BUSY:
                help = "Another process stands in a change of it: look for that"
            raise StoreIndexError(f"{text}. {help}") from error


def in_order(entries: Iterable[StoredObject]) -> list[StoredObject]:
    """Sort objects by eviction: the longest unused first, and among those used together the last block first."""
    return sorted(entries, key=lambda entry: (entry.used, -entry.end, entry.name))


def _code(error: BaseException | None) -> int:
    """Return SQLite's primary code of an operational error, 0 of any other error."""
    return error.sqlite_errorcode & 0xFF if isinstance(error, sqlite3.OperationalError) else 0


def _entry(row: Sequence[object]) -> StoredObject:
    name, ranges, size, end, created, used = row
    found = tuple((int(start), int(stop)) for start, stop in json.loads(str(ranges)))
    return StoredObject(str(name), found, int(str(size)), int(str(end)), float(str(created)), float(str(used)))
