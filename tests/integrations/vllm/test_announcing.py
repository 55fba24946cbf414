"""An engine of vLLM announces itself in a fleet, and no etcd delays or fails it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.vllm.requests import facts
from tests.runtime.helpers.waiting import until

from kvplan.bench.etcd_server import ETCD, EtcdServer
from kvplan.fleet.errors import FleetError
from kvplan.fleet.etcd import EtcdFleet
from kvplan.fleet.records import EngineRecord, EngineRole, decoded, encoded
from kvplan.integrations.shared.config import ConnectorConfig, read_config
from kvplan.integrations.vllm import announcing
from kvplan.integrations.vllm.announcing import FleetAnnouncer, engine_record, engine_role
from kvplan.integrations.vllm.metadata import WorkerFacts
from kvplan.runtime.control.card import PROTOCOL

NOWHERE = "http://127.0.0.1:9"


def worker(number: int, **more: Any) -> WorkerFacts:
    return replace(
        facts(number, key="public"),
        model="m",
        model_digest="0" * 32,
        side="side",
        side_key="tp=2",
        revision="9f2e",
        **more,
    )


def config(url: str = "") -> ConnectorConfig:
    return read_config({"plans": "plans", "insecure": True, **({"fleet_url": url} if url else {})})


def announce(announcer: FleetAnnouncer, name: str = "e") -> None:
    announcer.announce(name, f"{name}.1", EngineRole.PREFILL, [worker(1), worker(0)], 512)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    if ETCD is None:
        pytest.skip("no etcd (Debian: etcd-server)")
    made = EtcdServer(tmp_path)
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("prefills", "decodes", "role"), [(True, True, "both"), (True, False, "prefill"), (False, True, "decode")]
)
def test_roles(prefills: bool, decodes: bool, role: str) -> None:
    assert engine_role(prefills, decodes) == role


def test_one_record_has_the_addresses_of_all_workers_in_order() -> None:
    record = engine_record("e", "e.1", EngineRole.PREFILL, [worker(1), worker(0)], 512)
    assert record == EngineRecord(
        name="e", run="e.1", role=EngineRole.PREFILL, model="m", model_digest="0" * 32, side="side", side_key="tp=2",
        addresses=("tcp://127.0.0.1:7600", "tcp://127.0.0.1:7601"), key="public", revision="9f2e", protocol=PROTOCOL,
        free_blocks=512,
        started=record.started,
    )  # fmt: skip
    assert decoded(encoded(record), "it") == record
    assert engine_record("e", "r", EngineRole.DECODE, [worker(0, address="")], 1).addresses == ()


def test_nothing_happens_without_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "EtcdFleet", None)
    threads = threading.active_count()
    announcer = FleetAnnouncer(config())
    announcer.count(lambda: 1 // 0)
    announce(announcer)
    announcer.close()
    assert threading.active_count() == threads


def test_an_engine_is_seen_with_its_free_blocks_until_it_ends(server: EtcdServer) -> None:
    free = [512]
    announcer, watcher = FleetAnnouncer(config(f"{NOWHERE},{server.url}")), EtcdFleet([server.url])
    announcer.count(lambda: free[0])
    announce(announcer)
    until(lambda: set(watcher.engines()) == {"e"})
    assert watcher.engines()["e"].free_blocks == 512
    free[0] = 8
    until(lambda: watcher.engines()["e"].free_blocks == 8)
    announcer.close()
    until(lambda: not watcher.engines())
    watcher.close()


def test_an_etcd_that_is_away_is_logged_once_and_asked_again(
    server: EtcdServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.kill()
    announcer = FleetAnnouncer(config(server.url))
    tried = counted(announcer, monkeypatch)
    announce(announcer)
    until(lambda: tried() > 3)
    assert caplog.text.count("fleet not told") == 1
    server.start()
    watcher = EtcdFleet([server.url])
    until(lambda: set(watcher.engines()) == {"e"})
    announcer.close()
    watcher.close()


def counted(announcer: FleetAnnouncer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The number of requests to etcd."""
    assert announcer._fleet is not None
    cluster, count = announcer._fleet._cluster, [0]
    asked = cluster.asked

    def ask(*words: object) -> object:
        count[0] += 1
        return asked(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster, "asked", ask)
    return lambda: count[0]


def test_an_etcd_that_stands_still_keeps_no_engine_from_ending(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine waits for the configured time, not until etcd answers."""
    monkeypatch.setattr(announcing, "PATIENCE", 0.01)
    announcer = FleetAnnouncer(config(server.url))
    server.freeze()
    announce(announcer)
    assert announcer._fleet is not None
    until(announcer._fleet._keeper.is_alive)
    announcer.close()
    server.freeze(False)
    announcer._fleet._keeper.join()


def test_what_cannot_be_kept_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    announcer = FleetAnnouncer(config(NOWHERE))
    announce(announcer, "e" * 300)
    assert "fleet not told" in caplog.text
    announcer.close()


@pytest.mark.parametrize("url", ["etcd:2379", "http://", "http://a,b"])
def test_urls_that_are_none_stop_the_engine(url: str) -> None:
    with pytest.raises(FleetError, match="URL of etcd"):
        FleetAnnouncer(config(url))
