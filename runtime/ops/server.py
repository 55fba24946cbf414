"""An HTTP server for operators, in its own thread: /healthz and /readyz of workers, /metrics of their counters."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from kvplan.runtime.errors import MetricsAddressError
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.ops.prometheus import metrics_page

# A WSGI application: from a request's environment and `start_response` to the bytes of the response.
Page = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
# Seconds for which a client may be silent.
SILENCE = 10
# Seconds that closing may take.
CLOSING = 0.1


class ProbedWorker(Protocol):
    """A worker that returns the reasons why it is unhealthy or unready, if any. It never waits for a lock."""

    def unhealthy(self) -> tuple[str, ...]: ...

    def unready(self) -> tuple[str, ...]: ...


@dataclass(slots=True)
class OpsServer:
    """A running server that listens at `port`."""

    port: int
    server: WSGIServer | None
    thread: threading.Thread

    def close(self) -> None:
        """Stop the server. A second call does nothing."""
        server, self.server = self.server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self.thread.join()


def serve(
    counters: Counters | None = None,
    port: int = 0,
    host: str = "127.0.0.1",
    *,
    workers: Collection[ProbedWorker] = (),
) -> OpsServer:
    """Answer GET at host:port, at any free port with 0, without authentication.

    /healthz and /readyz are 200, or 503 with one reason a line if any of `workers` has one. /metrics has only these
    counters. Raises MetricsMissingError if prometheus-client is missing for the counters, MetricsAddressError if the
    address cannot be used.
    """
    pages: dict[str, Page] = {
        "/healthz": _probe(lambda: [why for worker in workers for why in worker.unhealthy()]),
        "/readyz": _probe(lambda: [why for worker in workers for why in worker.unready()]),
    }
    if counters is not None:
        pages["/metrics"] = metrics_page(counters)
    try:
        server = (_Server6 if ":" in host else _Server)((host, port), OpsHandler)
    except (OSError, OverflowError) as error:
        raise MetricsAddressError(f"cannot serve metrics at {host}:{port}: {error}: choose another port") from error
    server.set_app(lambda asked, begin: pages.get(asked["PATH_INFO"], _absent)(asked, begin))
    thread = threading.Thread(target=server.serve_forever, args=(CLOSING,), name="kvplan-ops", daemon=True)
    thread.start()
    return OpsServer(server.server_port, server, thread)


def _probe(reasons: Callable[[], Iterable[str]]) -> Page:
    def page(asked: dict[str, Any], begin: Callable[..., Any]) -> Iterable[bytes]:
        why = list(reasons())
        return _text(begin, "503 Service Unavailable" if why else "200 OK", why or ["ok"])

    return page


def _absent(asked: dict[str, Any], begin: Callable[..., Any]) -> Iterable[bytes]:
    return _text(begin, "404 Not Found", ["there are /healthz, /readyz and, with counters, /metrics"])


def _text(begin: Callable[..., Any], status: str, lines: Iterable[str]) -> Iterable[bytes]:
    begin(status, [("Content-Type", "text/plain; charset=utf-8")])
    return ["".join(f"{line}\n" for line in lines).encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Log one line, without a traceback, when a client is silent or disconnects."""
        logs.event(logs.WARNING, "ops connection ended", client=client_address, error=sys.exc_info()[1])


class _Server6(_Server):
    address_family = socket.AF_INET6


class OpsHandler(WSGIRequestHandler):
    """One request of a probe, or of Prometheus."""

    timeout = SILENCE

    def log_message(self, *_: object) -> None:
        """Log nothing, because probes come every few seconds."""
