"""Counters: exact under threads, of a fixed shape whatever a peer sends, and the same in Prometheus."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import world

from kvplan.runtime import Blocks, Request, Slot, errors
from kvplan.runtime.errors import MetricsMissingError
from kvplan.runtime.ops.metrics import BUCKETS, COUNTERS, GAUGES, HISTOGRAMS, Counters
from kvplan.runtime.ops.prometheus import metrics_page, register


def shape(value: Any) -> Any:
    return {key: shape(one) for key, one in value.items()} if isinstance(value, dict) else None


def test_a_snapshot_is_whole_ordered_and_json() -> None:
    counters = Counters()
    counters.add("requests", outcome="done")
    counters.add("posts", 4)
    counters.add("spans", 10)
    counters.observe("transfer_duration_seconds", 0.003)
    found = counters.snapshot()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    names = [metric.name for metric in COUNTERS]
    others = [metric.name for metric in (*HISTOGRAMS, *GAUGES)]
    assert list(found) == [*names, "merge_ratio", *others]
    assert found["requests"] == {"cancelled": 0, "done": 1, "failed": 0, "timed_out": 0, "other": 0}
    assert (found["posts"], found["merge_ratio"]) == (4, 2.5)


def test_a_peer_cannot_make_the_set_of_numbers_grow() -> None:
    counters = Counters()
    before = shape(counters.snapshot())
    for number in range(1000):
        counters.add("messages", kind=f"hostile {number}\n")
        counters.add("failures", reason=f"R{number + 900}")
    found: Any = counters.snapshot()
    assert shape(found) == before
    assert found["messages"]["other"] == 1000
    assert found["failures"]["other"] == 1000


def test_every_error_has_its_own_reason() -> None:
    counters = Counters()
    kinds = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, errors.KvplanError)]
    for kind in kinds:
        counters.add("failures", reason=kind.code)
    found: Any = counters.snapshot()["failures"]
    assert found == {**{kind.code: 1 for kind in kinds}, "other": 0}


def test_buckets_reach_from_100_microseconds_to_100_seconds() -> None:
    assert (BUCKETS[0], BUCKETS[-1]) == (1e-4, 100.0)
    assert list(BUCKETS) == sorted(set(BUCKETS))
    counters = Counters()
    for seconds in (0.0, 1e-4, 1.0001e-4, 99, 100, 101):
        counters.observe("handshake_duration_seconds", seconds)
    found: Any = counters.snapshot()["handshake_duration_seconds"]
    assert (found["buckets"]["0.0001"], found["buckets"]["0.00025"]) == (2, 3)
    assert (found["buckets"]["50.0"], found["buckets"]["100.0"], found["buckets"]["+Inf"]) == (3, 5, 6)
    assert found["count"] == 6
    assert found["sum"] == pytest.approx(300.00020001)


@pytest.mark.parametrize("seconds", [-5.0, float("-inf"), float("nan"), float("inf"), 1e300])
def test_a_clock_that_jumps_does_not_spoil_the_sum(seconds: float) -> None:
    counters = Counters()
    counters.observe("transfer_duration_seconds", seconds)
    counters.observe("transfer_duration_seconds", 1.0)
    found: Any = counters.snapshot()["transfer_duration_seconds"]
    assert found["count"] == 2
    assert 1.0 <= found["sum"] <= 1e9 + 1
    json.dumps(found, allow_nan=False)


def test_no_count_is_lost_between_threads() -> None:
    counters, rounds, threads = Counters(), 2000, 8

    def work(number: int) -> None:
        for _ in range(rounds):
            counters.add("moved_bytes", 3, direction=("read", "write")[number % 2])
            counters.observe("transfer_duration_seconds", 0.5)
            if number == 0:
                counters.snapshot()

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    found: Any = counters.snapshot()
    assert found["moved_bytes"] == {"read": 3 * rounds * 4, "write": 3 * rounds * 4, "other": 0}
    assert (found["transfer_duration_seconds"]["count"], found["transfer_duration_seconds"]["sum"]) == (16000, 8000.0)


def test_gauges_are_summed_and_can_be_taken_back() -> None:
    counters = Counters()
    first, _ = counters.gauge("peers", lambda: 2), counters.gauge("peers", lambda: 3)
    assert counters.snapshot()["peers"] == 5
    first()
    first()
    assert counters.snapshot()["peers"] == 3


def test_a_gauge_that_fails_is_unknown_and_spoils_nothing_else() -> None:
    counters = Counters()
    counters.gauge("peers", lambda: 1 // 0)
    counters.gauge("holds", lambda: 7)
    assert (counters.snapshot()["peers"], counters.snapshot()["holds"]) == (None, 7)


def test_a_gauge_may_wait_for_a_lock_whose_owner_counts() -> None:
    """A worker counts while it holds its lock, and its gauges take that lock: neither waits for the other forever."""
    counters, lock, reading = Counters(), threading.Lock(), threading.Event()

    def peers() -> int:
        reading.set()
        with lock:
            return 1

    counters.gauge("peers", peers)
    with lock:
        thread = threading.Thread(target=counters.snapshot, daemon=True)
        thread.start()
        assert reading.wait(10)
        counting = threading.Thread(target=counters.add, args=("posts",), daemon=True)
        counting.start()
        counting.join(10)
        assert not counting.is_alive()
    thread.join(10)
    assert not thread.is_alive()


def numbers(counters: Counters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    client = pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    registry = client.CollectorRegistry()
    register(counters, registry)
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {(sample.name, tuple(sample.labels.items())): sample.value for sample in samples}


def test_prometheus_sees_the_snapshot() -> None:
    counters = Counters()
    counters.add("requests", 3, outcome="failed")
    counters.add("failures", 3, reason="R043")
    counters.add("posts", 4)
    counters.add("spans", 8)
    counters.observe("transfer_duration_seconds", 0.3)
    counters.gauge("peers", lambda: 2)
    counters.gauge("holds", lambda: 1 // 0)
    found = numbers(counters)
    assert found["kvplan_requests_total", (("outcome", "failed"),)] == 3
    assert found["kvplan_requests_total", (("outcome", "done"),)] == 0
    assert found["kvplan_failures_total", (("reason", "R043"),)] == 3
    assert (found["kvplan_merge_ratio", ()], found["kvplan_peers", ()]) == (2, 2)
    assert ("kvplan_holds", ()) not in found
    assert found["kvplan_transfer_duration_seconds_bucket", (("le", "0.25"),)] == 0
    assert found["kvplan_transfer_duration_seconds_bucket", (("le", "0.5"),)] == 1
    assert found["kvplan_transfer_duration_seconds_count", ()] == 1
    assert all(name.startswith("kvplan_") for name, _ in found)


def test_help_says_the_unit() -> None:
    client = pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    registry = client.CollectorRegistry()
    register(Counters(), registry)
    for family in registry.collect():
        assert family.documentation.endswith(".")
        for unit in ("bytes", "seconds"):
            assert unit not in family.name or unit in family.documentation.split(", in ")[-1]


def test_two_sets_of_counters_in_one_registry_are_refused() -> None:
    client = pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    registry = client.CollectorRegistry(auto_describe=True)
    register(Counters(), registry)
    with pytest.raises(ValueError, match="kvplan_requests"):
        register(Counters(), registry)


def test_without_prometheus_client_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prometheus_client", "prometheus_client.core"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (register, metrics_page):
        with pytest.raises(MetricsMissingError, match=r"pip install 'kvplan\[metrics\]'"):
            call(Counters())


def test_counting_needs_nothing_but_python() -> None:
    code = (
        "import sys, kvplan.runtime.ops.metrics, kvplan.runtime.ops.logs, kvplan.runtime.ops.prometheus;"
        "print({'numpy', 'prometheus_client', 'zmq', 'msgspec', 'torch', 'nixl'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_posts_of_a_request_that_is_given_up_count() -> None:
    """Two requests are posted as one transfer, whose descriptors count for the first one."""
    made = world(Shape(1), Shape(1))
    source, target = made.prefill[0], made.decode[0]
    tables: list[dict[str, Blocks | Slot]]
    tables = [{"kv": Blocks(0, [number]), "state": Slot(number, 4)} for number in range(2)]
    for number, table in enumerate(tables):
        source.hold(f"r{number}", table)
    made.hub.frozen.add(source.inspect().transport)
    first, second = (target.submit(Request(f"r{n}", (0, 4), one, one), 50) for n, one in enumerate(tables))
    until(lambda: target.inspect().bytes_in_flight and first.descriptors, made.poll, target.run_once)
    assert second.descriptors == 0
    first.cancel()
    made.hub.frozen.clear()
    until(lambda: second.ended, made.poll, target.run_once)
    assert (second.state, target.counters.snapshot()["posts"]) == ("done", first.descriptors)
