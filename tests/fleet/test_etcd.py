"""Engines announce themselves in a real etcd, which restarts, freezes and forgets."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fleet.test_records import record
from tests.runtime.helpers.waiting import until
from tests.slowness import slowness

from kvplan.bench.etcd_server import ETCD, EtcdServer
from kvplan.fleet import etcd
from kvplan.fleet.errors import FleetError
from kvplan.fleet.etcd import PREFIX, Certificates, Cluster, EtcdFleet

pytestmark = pytest.mark.skipif(ETCD is None, reason="no etcd (Debian: etcd-server)")
LEASE = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    made = EtcdServer(tmp_path_factory.mktemp("etcd"))
    yield made
    made.kill()


@pytest.fixture
def fleet(server: EtcdServer, request: pytest.FixtureRequest) -> Iterator[Callable[[], EtcdFleet]]:
    """Members of a fleet of this test alone."""
    made: list[EtcdFleet] = []

    def make() -> EtcdFleet:
        made.append(EtcdFleet([server.url], f"{PREFIX}{request.node.name}/", LEASE))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_who_announces_itself_is_seen_and_gone_when_it_says_so(fleet: Callable[[], EtcdFleet]) -> None:
    one, other = fleet(), fleet()
    assert one.age() == float("inf") or one.engines() == {}
    one.announce(record("p0"))
    other.announce(record("d0"))
    until(lambda: set(one.engines()) == set(other.engines()) == {"p0", "d0"})
    assert other.engines()["p0"] == record("p0")
    one.announce(record("p0", free_blocks=7))
    until(lambda: other.engines()["p0"].free_blocks == 7)
    one.close()
    until(lambda: set(other.engines()) == {"d0"})
    assert other.age() < 60


def test_records_outlive_their_lease_as_long_as_their_engine_lives(fleet: Callable[[], EtcdFleet]) -> None:
    one, other = fleet(), fleet()
    one.announce(record("p0"))
    until(lambda: other.engines())
    end = time.monotonic() + 2.5 * LEASE
    while time.monotonic() < end:
        assert set(other.engines()) == {"p0"} or slowness() > 2
        time.sleep(0.05)
    until(lambda: set(other.engines()) == {"p0"})


def test_an_engine_that_stands_still_is_gone_after_its_lease(
    fleet: Callable[[], EtcdFleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = fleet(), fleet()
    one.announce(record("p0"))
    until(lambda: other.engines())
    stands = threading.Event()
    monkeypatch.setattr(one._cluster, "asked", lambda *_: stands.wait() and {})
    until(lambda: not other.engines())
    stands.set()


@pytest.mark.parametrize("value", [None, b"{}"])
def test_a_record_that_somebody_deletes_or_alters_is_put_back(
    fleet: Callable[[], EtcdFleet], server: EtcdServer, value: bytes | None
) -> None:
    """Its lease lives on, and would say nothing of it."""
    one, other = fleet(), fleet()
    one.announce(record("p0"))
    until(lambda: other.engines())
    key = base64.b64encode(f"{one._prefix}p0/p0.1".encode()).decode()
    hand = Cluster([server.url], Certificates(), 5)
    if value is None:
        done = hand.asked("/kv/deleterange", {"key": key})
    else:
        done = hand.asked("/kv/put", {"key": key, "value": base64.b64encode(value).decode()})
    revision = int(done["header"]["revision"])

    def put_back() -> bool:
        kept = hand.asked("/kv/range", one._range()).get("kvs", [])
        return [int(pair["mod_revision"]) > revision for pair in kept] == [True]

    until(put_back)
    until(lambda: other.engines() == {"p0": record("p0")})
    one.close()
    until(lambda: not other.engines())


def test_free_blocks_are_told_where_they_change_by_a_lot(
    fleet: Callable[[], EtcdFleet], server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An etcd keeps all that it was ever told: what hardly differs is not put."""
    one, other, free, asked = fleet(), fleet(), [800], threading.Event()

    def count() -> int:
        asked.set()
        return free[0]

    one.announce(record("p0", free_blocks=800), count)
    until(lambda: other.engines())
    free[0] = 701
    asked.clear()
    until(asked.is_set)
    free[0] = 0
    until(lambda: other.engines()["p0"].free_blocks != 800)
    assert other.engines()["p0"].free_blocks == 0
    [pair] = Cluster([server.url], Certificates(), 5).asked("/kv/range", one._range())["kvs"]
    assert pair["version"] == "2", "once at first, once when it had changed by a lot"


