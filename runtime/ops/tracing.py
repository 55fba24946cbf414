"""OpenTelemetry spans of requests, if its API is installed (the extra `otel`).

The begin of a span is only noted; the span itself is made when the request has ended. Processors and samplers are
foreign code, so they run after a worker's step, and may fail.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kvplan.runtime.errors import EXITS
from kvplan.runtime.ops import logs

SCOPE = "kvplan.runtime"
Attributes = Mapping[str, str | int]


class SpanStart(NamedTuple):
    """The begin of a request, in nanoseconds since 1970, and the context of its caller, whose span is the parent."""

    nanoseconds: int
    context: Any


def load() -> None:
    """Import OpenTelemetry, if it is installed, so that the first request does not wait for it."""
    for name in ("context", "trace"):
        _module(name)


def start() -> SpanStart | None:
    """Return the start of a request that begins now, in the caller's context, or None if spans are not recorded."""
    return SpanStart(time.time_ns(), _module("context").get_current()) if _recorded() else None


def _recorded() -> bool:
    """Return whether this process has a tracer provider that records spans."""
    if (trace := _module("trace")) is None:
        return False
    try:
        provider = trace.get_tracer_provider()
    except EXITS:
        raise
    except BaseException:
        # Environment variables may name a provider that cannot be loaded.
        _tell_once()
        return False
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


@functools.cache
def _tell_once() -> None:
    logs.failure("spans lost")


def tell(
    name: str, began: SpanStart, outcome: str, problem: str, attributes: Attributes, ended: int | None = None
) -> None:
    """Make the span of a request that `ended` at that time in nanoseconds, None for now.

    `problem` is the text of its error, or empty. Raises only exceptions that end a program. Call this outside turns.
    """
    try:
        trace = _module("trace")
        told = {f"kvplan.{key}": value for key, value in {**attributes, "outcome": outcome}.items()}
        tracer = trace.get_tracer(SCOPE)
        span = tracer.start_span(name, began.context, start_time=began.nanoseconds, attributes=told)
        if problem:
            span.set_status(trace.Status(trace.StatusCode.ERROR, problem[: logs.LONGEST]))
        span.end(ended or time.time_ns())
    except EXITS:
        raise
    except BaseException:
        logs.failure("span lost", span=name)


class RequestSpans:
    """Spans of requests that begin and end in a worker's turns. `tell` makes them after the turn.

    All have the same name and attributes, and the id of their request.
    """

    def __init__(self, name: str, attributes: Attributes) -> None:
        self._name, self._attributes = name, attributes
        self._begun: dict[str, SpanStart] = {}
        self._ended = deque[tuple[str, SpanStart, str, str, int]]()

    def begin(self, request: str, began: SpanStart | None) -> None:
        if began is not None:
            self._begun[request] = began

    def end(self, request: str, outcome: str, problem: str = "") -> None:
        """End the span of a request, if it has begun."""
        if (began := self._begun.pop(request, None)) is not None:
            self._ended.append((request, began, outcome, problem, time.time_ns()))

    def end_all(self, outcome: str) -> None:
        for request in list(self._begun):
            self.end(request, outcome)

    def tell(self) -> None:
        """Make the spans that have ended. Call this outside turns."""
        # Another thread may take the last one.
        with suppress(IndexError):
            while self._ended:
                request, began, outcome, problem, ended = self._ended.popleft()
                tell(self._name, began, outcome, problem, {**self._attributes, "request": request}, ended)


@functools.cache
def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"opentelemetry.{name}")
    except ImportError:
        return None
