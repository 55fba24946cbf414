"""OpenTelemetry spans of requests, where its API is there (the extra `otel`); otherwise nothing.

What begins a span is noted, and the span itself is made when it ends: processors and samplers are foreign code, which
runs after a worker's step and may fail as it likes.
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
    """When a request began, in nanoseconds since 1970, and the context of its caller, whose span is the parent."""

    nanoseconds: int
    context: Any


def load() -> None:
    """Import OpenTelemetry where it is there: when a worker is made, and not with its first request."""
    for name in ("context", "trace"):
        _module(name)


def start() -> SpanStart | None:
    """To be called where a request begins, in the caller's context; None where nobody takes spans."""
    return SpanStart(time.time_ns(), _module("context").get_current()) if _taken() else None


def _taken() -> bool:
    """Whether this process has a provider of tracers by now, whose spans somebody may see."""
    if (trace := _module("trace")) is None:
        return False
    try:
        provider = trace.get_tracer_provider()
    except EXITS:
        raise
    except BaseException:
        # The surroundings may name one that cannot be loaded.
        _tell_once()
        return False
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


@functools.cache
def _tell_once() -> None:
    logs.failure("spans lost")


def tell(
    name: str, began: SpanStart, outcome: str, problem: str, attributes: Attributes, ended: int | None = None
) -> None:
    """Make the span of a request that has `ended` at that time in nanoseconds, None for now.

    `problem` says what was wrong, empty where nothing was. Raises only what ends a program. Not within a turn.
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
    """Spans of the requests of a worker that begin and end in its turns; `tell` is called after them.

    All have this name and these attributes, and their request.
    """

    def __init__(self, name: str, attributes: Attributes) -> None:
        self._name, self._attributes = name, attributes
        self._begun: dict[str, SpanStart] = {}
        self._ended = deque[tuple[str, SpanStart, str, str, int]]()

    def begin(self, request: str, began: SpanStart | None) -> None:
        if began is not None:
            self._begun[request] = began

    def end(self, request: str, outcome: str, problem: str = "") -> None:
        """Nothing where it has not begun."""
        if (began := self._begun.pop(request, None)) is not None:
            self._ended.append((request, began, outcome, problem, time.time_ns()))

    def end_all(self, outcome: str) -> None:
        for request in list(self._begun):
            self.end(request, outcome)

    def tell(self) -> None:
        """Make the spans that have ended. Not within a turn."""
        # Another thread may take the last one meanwhile.
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
