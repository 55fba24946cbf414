"""OpenTelemetry spans: one a transfer and one a hold, with its outcome, below its caller's; without it, nothing."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, move
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Request, errors
from kvplan.runtime.ops import tracing
from kvplan.runtime.ops.tracing import RequestSpans


@pytest.fixture
def processing() -> Any:
    """A processor of spans, which does nothing before a test changes it."""
    return pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed").SpanProcessor()


@pytest.fixture
def exported(processing: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The spans that OpenTelemetry's own SDK exports, in memory."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(processing)
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    trace = pytest.importorskip("opentelemetry.trace")
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield memory
    provider.shutdown()


def named(exported: Any, name: str) -> list[Any]:
    return [span for span in exported.get_finished_spans() if span.name == name]


@pytest.fixture(params=["pull", "push"])
def pair(request: pytest.FixtureRequest) -> World:
    return world(Shape(2), Shape(1), mode=request.param)


def test_a_span_a_transfer_and_one_a_hold(pair: World, exported: Any) -> None:
    move(pair, ask(pair, (0, 12), name="r"))
    (span,) = named(exported, "kvplan transfer")
    done = {"worker": 0, "request": "r", "peer": "prefill", "mode": pair.mode, "outcome": "done"}
    told = {name.removeprefix("kvplan."): value for name, value in span.attributes.items()}
    assert told.pop("bytes") > 0
    assert told == done
    assert (span.status.is_ok, span.status.description) == (True, None)
    until(lambda: len(named(exported, "kvplan hold")) == 2)
    holds = named(exported, "kvplan hold")
    assert {hold.attributes["kvplan.worker"] for hold in holds} == {0, 1}
    for hold in holds:
        assert (hold.attributes["kvplan.request"], hold.attributes["kvplan.outcome"]) == ("r", "finished")
        assert hold.start_time <= span.start_time <= span.end_time
        assert hold.start_time <= hold.end_time


def test_a_span_is_below_that_of_its_caller(pair: World, exported: Any) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    with trace.get_tracer("engine").start_as_current_span("request") as parent:
        pair.hold("r")
        transfer = pair.decode[0].submit(ask(pair, (0, 12)), 20)
    transfer.wait()
    until(lambda: len(named(exported, "kvplan hold")) == 2)
    for span in (*named(exported, "kvplan transfer"), *named(exported, "kvplan hold")):
        assert span.parent.span_id == parent.get_span_context().span_id
        assert span.context.trace_id == parent.get_span_context().trace_id


def test_what_fails_says_why(pair: World, exported: Any) -> None:
    request = ask(pair, (0, 12))
    pair.decode[0].submit(Request("bad", (3, 1), request.prefill, request.decode), 20)
    pair.decode[0].submit(None, 20)  # type: ignore[arg-type]
    pair.hold("r")
    pair.decode[0].submit(request, 20).cancel()
    bad, none, cancelled = named(exported, "kvplan transfer")
    for span, outcome, code in ((bad, "failed", "R041"), (none, "failed", "R041"), (cancelled, "cancelled", "R045")):
        assert (span.attributes["kvplan.outcome"], span.attributes["kvplan.code"]) == (outcome, code)
        assert not span.status.is_ok
    assert "no range" in bad.status.description
    assert "kvplan.peer" not in bad.attributes


def test_holds_that_end_otherwise(exported: Any) -> None:
    made = world(Shape(1), Shape(1), lease=0.05)
    made.hold("expired")
    until(lambda: len(named(exported, "kvplan hold")) == 1)
    made.close()
    made = world(Shape(1), Shape(1))
    made.hold("withdrawn", "closed")
    made.prefill[0].withdraw("withdrawn")
    with pytest.raises(errors.HandleError):
        made.prefill[0].hold("closed")
    made.prefill[0].run_once()
    made.close()
    spans = named(exported, "kvplan hold")
    assert [(one.attributes["kvplan.request"], one.attributes["kvplan.outcome"]) for one in spans] == [
        (name, name) for name in ("expired", "withdrawn", "closed")
    ]
    assert [span.status.description for span in spans] == ["blocks freed early", None, None]


@pytest.mark.usefixtures("exported")
def test_spans_are_made_under_no_lock(pair: World, processing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor of spans may ask any worker, from whatever thread."""
    import threading

    asked: list[str] = []

    def asking(span: Any) -> None:
        workers: list[Any] = [*pair.prefill, *pair.decode]
        thread = threading.Thread(target=lambda: [worker.drained() for worker in workers], daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), "a lock is held"
        asked.append(span.name)

    monkeypatch.setattr(processing, "on_end", asking)
    move(pair, ask(pair, (0, 12)))
    until(lambda: sorted(asked) == ["kvplan hold", "kvplan hold", "kvplan transfer"])


@pytest.mark.usefixtures("exported")
@pytest.mark.parametrize("error", [ZeroDivisionError(), asyncio.CancelledError()])
def test_a_processor_that_fails_is_logged_and_no_requests_fault(
    error: BaseException,
    pair: World,
    processing: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(processing, "on_end", fail)
    with caplog.at_level(logging.ERROR, "kvplan.runtime"):
        move(pair, ask(pair, (0, 12)))
    assert any(record.getMessage().startswith("span lost") for record in caplog.records)


def test_without_opentelemetry_nothing_is_noted(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_module", lambda name: None)
    assert tracing.start() is None
    monkeypatch.setattr(tracing, "tell", lambda *_: pytest.fail("there is nothing to tell"))
    move(pair, ask(pair, (0, 12)))
    spans = RequestSpans("hold", {})
    spans.begin("r", tracing.start())
    spans.end("r", "finished")
    spans.tell()


ALONE = {
    "the API alone": """
        from kvplan.runtime.ops import tracing
        from opentelemetry import trace
        before = tracing.start()
        trace.set_tracer_provider(trace.NoOpTracerProvider())
    """,
    "no such provider": """
        import os
        os.environ["OTEL_PYTHON_TRACER_PROVIDER"] = "not_installed"
        from kvplan.runtime.ops import tracing
        before = tracing.start()
    """,
    "no package": """
        import sys
        sys.modules["opentelemetry"] = None
        from kvplan.runtime.ops import tracing
        before = tracing.start()
    """,
}


@pytest.mark.parametrize("name", ALONE)
def test_without_a_provider_of_tracers_nothing_is_noted(name: str) -> None:
    """The API alone, which engines bring along, records nothing: no request pays for its spans."""
    pytest.importorskip("opentelemetry.trace")
    code = dedent(ALONE[name]) + "print(before, tracing.start())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None None\n"
