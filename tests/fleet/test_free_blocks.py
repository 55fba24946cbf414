"""Blocks that are free, as an engine counts them and its record in etcd says, whatever the count is."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tests.fleet.test_records import record
from tests.runtime.helpers.waiting import until

from kvplan.fleet.errors import FleetError
from kvplan.fleet.etcd import EtcdFleet
from kvplan.fleet.records import decoded


class RecordedCluster:
    """An etcd that renews every lease, and whose puts are refused as often as it is said."""

    def __init__(self, refused: int = 0) -> None:
        self.refused, self.asks, self.put = refused, Counter[str](), list[int]()
        self.revoked = threading.Event()

    def asked(self, path: str, words: Mapping[str, Any]) -> dict[str, Any]:
        self.asks[path] += 1
        if path == "/kv/txn":
            self._put(words["failure"][0]["request_put"]["value"])
        return {"ID": "7", "result": {"TTL": "1"}}

    def tried(self, path: str, words: Mapping[str, Any]) -> None:
        assert (path, words) == ("/lease/revoke", {"ID": 7})
        self.revoked.set()

    def end(self) -> None:
        """Nothing."""

    def _put(self, value: str) -> None:
        if self.asks["/kv/txn"] <= self.refused:
            raise FleetError("no leader")
        self.put.append(decoded(base64.b64decode(value), "put").free_blocks)


def fleet_of(cluster: RecordedCluster, monkeypatch: pytest.MonkeyPatch) -> EtcdFleet:
    fleet = EtcdFleet(["http://127.0.0.1:9"], lease=1)
    monkeypatch.setattr(fleet, "_cluster", cluster)
    return fleet


def broken() -> int:
    raise ZeroDivisionError("no pool")


def cancelled() -> int:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("free", "told", "why"),
    [
        (broken, 100, "ZeroDivisionError: no pool"),
        (cancelled, 100, "CancelledError: "),
        (lambda: None, 100, "TypeError: "),
        (lambda: 3.5, 100, "TypeError: "),
        (lambda: -5, 0, ""),
        (lambda: np.int64(7), 7, ""),
    ],
)
def test_a_count_that_is_none_loses_no_record(
    free: Callable[[], Any], told: int, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and the record says what was told before."""
    cluster = RecordedCluster()
    fleet = fleet_of(cluster, monkeypatch)
    fleet.announce(record("p0", free_blocks=100), free)
    until(lambda: len(cluster.put) > 2)
    fleet.close()
    assert set(cluster.put) == {told}
    assert caplog.text.count("free blocks not counted") == bool(why)
    assert why in caplog.text


def test_who_becomes_full_or_has_a_block_again_is_always_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little that is of all blocks; other small changes are not."""
    cluster, counts = RecordedCluster(), [100, 12, 11, 0, 1, 3]
    rest = iter(counts)
    fleet = fleet_of(cluster, monkeypatch)
    fleet.announce(record("p0", free_blocks=100), lambda: next(rest, counts[-1]))
    until(lambda: len(cluster.put) >= len(counts))
    fleet.close()
    assert cluster.put[: len(counts)] == [100, 12, 12, 0, 1, 1]


def test_a_lease_outlives_puts_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one each time would fill etcd with leases; it is given back at the end."""
    cluster = RecordedCluster(refused=3)
    fleet = fleet_of(cluster, monkeypatch)
    fleet.announce(record("p0"))
    until(lambda: cluster.put)
    fleet.close()
    assert cluster.asks["/lease/grant"] == 1
    assert cluster.revoked.is_set()
