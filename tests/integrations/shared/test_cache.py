"""The folder of plans that an engine compiles for itself: what it is named by, and where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvplan.integrations.shared import cache
from kvplan.integrations.shared.cache import cache_folder
from kvplan.integrations.shared.errors import ConnectorError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kvplan"


def test_engines_that_compile_from_the_same_share_a_folder(home: Path, tmp_path: Path) -> None:
    one = cache_folder(None, {"m.yaml": "kvplan: 1"})
    assert one == cache_folder(None, {"m.yaml": "kvplan: 1"})
    assert one.parent == home
    assert (one / "layouts" / "m.yaml").read_text() == "kvplan: 1"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "m.yaml").write_text("kvplan: 3")
    others = [cache_folder(None, {}), cache_folder(None, {"m.yaml": "kvplan: 2"}), cache_folder(mine, {})]
    assert len({one, *others}) == 4


def test_another_compiler_has_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_folder(None, {})
    monkeypatch.setattr(cache, "_compiler", lambda: "of another commit")
    assert cache_folder(None, {}) != before


def test_without_the_variable_it_is_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for word in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", word)
        assert cache_folder(None, {}).parent == tmp_path / ".cache" / "kvplan"


def test_a_folder_that_cannot_be_made_is_named(home: Path) -> None:
    home.parent.mkdir()
    home.write_text("a file")
    with pytest.raises(ConnectorError, match=r"I009: .*cannot be compiled into the cache folder .*is a file") as caught:
        cache_folder(None, {})
    assert "XDG_CACHE_HOME" in caught.value.help
    assert '"plans"' in caught.value.help


def test_a_folder_that_everybody_may_write_is_refused(home: Path) -> None:
    home.mkdir(parents=True)
    os.chmod(home, 0o777)
    with pytest.raises(ConnectorError, match=r"I009: .*every user may write it"):
        cache_folder(None, {})
