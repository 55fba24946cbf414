"""Rows of stored objects: where a folder is named they are measured and nothing is left there, elsewhere skipped."""

from __future__ import annotations

import pytest

from kvplan.bench import store
from kvplan.remote.folder import RemoteFolder
from kvplan.store.errors import StoreFileError


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BLOCKS", 1)
    monkeypatch.setattr(store, "TOKENS", store.BLOCK)


@pytest.mark.usefixtures("short")
def test_objects_are_measured_where_a_folder_is_named() -> None:
    rows = store.object_rows("memory://measured", 2)
    assert [(row.name.partition(",")[0], row.pairs) for row in rows] == [("save", 2), ("load", 2)] * len(store.CASES)
    assert list(RemoteFolder("memory://measured").names()) == []


@pytest.mark.parametrize("url", ["", "nothing://bucket/folder"])
def test_objects_are_skipped_with_the_reason_elsewhere(url: str) -> None:
    (row,) = store.object_rows(url, 2)
    assert row.name == "not measured"
    assert (url or store.PLACE) in row.value


@pytest.mark.usefixtures("short")
def test_a_server_that_goes_away_is_a_reason_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: RemoteFolder) -> None:
        raise StoreFileError("nobody answers")

    monkeypatch.setattr(RemoteFolder, "names", gone)
    (row,) = store.object_rows("memory://gone", 2)
    assert (row.name, row.value) == ("not measured", "nobody answers")
