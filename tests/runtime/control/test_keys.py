"""Keys come from certificate files; what is no key, or the wrong one, is refused by name, and no secret is shown."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest
import zmq
from tests.runtime.helpers.control import pair

from kvplan.runtime.control.keys import LARGEST, Keys, server
from kvplan.runtime.errors import KeysError


def engines(folder: Path) -> Path:
    """A folder with the secret of one engine and the public keys of two."""
    Keys.make(folder, "decode-0")
    Keys.make(folder / "other", "prefill-0")
    shutil.copy(folder / "other/prefill-0.key", folder)
    return folder


def test_a_folder_has_ones_own_keys_and_those_of_peers(tmp_path: Path) -> None:
    keys = Keys.load(engines(tmp_path))
    theirs = Keys.load(tmp_path / "other/prefill-0.key_secret", tmp_path / "decode-0.key")
    assert keys.peers == {theirs.public}
    assert theirs.peers == {keys.public}
    assert zmq.curve_public(keys.secret) == keys.public != theirs.public


def test_ones_own_key_is_a_peer_only_by_its_file(tmp_path: Path) -> None:
    public, secret = Keys.make(tmp_path, "all")
    with pytest.raises(KeysError, match="no public key of a peer"):
        Keys.load(tmp_path)
    keys = Keys.load(secret, public)
    assert keys.peers == {keys.public}


def test_secrets_are_not_shown_and_not_readable_by_others(tmp_path: Path) -> None:
    public, secret = Keys.make(tmp_path, "a")
    keys = Keys.load(secret, public)
    assert keys.secret.decode() not in f"{keys!r} {keys}"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert keys.secret not in public.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.key", "a.key_secret"]


@pytest.mark.parametrize("there", ["a.key", "a.key_secret"])
def test_keys_are_never_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(KeysError, match=f"{there} exists"):
        Keys.make(tmp_path, "a")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]


def test_keys_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.key_secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeysError, match="exists"):
        Keys.make(tmp_path, "a")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["", ".", "../a", "a/b", "-o", "a b", "a\n", "a" * 65])
def test_names_of_keys(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeysError, match="is no name of keys"):
        Keys.make(tmp_path, name)


def test_keys_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeysError, match="cannot be written"):
        Keys.make(tmp_path / "file", "a")


@pytest.mark.parametrize("text", ["", "hello", 'curve\n    public-key = "short"\n', "public-key\n", "\0" * 99])
def test_files_that_are_no_certificates(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.key_secret").write_text(text)
    with pytest.raises(KeysError, match=r"bad\.key_secret"):
        Keys.load(tmp_path / "bad.key_secret")


def test_files_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "large.key_secret").write_bytes(bytes(LARGEST + 1))
    for path in (tmp_path / "none", tmp_path / "large.key_secret", Path("/dev/zero")):
        with pytest.raises(KeysError, match="is no certificate"):
            Keys.load(path)


def test_a_folder_without_a_secret_or_with_two(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="has 0 secret certificates"):
        Keys.load(tmp_path)
    Keys.make(tmp_path, "a")
    Keys.make(tmp_path, "b")
    with pytest.raises(KeysError, match="has 2 secret certificates"):
        Keys.load(tmp_path)


def test_public_where_the_secret_is_needed_and_the_other_way_round(tmp_path: Path) -> None:
    public, secret = Keys.make(tmp_path, "a")
    with pytest.raises(KeysError, match=r"is a public certificate: give the secret one, a\.key_secret"):
        Keys.load(public)
    with pytest.raises(KeysError, match="holds a secret"):
        Keys.load(secret, secret)


def test_keys_that_are_none() -> None:
    keys, other = pair()
    for values in (
        (keys.public[:-1], keys.secret),
        (b" " * 40, keys.secret),
        (b"~" * 40, keys.secret),
        (keys.public.decode(), keys.secret),
        (keys.public, keys.secret[:-1]),
        (keys.public, b"\xff" * 40),
        (keys.public, other.secret),
        (keys.public, keys.secret, frozenset({b"peer"})),
    ):
        with pytest.raises(KeysError) as caught:
            Keys(*values)
        assert keys.secret.decode() not in str(caught.value)
        assert other.secret.decode() not in str(caught.value)


def test_which_key_a_server_must_have() -> None:
    keys, other = pair()
    assert server(keys, None) == other.public
    assert server(keys, keys.public) == keys.public
    with pytest.raises(KeysError, match="2 peers are known: give the public key"):
        server(Keys(keys.public, keys.secret, frozenset({keys.public, other.public})), None)
    with pytest.raises(KeysError, match="server's public key"):
        server(keys, b"short")
