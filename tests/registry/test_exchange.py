"""Plans at a URL: brought whole and signed, or not at all."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.plans.test_catalog import find, stored, text
from tests.store.s3 import BUCKET, SERVERS, s3_server

from kvplan.plan.errors import (
    PlanIndexError,
    PlanMissingError,
    PlanPendingError,
    PlanRemoteError,
    PlanSignatureError,
)  # fmt: skip
from kvplan.plan.files import folder, index
from kvplan.registry import catalog as remote_catalogs
from kvplan.registry import exchange, signing
from kvplan.registry.catalog import RemoteCatalog
from kvplan.registry.exchange import RECORD, SIGNED, pull, push
from kvplan.registry.signing import SignedIndex, SigningKey, TrustedKeys
from kvplan.remote.folder import RemoteFolder
from kvplan.runtime.errors import KeysError
from kvplan.runtime.plans.catalog import Catalog, never_waiting


class Team:
    """A key pair, plans that were compiled, and a folder at a URL."""

    def __init__(self, root: Path) -> None:
        public, secret = signing.make(root / "keys", "team")
        self.secret, self.trusted = SigningKey(secret), TrustedKeys.load(public)
        self.plans, self.there = root / "plans", root / "there"
        self.plans.mkdir()
        self.url = self.there.as_uri()

    def push(self, *texts: str, prune: bool = False) -> exchange.Exchanged:
        self.entries = stored(self.plans, *texts)
        return push(self.plans, self.url, self.secret, prune)

    def pull(self, target: Path) -> exchange.Exchanged:
        return pull(self.url, target, self.trusted)

    def alter(self, change: Callable[[dict[str, object]], object]) -> None:
        """Change what the signed index is made of."""
        envelope = json.loads((self.there / SIGNED).read_bytes())
        change(envelope)
        (self.there / SIGNED).write_text(json.dumps(envelope))


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    monkeypatch.setattr(exchange, "now", lambda: 1.0)
    return Team(tmp_path)


def contents(target: Path) -> dict[str, bytes]:
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


@contextmanager
def served(handler: Callable[..., SimpleHTTPRequestHandler]) -> Iterator[str]:
    """A web server on this machine, and its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Nothing."""


def test_what_is_pulled_is_what_was_pushed(team: Team, tmp_path: Path) -> None:
    assert team.push(text(), text(1, 2)).serial == 1
    done = team.pull(tmp_path / "here")
    assert (len(done.copied), len(done.plans), done.serial) == (2, 2, 1)
    catalog = Catalog(tmp_path / "here")
    assert [find(catalog, one).digest for one in team.entries] == [one.plan for one in team.entries]
    assert team.pull(tmp_path / "here").copied == ()


def test_over_http_and_in_memory(team: Team, tmp_path: Path) -> None:
    team.push(text())
    with served(partial(Quiet, directory=str(team.there))) as url:
        pull(url, tmp_path / "web", team.trusted, signed_for=team.url)
        with pytest.raises(PlanRemoteError, match="404"):
            pull(f"{url}/nothing", tmp_path / "none", team.trusted)
    push(team.plans, "memory://bucket/plans", team.secret)
    pull("memory://bucket/plans/", tmp_path / "memory", team.trusted)
    for here in ("web", "memory"):
        assert find(Catalog(tmp_path / here), team.entries[0]).digest == team.entries[0].plan


@pytest.mark.parametrize("kind", SERVERS)
def test_over_s3(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with s3_server(kind, tmp_path, monkeypatch):
        entries = stored(team.plans, text(), text(1, 2))
        assert len(push(team.plans, f"s3://{BUCKET}/plans", team.secret).copied) == 2
        assert len(pull(f"s3://{BUCKET}/plans", tmp_path / "here", team.trusted).copied) == 2
        assert find(Catalog(tmp_path / "here"), entries[0]).digest == entries[0].plan
        with pytest.raises(PlanRemoteError, match="has no"):
            pull(f"s3://{BUCKET}/none", tmp_path / "none", team.trusted)
        with pytest.raises(PlanRemoteError):
            push(team.plans, "s3://nobucket/plans", team.secret)


def test_a_server_that_is_not_there_or_fails_has_not_nothing(team: Team, tmp_path: Path) -> None:
    class Failing(Quiet):
        def do_GET(self) -> None:
            self.send_error(500)

        do_HEAD = do_GET  # noqa: N815

    with served(Failing) as url, pytest.raises(PlanRemoteError, match="cannot be read: ClientResponseError"):
        pull(url, tmp_path / "here", team.trusted)
    with pytest.raises(PlanRemoteError, match="cannot be read: ClientConnector"):
        pull(url, tmp_path / "here", team.trusted)


def test_a_server_that_says_nothing_is_waited_for_only_so_long(team: Team, tmp_path: Path) -> None:
    release = threading.Event()

    class Silent(Quiet):
        def do_GET(self) -> None:
            release.wait(60)

        do_HEAD = do_GET  # noqa: N815

    with served(Silent) as url:
        with pytest.raises(PlanRemoteError, match=r"has not answered within 0.2 s"):
            pull(url, tmp_path / "here", team.trusted, seconds=0.2)
        release.set()


def test_a_protocol_that_connects_at_once(team: Team, tmp_path: Path) -> None:
    with pytest.raises(PlanRemoteError, match=r"ftp:.* cannot be used: ConnectionRefusedError"):
        pull("ftp://127.0.0.1:9/plans", tmp_path / "here", team.trusted)


def test_a_connection_is_made_anew_each_time() -> None:
    """One that has died is not asked again."""
    one, other = (RemoteFolder("memory://bucket") for _ in range(2))
    assert one._system is not other._system


def test_protocols_that_are_not_installed(team: Team, tmp_path: Path) -> None:
    with pytest.raises(PlanRemoteError, match="nosuch"):
        pull("nosuch://bucket", tmp_path / "here", team.trusted)


def test_a_lost_index_is_no_way_back(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has pulled accepts a push without an index; --prune leaves out an unreadable index."""
    for hour, spoil in enumerate((Path.unlink, lambda path: path.write_bytes(b"{"))):
        team.push(text())
        before = team.pull(tmp_path / "here").serial
        spoil(team.there / SIGNED)
        monkeypatch.setattr(exchange, "now", lambda hour=hour: 3600.0 * (hour + 1))
        if spoil is not Path.unlink:
            with pytest.raises(PlanSignatureError, match="or --prune, to go on without"):
                team.push(text(1, 2))
        assert team.push(text(1, 2), prune=True).serial > before
        assert len(team.pull(tmp_path / "here").plans) == 1