def test_of_two_runs_the_later_counts(fleet: Callable[[], EtcdFleet]) -> None:
    first, second, watcher = fleet(), fleet(), fleet()
    first.announce(record("p0", run="1"))
    until(lambda: watcher.engines())
    second.announce(record("p0", run="0"))
    until(lambda: watcher.engines()["p0"].run == "0")
    second.close()
    until(lambda: watcher.engines()["p0"].run == "1")


def test_a_run_that_comes_back_is_not_the_later_one(fleet: Callable[[], EtcdFleet]) -> None:
    """It was frozen beyond its lease, and puts its record again after its successor."""
    old, new, watcher = fleet(), fleet(), fleet()
    new.announce(record("p0", run="new", started=2.0))
    until(lambda: watcher.engines())
    old.announce(record("p0", run="old", started=1.0))
    old.announce(record("p0", run="old", started=1.0, free_blocks=5))
    until(lambda: len(watcher._seen) == 2)
    assert watcher.engines()["p0"].run == "new"


def test_a_process_is_one_engine(fleet: Callable[[], EtcdFleet]) -> None:
    one = fleet()
    one.announce(record("p0"))
    with pytest.raises(FleetError, match="announced as p0 already"):
        one.announce(record("p1"))
    with pytest.raises(FleetError, match="at most"):
        fleet().announce(record("p0", addresses=("tcp://10.0.0.1:1234" * 10,) * 2000))


def test_what_is_closed_announces_nothing(fleet: Callable[[], EtcdFleet]) -> None:
    one = fleet()
    one.close()
    with pytest.raises(FleetError, match="make another"):
        one.announce(record("p0"))


def test_names_that_are_alike_with_their_runs_are_two(fleet: Callable[[], EtcdFleet]) -> None:
    one, other = fleet(), fleet()
    one.announce(record("p", run="0/1"))
    other.announce(record("p/0", run="1"))
    until(lambda: set(one.engines()) == {"p", "p/0"})


@pytest.mark.parametrize("prefix", ["", "/kvplan/engines"])
def test_prefixes_that_others_would_share(prefix: str) -> None:
    with pytest.raises(FleetError, match="end it with /"):
        EtcdFleet(["http://127.0.0.1:9"], prefix)


def test_what_is_no_record_is_left_out(fleet: Callable[[], EtcdFleet], server: EtcdServer) -> None:
    one = fleet()
    cluster = Cluster([server.url], Certificates(), 5)
    until(lambda: one.age() < 60)

    def put(key: str, value: bytes) -> None:
        key = base64.b64encode(f"{one._prefix}{key}".encode()).decode()
        cluster.asked("/kv/put", {"key": key, "value": base64.b64encode(value).decode()})

    for number, value in enumerate([b"", b"\xff", b"{}", b"[" * 10_000, b"null"]):
        put(f"bad/{number}", value)
    one.announce(record("p0"))
    until(lambda: set(one.engines()) == {"p0"})
    late = fleet()
    until(lambda: set(late.engines()) == {"p0"})


