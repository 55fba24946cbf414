"""The index where SQLite fails: typed errors, and nothing that is right is refused for what could not be noted."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.store.engines import empty, full, keys_of, load_into, save

from kvplan.store.errors import DamagedObjectError, StoreIndexError
from kvplan.store.index import StoreIndex
from kvplan.store.store import INDEX, OBJECTS, Store

HEADS, KEYS = "toy-heads", keys_of(3)


class Failing(sqlite3.Connection):
    """A database that fails as told: what is executed begins with `text`, `times` times."""

    text, times, code = "", 0, sqlite3.SQLITE_FULL

    def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
        self._fail(sql)
        return super().execute(sql, *more)

    def executemany(self, sql: str, *more: Any) -> sqlite3.Cursor:
        self._fail(sql)
        return super().executemany(sql, *more)

    @classmethod
    def _fail(cls, sql: str) -> None:
        if not cls.times or not sql.startswith(cls.text):
            return
        cls.times -= 1
        error = sqlite3.OperationalError("database failed")
        error.sqlite_errorcode = cls.code
        raise error


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **how: connect(path, factory=Failing, **how))
    for name, value in (("text", ""), ("times", 0), ("code", sqlite3.SQLITE_FULL)):
        monkeypatch.setattr(Failing, name, value)
    return Failing


def test_two_that_make_an_index_at_once(tmp_path: Path, failing: type[Failing]) -> None:
    failing.text, failing.times, failing.code = "pragma journal_mode", 3, sqlite3.SQLITE_BUSY
    StoreIndex(tmp_path / INDEX).close()
    assert not failing.times


def test_an_index_that_is_there_is_not_written_when_it_is_opened(tmp_path: Path, failing: type[Failing]) -> None:
    StoreIndex(tmp_path / INDEX).close()
    failing.text, failing.times = "pragma user_version =", 1
    StoreIndex(tmp_path / INDEX).close()


def test_what_sqlite_has_taken_back_is_not_taken_back_again(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 3), KEYS)
    index = StoreIndex(tmp_path / INDEX)
    # SQLite ends the transaction itself, as where a disk is full.
    index._database.execute("create trigger full before update on object begin select raise(rollback, 'is full'); end")
    with pytest.raises(StoreIndexError, match="is full"):
        index.use([entry.name for entry in index.entries()])
    index.close()


@pytest.mark.parametrize("fault", ["update", "insert", "begin"])
def test_a_load_does_not_fail_as_nothing_can_be_noted(tmp_path: Path, failing: type[Failing], fault: str) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 3), KEYS)
    for path in tmp_path.glob(f"{INDEX}*"):
        path.unlink()
    with Store.open(tmp_path) as store:
        failing.text, failing.times = fault, 1000
        engine = empty(HEADS, "tp=4", (0, 48))
        assert load_into(store, engine, KEYS) == 3
        assert not engine.wrong()
        # Once, not for every block: each may wait for another process.
        assert failing.times == 999


def test_an_error_of_the_index_hides_no_other(tmp_path: Path, failing: type[Failing]) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 3), KEYS)
        bad = sorted((tmp_path / OBJECTS).glob("*/*/*"))[0]
        bad.write_bytes(bad.read_bytes()[:-1])
        failing.text, failing.times = "delete", 1
        with pytest.raises(DamagedObjectError):
            load_into(store, empty(HEADS, "tp=4", (0, 48)), KEYS)
        assert not failing.times


@pytest.mark.parametrize("change", ["ranges = 'x'", "ranges = '7'", "ranges = '[[1]]'", "size = 'x'", "used = 'x'"])
def test_an_index_that_holds_something_else(tmp_path: Path, change: str) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 3), KEYS)
    database = sqlite3.connect(tmp_path / INDEX)
    with database:
        database.execute(f"update object set {change}")
    database.close()
    with Store.open(tmp_path) as store, pytest.raises(StoreIndexError, match="remove it"):
        store.entries()


@pytest.mark.parametrize("there", [True, False])
def test_a_store_opens_where_nothing_can_be_written(tmp_path: Path, failing: type[Failing], there: bool) -> None:
    """A full disk, with an index or without: what is there is loaded, and room is made."""
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 3), KEYS)
    for path in [] if there else tmp_path.glob(f"{INDEX}*"):
        path.unlink()
    failing.text, failing.times = "pragma journal_mode", 1
    with Store.open(tmp_path) as store:
        engine = empty(HEADS, "tp=4", (0, 48))
        assert (load_into(store, engine, KEYS), engine.wrong()) == (3, [])
        assert store.collect(most_bytes=0).removed == 3
    assert not failing.times
    assert not list((tmp_path / OBJECTS).glob("*/*/*"))


def test_an_index_of_another_version_is_not_passed_over(tmp_path: Path, failing: type[Failing]) -> None:
    database = sqlite3.connect(tmp_path / INDEX)
    database.execute("pragma user_version = 99")
    database.close()
    failing.text, failing.times = "pragma journal_mode", 1
    with pytest.raises(StoreIndexError, match="of version 99"):
        Store.open(tmp_path)


def test_who_stands_still_in_a_change_stops_nobody(tmp_path: Path) -> None:
    """Another process has SQLite's lock: what is saved is there, though the index lacks it."""
    with Store.open(tmp_path) as store:
        other = sqlite3.connect(tmp_path / INDEX, isolation_level=None)
        other.execute("begin immediate")
        assert save(store, full(HEADS, "tp=2", 3), KEYS) == 3
        assert load_into(store, empty(HEADS, "tp=4", (0, 48)), KEYS) == 3
        # The folder has objects that the index lacks.
        assert store.collect(most_bytes=0).removed == 3
        other.close()
        assert not store.collect(most_bytes=0).removed


@pytest.mark.parametrize("fault", ["insert", "delete", "begin"])
def test_room_is_made_where_the_index_has_none(tmp_path: Path, failing: type[Failing], fault: str) -> None:
    """An engine has the store open, and one object is not in its index, for which there was no room."""
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 3), KEYS)
        store._index.forget([store.entries()[0].name])
        failing.text, failing.times = fault, 1000
        found = store.collect(most_bytes=0)
        assert (found.removed, found.kept) == (3, 0)
    assert not list((tmp_path / OBJECTS).glob("*/*/*"))