def test_two_releases_lie_side_by_side(team: Team, tmp_path: Path) -> None:
    """Both have a file of the same path."""
    team.push(text())
    old = team.entries[0]
    assert team.push(text(1, 2)).serial == 2
    new = team.entries[0]
    assert old.path == new.path
    assert len(team.pull(tmp_path / "here").plans) == 2
    catalog = Catalog(tmp_path / "here")
    assert [find(catalog, one).digest for one in (old, new)] == [old.plan, new.plan]
    assert len(team.push(text(1, 2)).plans) == 2, "pushed again, nothing is twice"
    assert len(team.push(text(1, 2), prune=True).plans) == 1
    assert len(team.pull(tmp_path / "here").plans) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.update(payload=one["payload"].replace("plan0", "plan1")), "was altered"),
        (lambda one: one.update(signature="AAAA"), "was altered"),
        (lambda one: one.update(signature="?"), "is no signed index"),
        (lambda one: one.update(key="0123456789abcdef"), "which is not trusted"),
        (lambda one: one.pop("payload"), "is no signed index"),
        (lambda one: one.update(payload=3), "is no signed index"),
        (lambda one: one.update(payload="\ud800"), "is no signed index"),
        (lambda one: one.update(format=3), "has format 3"),
        (lambda one: one.update(format=1), "signed by an older kvplan, for any place: sign it again"),
        (lambda one: one.update(format=True), "is no signed index"),
    ],
)
def test_an_altered_index_is_refused(team: Team, tmp_path: Path, change: Callable[..., object], message: str) -> None:
    team.push(text())
    team.pull(tmp_path / "here")
    before = contents(tmp_path / "here")
    team.push(text(1, 2))
    team.alter(change)
    with pytest.raises(PlanSignatureError, match=message):
        team.pull(tmp_path / "here")
    assert contents(tmp_path / "here") == before
    with pytest.raises(PlanSignatureError, match=message):
        team.push(text(1, 2))


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"null", b"[" * 100_000])
def test_what_is_no_index_at_all(team: Team, tmp_path: Path, data: bytes) -> None:
    team.push(text())
    (team.there / SIGNED).write_bytes(data)
    with pytest.raises(PlanSignatureError, match="is no signed index"):
        team.pull(tmp_path / "here")