@pytest.mark.parametrize("kept", [True, False])
def test_an_etcd_that_is_killed_and_comes_back(tmp_path: Path, kept: bool) -> None:
    """With what it knew, or with nothing: everybody is seen again, and was never lost to who watches."""
    server = EtcdServer(tmp_path)
    one, other = (EtcdFleet([server.url], lease=LEASE) for _ in range(2))
    try:
        one.announce(record("p0"))
        until(lambda: set(other.engines()) == {"p0"})
        server.kill()
        until(lambda: other.age() > LEASE)
        assert set(other.engines()) == {"p0"}, "what etcd cannot tell now stays"
        if not kept:
            (tmp_path / "etcd").rename(tmp_path / "forgotten")
        server.start()
        late = EtcdFleet([server.url], lease=LEASE)
        until(lambda: set(late.engines()) == {"p0"} and other.age() < LEASE)
        until(lambda: set(other.engines()) == {"p0"})
        late.close()
    finally:
        one.close()
        other.close()
        server.kill()


def test_an_etcd_that_is_frozen(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path)
    one, other = (EtcdFleet([server.url], lease=LEASE) for _ in range(2))
    try:
        one.announce(record("p0"))
        until(lambda: set(other.engines()) == {"p0"})
        server.freeze()
        one.announce(record("p0", free_blocks=3))
        until(lambda: other.age() > 2 * LEASE)
        assert set(other.engines()) == {"p0"}
        server.freeze(False)
        until(lambda: other.engines().get("p0") == record("p0", free_blocks=3))
    finally:
        one.close()
        other.close()
        server.kill()


