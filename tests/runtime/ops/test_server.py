"""Operators ask over HTTP for metrics, health and readiness, with reasons and without waiting for a worker."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from tests.runtime.helpers.made import end_thread
from tests.runtime.helpers.plans import Model, Shape, plan
from tests.runtime.helpers.worlds import PREFILL, World, memory, world

from kvplan.runtime import Counters, InMemory, Plain, PrefillWorker, owner, views
from kvplan.runtime.errors import MetricsAddressError
from kvplan.runtime.ops import logs, server
from kvplan.runtime.ops.server import OpsServer, serve
from kvplan.runtime.transport.inmemory import Hub


@pytest.fixture
def pair() -> World:
    return world(Shape(1), Shape(1))


@pytest.fixture
def served(pair: World) -> Iterator[OpsServer]:
    made = serve(workers=[*pair.prefill, *pair.decode])
    yield made
    made.close()


def get(served: OpsServer, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{served.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_served_and_the_port_is_given_back() -> None:
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    counters = Counters()
    served = serve(counters)
    try:
        counters.add("posts", 41)
        status, text = get(served, "/metrics")
        assert status == 200
        assert "\nkvplan_posts_total 41.0\n" in text
        assert "python_gc" not in text
        with pytest.raises(MetricsAddressError, match=f"127.0.0.1:{served.port}"):
            serve(counters, served.port)
    finally:
        served.close()
        served.close()
    serve(counters, served.port).close()


@pytest.mark.parametrize("port", [-1, 70000])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(MetricsAddressError):
        serve(port=port)


def test_workers_that_are_well(served: OpsServer) -> None:
    assert get(served, "/healthz") == get(served, "/readyz") == (200, "ok\n")


def test_other_paths(served: OpsServer) -> None:
    for path in ("/", "/metrics", "/healthz/x"):
        status, text = get(served, path)
        assert (status, "/readyz" in text) == (404, True)


def test_a_worker_that_drains_is_healthy_and_not_ready(pair: World, served: OpsServer) -> None:
    pair.decode[0].drain(10)
    assert get(served, "/healthz") == (200, "ok\n")
    assert get(served, "/readyz") == (503, "decode worker 0 drains\n")


def test_closed_workers_are_neither(pair: World, served: OpsServer) -> None:
    pair.prefill[0].close()
    for path in ("/healthz", "/readyz"):
        assert get(served, path) == (503, "prefill worker 0 is closed\n")


def test_an_engine_that_was_not_announced_is_not_ready() -> None:
    made = plan(Shape(1), Shape(1))
    pool = views(made.prefill, 0, memory(Shape(1), Model(), 0))
    worker = PrefillWorker(made, 0, pool, InMemory(Hub()), identity=PREFILL, keys=Plain(), start=False)
    assert worker.unhealthy() == ()
    assert worker.unready() == ("prefill worker 0 has not been told where its engine's workers answer",)
    worker.announce([worker.address])
    assert worker.unready() == ()
    worker.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_polling_thread_that_ended_is_unhealthy(
    pair: World, served: OpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.decode[0].start()
    (thread,) = (one for one in threading.enumerate() if one.name == "kvplan-decode-0")
    assert pair.decode[0].unhealthy() == ()
    end_thread(monkeypatch, thread)
    thread.join(10)
    assert get(served, "/healthz") == (503, "decode worker 0 is polled by a thread that has ended\n")


def test_a_polling_thread_that_is_stuck_is_unhealthy_and_probes_do_not_wait_for_it(
    pair: World, served: OpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, go_on, waits = pair.decode[0], threading.Event(), threading.Event()

    def progress() -> int:
        waits.set()
        go_on.wait(30)
        return 0

    monkeypatch.setattr(pair.transport(worker), "progress", progress)
    worker.start()
    try:
        assert waits.wait(10)
        assert get(served, "/healthz")[0] == 200
        monkeypatch.setattr(owner, "STUCK", 0.0)
        status, text = get(served, "/healthz")
        assert (status, "decode worker 0 is polled by a thread that has been stuck for " in text) == (503, True)
    finally:
        go_on.set()


def test_a_client_that_says_nothing_is_a_line_in_the_log(
    served: OpsServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And no traceback on the engine's stderr."""
    told = threading.Event()
    monkeypatch.setattr(logs, "event", lambda level, what, **_: told.set() if "ended" in what else None)
    monkeypatch.setattr(server.OpsHandler, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", served.port)):
        assert told.wait(20)
    assert "Traceback" not in capfd.readouterr().err