def test_what_another_key_signed(team: Team, tmp_path: Path) -> None:
    team.push(text())
    public, secret = signing.make(tmp_path / "keys", "other")
    with pytest.raises(PlanSignatureError, match="not trusted"):
        push(team.plans, team.url, SigningKey(secret))
    with pytest.raises(PlanSignatureError, match="not trusted"):
        pull(team.url, tmp_path / "here", TrustedKeys.load(public))
    assert pull(team.url, tmp_path / "here", TrustedKeys.load(tmp_path / "keys")).serial == 1


def copied(source: Path, target: Path) -> None:
    """Copy all files of a folder to another one, as the keeper of both can."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())


def test_what_was_signed_for_another_place_is_refused(team: Team, tmp_path: Path) -> None:
    """It happened: staging's index, byte for byte, was taken at production's URL of the same key."""
    team.push(text())
    team.pull(tmp_path / "here")
    before = contents(tmp_path / "here")
    stored(team.plans, text(1, 2))
    push(team.plans, (tmp_path / "staging").as_uri(), team.secret)
    copied(tmp_path / "staging", team.there)
    with pytest.raises(PlanSignatureError, match=r"was signed for '.*/staging', not for '.*/there': find out who"):
        team.pull(tmp_path / "here")
    with pytest.raises(PlanSignatureError, match="was signed for"):
        RemoteCatalog(team.url, tmp_path / "engine", team.trusted)
    assert contents(tmp_path / "here") == before


def test_a_push_goes_on_from_no_index_of_another_place(team: Team, tmp_path: Path) -> None:
    """The next push would sign the other place's plans for this place."""
    stored(team.plans, text())
    push(team.plans, (tmp_path / "staging").as_uri(), team.secret)
    copied(tmp_path / "staging", team.there)
    with pytest.raises(PlanSignatureError, match=r"was signed for .* or --prune, to go on without"):
        team.push(text(1, 2))
    assert len(team.push(text(1, 2), prune=True).plans) == 1


def test_an_index_of_before_is_signed_again(team: Team, tmp_path: Path) -> None:
    """From a directory that an older kvplan pulled: it has all plans, and each keeps its path."""
    team.push(text(), text(1, 2))
    before = team.pull(tmp_path / "here").plans
    team.alter(lambda one: one.update(format=1))
    with pytest.raises(PlanSignatureError, match="sign it again"):
        push(tmp_path / "here", team.url, team.secret)
    assert push(tmp_path / "here", team.url, team.secret, prune=True).plans == before
    assert team.pull(tmp_path / "here").copied == ()


def test_a_mirror_is_read_by_the_place_that_it_is_of(team: Team, tmp_path: Path) -> None:
    team.push(text())
    copied(team.there, tmp_path / "mirror")
    with pytest.raises(PlanSignatureError, match="give --signed-for") as refused:
        pull(str(tmp_path / "mirror"), tmp_path / "here", team.trusted)
    named = str(refused.value).rpartition("--signed-for ")[2].strip("'")
    for place in (named, named + "/"):
        assert len(pull(str(tmp_path / "mirror"), tmp_path / "here", team.trusted, signed_for=place).plans) == 1
    assert RemoteCatalog(str(tmp_path / "mirror"), tmp_path / "here", team.trusted, signed_for=named).entries()


def test_a_place_has_a_name_of_its_own(team: Team, tmp_path: Path) -> None:
    stored(team.plans, text())
    push(team.plans, team.url, team.secret, signed_for="production")
    with pytest.raises(PlanSignatureError, match="signed for 'production'"):
        team.pull(tmp_path / "here")
    assert pull(team.url, tmp_path / "here", team.trusted, signed_for="production").serial == 1


def test_spellings_of_one_place(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team.push(text())
    monkeypatch.chdir(tmp_path)
    spellings = (team.url + "/", str(team.there), "there", "./there/", str(tmp_path / "keys" / ".." / "there"))
    for number, url in enumerate(spellings):
        assert pull(url, tmp_path / f"here{number}", team.trusted).serial == 1


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://me:secret@Plans.Example/Team/", "http://plans.example/Team"),
        ("http://plans.example/Team", "http://plans.example/Team"),
        ("http://plans.example:8080/Team", "http://plans.example:8080/Team"),
        ("memory://bucket/plans//", "memory://bucket/plans"),
        ("simplecache::memory://bucket/plans", "memory://bucket/plans"),
    ],
)
def test_what_a_url_names(url: str, place: str) -> None:
    assert RemoteFolder(url).place == place