def test_who_closes_waits_no_longer_than_it_says(server: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an etcd that does not answer; its thread goes on alone, and ends."""
    one, stands = EtcdFleet([server.url], f"{PREFIX}slow/", LEASE), threading.Event()
    asked = one._cluster.asked
    monkeypatch.setattr(one._cluster, "asked", lambda *words: stands.wait() and asked(*words))
    one.announce(record("p0"))
    one.close(0.01)
    assert one._keeper.is_alive()
    stands.set()
    one._keeper.join()


def test_who_closes_while_it_is_asked_for_free_blocks_is_gone(fleet: Callable[[], EtcdFleet]) -> None:
    one, other, asked = fleet(), fleet(), list[str]()

    def free() -> int:
        until(lambda: "p0" in other.engines())
        one.close()
        asked.append("closed")
        return 5

    one.announce(record("p0"))
    until(lambda: "p0" in other.engines())
    one.announce(record("p0", free_blocks=7), free)
    until(lambda: not other.engines())
    assert (asked, one._cluster._ended) == (["closed"], True)


def test_the_next_member_is_asked_where_one_does_not_answer(server: EtcdServer) -> None:
    one = EtcdFleet(["http://127.0.0.1:9", server.url], f"{PREFIX}members/", LEASE)
    one.announce(record("p0"))
    until(lambda: set(one.engines()) == {"p0"})
    one.close()


@pytest.mark.parametrize("urls", [[], ["etcd:2379"], ["http://"], ["http://a:b"], ["http://a/x"], ["ftp://a"]])
def test_urls_that_are_none(urls: list[str]) -> None:
    with pytest.raises(FleetError, match="URL of etcd"):
        EtcdFleet(urls)


@pytest.mark.parametrize("url", ["http://me:secret@etcd:2379", "http://me:secret/@etcd", "https://secret@etcd"])
def test_credentials_are_neither_used_nor_shown(url: str) -> None:
    with pytest.raises(FleetError, match="give certificates") as told:
        EtcdFleet([url])
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("answer", [[], {}, {"header": {}}, {"header": {"revision": "x"}}, {"ID": None}])
def test_answers_that_are_not_etcds_end_no_thread(server: EtcdServer, answer: Any, monkeypatch: Any) -> None:
    one, asked = EtcdFleet([server.url], f"{PREFIX}answers/", LEASE), threading.Event()
    real = etcd._within

    def said(*_: Any) -> bytes:
        asked.set()
        return json.dumps(answer).encode()

    monkeypatch.setattr(etcd, "_within", said)
    one.announce(record("p0"))
    assert asked.wait(60 * slowness())
    monkeypatch.setattr(etcd, "_within", real)
    until(lambda: set(one.engines()) == {"p0"})
    one.close()


def test_a_long_record_is_read_in_time_that_grows_with_its_length(fleet: Callable[[], EtcdFleet]) -> None:
    """Quadratic work on the answer of a watch would take minutes."""
    one, other = fleet(), fleet()
    until(lambda: other.age() < 60)
    one.announce(record("p0", addresses=("tcp://10.0.0.1:" + "1" * 180,) * 1000))
    until(lambda: other.engines(), seconds=10)


class Gateway(BaseHTTPRequestHandler):
    """Answers what there is, and refuses to be watched."""

    watched, status, body = 0, 503, b""

    def log_message(self, *args: object) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        watch = self.path.endswith("/watch")
        type(self).watched += watch
        self.send_response(self.status if watch else 200)
        self.end_headers()
        self.wfile.write(self.body if watch else b'{"header": {"revision": "5"}}')

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"etcdserver": "3.4.23", "etcdcluster": "3.4.0"}')


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (503, b"", "503"),
        (200, b"", ""),
        (200, b'{"result": {"canceled": true, "cancel_reason": "permission denied"}}\n', "permission denied"),
        (200, b'{"error": {"message": "no token"}}\n', "no token"),
    ],
)
def test_a_watch_that_ends_at_once_is_not_asked_for_without_a_pause(
    status: int, body: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused, it is said why, once."""
    answers = type("Answers", (Gateway,), {"status": status, "body": body})
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        one = EtcdFleet([f"http://127.0.0.1:{server.server_port}"])
        until(lambda: one.age() < 60 and answers.watched)  # type: ignore[attr-defined]
        until(lambda: problem in one.problem())
        time.sleep(2.5)
        one.close()
        server.shutdown()
    said = [line for line in caplog.text.splitlines() if "fleet not heard" in line]
    # On a busy machine this server may miss a question, too; what it answers is news again then.
    missed = sum("does not answer" in line for line in said)
    assert bool(problem) <= len(said) - missed <= bool(problem) * (1 + missed)
    assert answers.watched < 30  # type: ignore[attr-defined]


def dribbling(server: socket.socket, ended: threading.Event) -> None:
    """Begin an answer to each who asks, and say one byte of it after the other until the end."""
    while not ended.is_set():
        connection, _ = server.accept()
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with suppress(OSError):
            while not ended.wait(0.05):
                connection.sendall(b" ")
        connection.close()


def test_a_member_whose_answer_dribbles_in_is_not_waited_for(server: EtcdServer) -> None:
    """Each byte is in time, the whole never: the next member is asked."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as bad:
        threading.Thread(target=dribbling, args=(bad, ended), daemon=True).start()
        slow = f"http://127.0.0.1:{bad.getsockname()[1]}"
        asked = Cluster([slow, server.url], Certificates(), 0.5).asked("/kv/range", {"key": "AA=="})
        ended.set()
    assert asked["header"]["cluster_id"]


def test_what_etcd_says_of_a_question_is_told(server: EtcdServer) -> None:
    with pytest.raises(FleetError, match=r"400 .*key is not provided"):
        Cluster([server.url], Certificates(), 5).asked("/kv/range", {})


def test_an_answer_that_is_too_long_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "LARGEST", 1 << 10)
    response = SimpleNamespace(read1=lambda *_, **__: b" " * 600)
    with pytest.raises(ValueError, match="more than 1024 bytes"):
        etcd._within(60, response)


def test_two_threads_that_one_member_fails_go_on_to_the_next() -> None:
    cluster = Cluster(["http://127.0.0.1:9", "http://127.0.0.1:10"], Certificates(), 1)
    for _ in range(2):
        cluster._next(0)
    assert cluster._turn == 1
