"""Keys come, change and go while engines run: their files are read again, and no socket is made again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.control.test_channel import CLAIM, talk, until
from tests.runtime.helpers.control import BIND
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, clear, move
from tests.runtime.helpers.waiting import until as come_true
from tests.runtime.helpers.worlds import world

from kvplan.runtime import errors
from kvplan.runtime.control import keys as key_files
from kvplan.runtime.control.card import Refusal
from kvplan.runtime.control.channel import ControlClient, ControlServer
from kvplan.runtime.control.keys import Keys, server
from kvplan.runtime.control.messages import Bye


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "PAUSE", 0.0)


def make(folder: Path, *names: str) -> None:
    """Key pairs of these engines, each in a folder of its own."""
    for name in names:
        Keys.make(folder / name, name)


def trust(folder: Path, name: str, other: str) -> Path:
    """Let engine `name` know the public key of another."""
    return Path(shutil.copy(folder / other / f"{other}.key", folder / name))


def public(folder: Path, name: str) -> bytes:
    """The key of an engine, by its own secret certificate."""
    own = folder / name / f"{name}.key_secret"
    return Keys.load(own, own.with_suffix(".key")).public


def test_files_come_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kvplan.runtime")
    make(tmp_path, "prefill", "a", "b")
    first = trust(tmp_path, "prefill", "a")
    keys = Keys.load(tmp_path / "prefill")
    assert keys.allowed() == keys.peers == {public(tmp_path, "a")}
    assert server(keys, None) == public(tmp_path, "a")
    trust(tmp_path, "prefill", "b")
    assert keys.allowed() == {public(tmp_path, "a"), public(tmp_path, "b")}
    first.unlink()
    assert keys.allowed() == {public(tmp_path, "b")}
    assert server(keys, None) == public(tmp_path, "b")
    assert keys.peers == {public(tmp_path, "a")}, "those that were there at first"
    said = [record.getMessage() for record in caplog.records]
    assert [line.split()[:2] for line in said] == [["keys", "changed"]] * 2
    assert public(tmp_path, "a").decode() in said[1]


def test_a_file_that_changes_is_another_key(tmp_path: Path) -> None:
    make(tmp_path, "prefill", "a", "b")
    path = trust(tmp_path, "prefill", "a")
    keys = Keys.load(tmp_path / "prefill/prefill.key_secret", path)
    shutil.copy(tmp_path / "b/b.key", tmp_path / "next")
    (tmp_path / "next").rename(path)
    assert keys.allowed() == {public(tmp_path, "b")}
    path.unlink()
    assert keys.allowed() == set()


def test_ones_own_key_is_no_peers_when_files_are_read_again(tmp_path: Path) -> None:
    make(tmp_path, "prefill", "a")
    trust(tmp_path, "prefill", "a")
    keys = Keys.load(tmp_path / "prefill")
    trust(tmp_path, "a", "prefill").rename(tmp_path / "prefill/copy.key")
    assert keys.allowed() == {public(tmp_path, "a")}


def test_a_file_that_is_no_key_lets_nobody_in_and_others_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path, "prefill", "a", "b")
    trust(tmp_path, "prefill", "a")
    keys = Keys.load(tmp_path / "prefill")
    half = tmp_path / "prefill/b.key"
    half.write_text('public-key = "half')
    shutil.copy(tmp_path / "b/b.key_secret", tmp_path / "prefill/secret.key")
    for _ in range(3):
        assert keys.allowed() == {public(tmp_path, "a")}
    ignored = [record.getMessage() for record in caplog.records]
    assert [("b.key" in line, "holds a secret" in line) for line in ignored] == [(True, False), (False, True)]
    shutil.copy(tmp_path / "b/b.key", half)
    assert keys.allowed() == {public(tmp_path, "a"), public(tmp_path, "b")}


def test_a_folder_that_is_gone_lets_nobody_in(tmp_path: Path) -> None:
    make(tmp_path, "prefill", "a")
    keys = Keys.load(tmp_path / "prefill/prefill.key_secret", tmp_path / "a")
    assert keys.allowed() == {public(tmp_path, "a")}
    shutil.rmtree(tmp_path / "a")
    assert keys.allowed() == set()
    with pytest.raises(errors.KeysError, match="0 peers are known"):
        server(keys, None)


def test_however_many_ask_files_are_looked_at_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "prefill", "a")
    trust(tmp_path, "prefill", "a")
    keys, looks = Keys.load(tmp_path / "prefill"), []
    monkeypatch.setattr(key_files, "PAUSE", 3600.0)
    monkeypatch.setattr(key_files.PeerFiles, "_look", lambda self: looks.append(self))
    for _ in range(100):
        keys.allowed()
    assert len(looks) == 1


def refused(desk: ControlServer, line: ControlClient) -> Any:
    """Why a connection does not come about."""
    return until(line.wait, lambda: line.broken() or (desk.receive() and pytest.fail("it was heard")))


def test_a_running_server_lets_new_keys_in_and_hears_no_more_of_those_that_go(tmp_path: Path) -> None:
    make(tmp_path, "prefill", "a", "b")
    trust(tmp_path, "prefill", "a")
    trust(tmp_path, "a", "prefill")
    trust(tmp_path, "b", "prefill")
    desk = ControlServer(BIND, Keys.load(tmp_path / "prefill"))
    first = ControlClient(desk.address, Keys.load(tmp_path / "a"))
    talk(desk, first)
    early = ControlClient(desk.address, Keys.load(tmp_path / "b"))
    assert isinstance(refused(desk, early), errors.KeysError)
    trust(tmp_path, "prefill", "b")
    second = ControlClient(desk.address, Keys.load(tmp_path / "b"))
    talk(desk, second)
    (tmp_path / "prefill/a.key").unlink()
    assert first.send(CLAIM)
    assert [message for _, message in until(desk.wait, desk.receive)] == [Bye()]
    (refusal,) = until(first.wait, first.receive)
    assert (type(refusal), refusal.code) == (Refusal, errors.KeysError.code)
    again = ControlClient(desk.address, Keys.load(tmp_path / "a"))
    assert isinstance(refused(desk, again), errors.KeysError)
    talk(desk, second)
    for end in (first, early, second, again, desk):
        end.close()


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_an_engine_whose_key_goes_is_dropped_and_let_in_again(tmp_path: Path, mode: str) -> None:
    make(tmp_path, "prefill", "decode")
    path = trust(tmp_path, "prefill", "decode")
    trust(tmp_path, "decode", "prefill")
    keys, d_keys = Keys.load(tmp_path / "prefill"), Keys.load(tmp_path / "decode")
    made = world(Shape(1), Shape(1), mode=mode, lease=1, keys=keys, d_keys=d_keys)
    source, target = made.prefill[0], made.decode[0]
    move(made, ask(made, (0, 12)))
    path.unlink()
    come_true(lambda: not target.run_once() and not target.peers() and not len(source.inspect().readers))
    with pytest.raises(errors.KeysError, match="does not let ours in"):
        target.connect(source.address, 10, mode=mode)
    trust(tmp_path, "prefill", "decode")
    target.connect(source.address, 10, mode=mode)
    clear(made)
    move(made, ask(made, (0, 12), name="again"))