def test_a_signed_text_that_is_no_index(team: Team, tmp_path: Path) -> None:
    team.push(text())
    (team.there / SIGNED).write_bytes(team.secret.sign(SignedIndex("{}", team.url, 2)))
    with pytest.raises(PlanIndexError, match="is no index"):
        team.pull(tmp_path / "here")
    text_of = index.render([replace(team.entries[0], path="../out.py")])
    (team.there / SIGNED).write_bytes(team.secret.sign(SignedIndex(text_of, team.url, 2)))
    with pytest.raises(PlanIndexError, match="none of a plan in the directory"):
        team.pull(tmp_path / "here")


def test_altered_and_missing_plans_are_refused(team: Team, tmp_path: Path) -> None:
    team.push(text(), text(1, 2))
    path = team.there / f"{team.entries[1].sha256}.py"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(PlanSignatureError, match="was altered"):
        team.pull(tmp_path / "here")
    path.unlink()
    with pytest.raises(PlanRemoteError, match="is not there, plan1"):
        team.pull(tmp_path / "here")
    assert contents(tmp_path / "here") == {}
    team.push(text(), text(1, 2))
    assert len(team.pull(tmp_path / "here").copied) == 2


def test_files_that_are_too_large(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team.push(text())
    monkeypatch.setattr(exchange, "LARGEST", 100)
    with pytest.raises(PlanRemoteError, match="has more than 100 bytes"):
        team.pull(tmp_path / "here")


def test_an_older_index_is_refused(team: Team, tmp_path: Path) -> None:
    team.push(text())
    old = (team.there / SIGNED).read_bytes()
    team.push(text(1, 2))
    team.pull(tmp_path / "here")
    (team.there / SIGNED).write_bytes(old)
    with pytest.raises(PlanSignatureError, match="has index 1, index 2 was pulled before"):
        team.pull(tmp_path / "here")


def test_directories_of_others_are_left_alone(team: Team, tmp_path: Path) -> None:
    team.push(text())
    with pytest.raises(PlanIndexError, match="has plans that were compiled there"):
        team.pull(team.plans)
    team.pull(tmp_path / "here")
    with pytest.raises(PlanIndexError, match="has the plans of file://"):
        pull("memory://elsewhere", tmp_path / "here", _signed_elsewhere(team))
    (tmp_path / "here" / RECORD).write_text("?")
    with pytest.raises(PlanIndexError, match=r"pulled.json cannot be read"):
        team.pull(tmp_path / "here")


def _signed_elsewhere(team: Team) -> TrustedKeys:
    push(team.plans, "memory://elsewhere", team.secret)
    return team.trusted


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_pull_that_is_killed_goes_on_later(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """After each file that it puts in its place: what is there is of before until all is of after."""
    team.push(text())
    team.pull(tmp_path / "here")
    old = team.entries[0]
    team.push(text(1, 2), prune=True)
    put = folder.put

    def killed(out: Path, texts: dict[str, str], paths: list[str]) -> None:
        put(out, texts, paths[:done])
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "put", killed)
    with pytest.raises(KeyboardInterrupt):
        team.pull(tmp_path / "here")
    monkeypatch.undo()
    found = Catalog(tmp_path / "here")
    if done < 3:
        assert find(found, old).digest == old.plan
    team.pull(tmp_path / "here")
    assert find(Catalog(tmp_path / "here"), team.entries[0]).digest == team.entries[0].plan


def test_a_pull_that_hangs_keeps_nobody_else_waiting(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two engines of one machine, one of whose connections is dead."""
    team.push(text())
    read, hangs = RemoteFolder.read, threading.Event()

    def hanging(self: RemoteFolder, name: str, most: int) -> bytes | None:
        if name != SIGNED:
            hangs.wait(60)
        return read(self, name, most)

    monkeypatch.setattr(RemoteFolder, "read", hanging)
    with pytest.raises(PlanRemoteError, match="has not answered"):
        pull(team.url, tmp_path / "here", team.trusted, 0.2)
    monkeypatch.undo()
    with folder.locked(tmp_path / "here", 0.0):
        pass
    hangs.set()


def test_another_engine_has_pulled_a_later_index_meanwhile(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody put an old one there."""
    team.push(text())
    brought, here = exchange.fetch_missing, tmp_path / "here"

    def overtaken(*words: Any) -> exchange.Exchanged | None:
        monkeypatch.setattr(exchange, "fetch_missing", brought)
        team.push(text(1, 2), prune=True)
        team.pull(here)
        return brought(*words)

    monkeypatch.setattr(exchange, "fetch_missing", overtaken)
    assert team.pull(here).serial == 2
    assert find(Catalog(here), team.entries[0]).digest == team.entries[0].plan


def test_a_pull_of_what_is_there_writes_nothing(team: Team, tmp_path: Path) -> None:
    team.push(text())
    team.pull(tmp_path / "here")
    before = {path: path.stat().st_ino for path in (tmp_path / "here").iterdir()}
    team.pull(tmp_path / "here")
    assert {path: path.stat().st_ino for path in (tmp_path / "here").iterdir()} == before


def test_an_index_that_is_replaced_while_it_is_read(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP by ranges: the size of before, bytes of after."""
    team.push(text())
    size, read = (team.there / SIGNED).stat().st_size, RemoteFolder.read
    team.push(text(1, 2))

    def torn(self: RemoteFolder, name: str, most: int) -> bytes | None:
        monkeypatch.undo()
        return (read(self, name, most) or b"")[:size]

    monkeypatch.setattr(RemoteFolder, "read", torn)
    assert team.pull(tmp_path / "here").serial == 2


def test_plans_of_one_digest_and_other_bytes_lie_side_by_side(team: Team, tmp_path: Path) -> None:
    """Compilers that write other comments make such files."""
    for number in range(3):
        team.push(text().replace("\n", f"\n# compiler {number}\n", 1))
    assert len(team.pull(tmp_path / "here").plans) == 3


def test_what_a_push_that_was_killed_left_is_written_again(team: Team, tmp_path: Path) -> None:
    """Some stores, like SFTP, do not replace a file as a whole."""
    [one] = stored(team.plans, text())
    team.there.mkdir()
    (team.there / f"{one.sha256}.py").write_text(text()[:100])
    assert len(team.push(text()).copied) == 1
    team.pull(tmp_path / "here")


def test_a_new_key_goes_on_where_the_old_one_was(team: Team, tmp_path: Path) -> None:
    team.push(text())
    public, secret = signing.make(tmp_path / "keys", "new")
    done = push(team.plans, team.url, SigningKey(secret), trusted=team.trusted)
    assert done.serial == 2
    assert pull(team.url, tmp_path / "here", TrustedKeys.load(public)).serial == 2


def test_only_what_is_as_its_index_says_is_signed(team: Team) -> None:
    with pytest.raises(PlanIndexError, match=r"has no index.json"):
        push(team.plans, team.url, team.secret)
    stored(team.plans, text())
    (team.plans / "plan0.py").write_text(text(1, 2))
    with pytest.raises(PlanIndexError, match="is not as its index says"):
        push(team.plans, team.url, team.secret)
    (team.plans / "plan0.py").unlink()
    with pytest.raises(PlanIndexError, match="is not as its index says"):
        push(team.plans, team.url, team.secret)
    assert not team.there.exists()


def test_somebody_else_pushes_at_the_same_time(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    write = RemoteFolder.write

    def overtaken(self: RemoteFolder, name: str, data: bytes) -> None:
        write(self, name, data)
        if name == SIGNED:
            write(self, name, team.secret.sign(SignedIndex("{}", team.url, 1)))

    monkeypatch.setattr(RemoteFolder, "write", overtaken)
    with pytest.raises(PlanRemoteError, match="somebody else pushed"):
        team.push(text())


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PRIVATE KEY-----\n"])
def test_files_that_are_no_keys(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.sign"
    if content is not None:
        path.write_bytes(content)
    for load in (SigningKey, TrustedKeys.load):
        with pytest.raises(KeysError, match=r"is no (secret|public) Ed25519 key|cannot be read"):
            load(path)


def test_keys_of_other_kinds(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "a.sign").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(KeysError, match="no secret Ed25519 key"):
        SigningKey(tmp_path / "a.sign")
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "a.sign.pub").write_bytes(public)
    with pytest.raises(KeysError, match="no public Ed25519 key"):
        TrustedKeys.load(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(KeysError, match="no public key"):
        TrustedKeys.load(tmp_path / "empty")


def test_keys_are_made_once_and_for_their_owner(tmp_path: Path) -> None:
    public, secret = signing.make(tmp_path, "team")
    assert (secret.stat().st_mode & 0o777, public.stat().st_mode & 0o444) == (0o600, 0o444)
    with pytest.raises(KeysError, match="exists"):
        signing.make(tmp_path, "team")
    with pytest.raises(KeysError, match="no name of keys"):
        signing.make(tmp_path, "../team")


def test_a_catalog_of_a_url_fetches_what_is_missing(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_catalogs, "PAUSE", 0.0)
    team.push(text())
    catalog = RemoteCatalog(team.url, tmp_path / "here", team.trusted)
    assert find(catalog, team.entries[0]).digest == team.entries[0].plan
    team.push(text(1, 2))
    assert find(catalog, team.entries[0]).digest == team.entries[0].plan
    with pytest.raises(PlanMissingError, match="and push it to file://"):
        find(catalog, replace(team.entries[0], model_digest="0" * 32))


def test_a_catalog_asks_its_url_once_in_a_while(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team.push(text())
    catalog = RemoteCatalog(team.url, tmp_path / "here", team.trusted)
    team.push(text(1, 2))
    with pytest.raises(PlanMissingError):
        find(catalog, team.entries[0])
    monkeypatch.setattr(catalog, "_rests_until", 0.0)
    assert find(catalog, team.entries[0]).digest == team.entries[0].plan


def test_a_url_that_does_not_answer(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_catalogs, "PAUSE", 0.0)
    with pytest.raises(PlanRemoteError, match="has no"):
        RemoteCatalog(team.url, tmp_path / "here", team.trusted)
    team.push(text())
    RemoteCatalog(team.url, tmp_path / "here", team.trusted)
    (team.there / SIGNED).unlink()
    catalog = RemoteCatalog(team.url, tmp_path / "here", team.trusted)
    assert find(catalog, team.entries[0]).digest == team.entries[0].plan
    with pytest.raises(PlanMissingError, match=r"\(file://.* has no"):
        find(catalog, replace(team.entries[0], model_digest="0" * 32))


def test_a_catalog_says_what_it_does_with_a_signature_that_is_wrong(team: Team, tmp_path: Path) -> None:
    team.push(text())
    team.alter(lambda one: one.update(signature="AAAA"))
    with pytest.raises(PlanSignatureError, match="was altered"):
        RemoteCatalog(team.url, tmp_path / "here", team.trusted)


def test_those_who_wait_for_a_slow_url_do_not_each_wait_for_it_again(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause begins when the URL has not answered in its time."""
    team.push(text())
    catalog = RemoteCatalog(team.url, tmp_path / "here", team.trusted)
    asked, now = [], [1e6]

    def slow(*_: object) -> None:
        asked.append(now[0])
        now[0] += 60
        raise PlanRemoteError("has not answered")

    monkeypatch.setattr(remote_catalogs, "pull", slow)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in range(2):
        catalog.refresh()
    assert len(asked) == 1


def test_those_who_must_not_wait_do_not_wait_for_a_url(team: Team, tmp_path: Path) -> None:
    team.push(text())
    catalog = RemoteCatalog(team.url, tmp_path / "here", team.trusted)
    source = never_waiting(catalog)
    assert source is not catalog
    assert find(source, team.entries[0]).digest == team.entries[0].plan
    with pytest.raises((PlanPendingError, PlanMissingError)):
        find(source, replace(team.entries[0], model_digest="0" * 32))


@pytest.mark.parametrize("url", ["http://me:secret@127.0.0.1:9/plans", "nosuch://me:secret@host/plans"])
def test_credentials_of_a_url_are_not_shown(team: Team, tmp_path: Path, url: str, caplog: Any) -> None:
    with pytest.raises(PlanRemoteError, match=r"://…@") as told:
        RemoteCatalog(url, tmp_path / "here", team.trusted, seconds=5.0)
    assert "plans not pulled" in caplog.text
    assert "secret" not in f"{told.value}{caplog.text}"


def test_a_place_is_the_same_whoever_asks_for_it(team: Team, tmp_path: Path) -> None:
    """And credentials are not written beside the plans."""
    team.push(text())
    with served(partial(Quiet, directory=str(team.there))) as url:
        for user in ("me:secret", "you:secret"):
            pull(url.replace("://", f"://{user}@"), tmp_path / "here", team.trusted, signed_for=team.url)
    assert "secret" not in (tmp_path / "here" / RECORD).read_text()
