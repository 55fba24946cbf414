"""The address of a prefill engine's workers, at the address that SGLang's router names: a small HTTP service.

The first prefill worker puts its record there, decode workers get it. It holds no secret: with keys, decode compares
the public key with those that it trusts. SGLang starts the service beside its first worker, so only a process of the
same machine can put a record, and with keys only one with the engine's secret key.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.errors import HandshakeError

PATH = "/kvplan"
# The header with which a worker proves that it has the engine's secret key.
PROOF = "X-Kvplan-Proof"
SCHEME = "tcp://"
LARGEST = 1 << 12
# Seconds of one HTTP request, and between two attempts.
REQUEST_S, RETRY_S = 5.0, 0.25
NONE: Mapping[str, str] = MappingProxyType({})
# The most concurrent connections, each with a thread.
MOST = 64


@dataclass(frozen=True, slots=True)
class PrefillRecord:
    """The first worker of a prefill engine: its address, and the engine's public key, empty without keys."""

    address: str
    key: str = ""


def named_worker(where: str) -> PrefillRecord | None:
    """Return the record in an address tcp://[KEY@]HOST:PORT from a router; None for a bootstrap address.

    Engines of other kinds have no bootstrap service. KEY is the public key, in hexadecimal digits. Raises
    HandshakeError.
    """
    if not where.startswith(SCHEME):
        return None
    key, at, address = where.removeprefix(SCHEME).rpartition("@")
    try:
        return PrefillRecord(SCHEME + address, bytes.fromhex(key).decode("ascii") if at else "")
    except ValueError as error:
        raise HandshakeError(f"{where} has no key before the @: it is a public key in hexadecimal digits") from error


class Bootstrap:
    """The service, on a thread of its own, until `close`. Raises OSError if its port is taken.

    `keys` are the engine's: a record needs a proof by them.
    """

    def __init__(self, host: str, port: int, keys: Keys | Plain) -> None:
        made: Any = type("Handler", (_Handler,), {"record": b"", "keys": keys, "timeout": REQUEST_S})
        self._server = _Server((host, port), made)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="kvplan-bootstrap", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """A server of at most MOST concurrent connections. It closes others: a flood must not use the engine's threads."""

    daemon_threads, request_queue_size = True, MOST

    def __init__(self, *given: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _Handler(BaseHTTPRequestHandler):
    record: bytes
    keys: Keys | Plain

    def do_GET(self) -> None:
        record = type(self).record
        self._answer(200 if self.path == PATH and record else 404, record)

    def do_PUT(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if 0 < size <= LARGEST else b""
        if not self._believes(body):
            self._answer(403, b"")
            return
        if self.path != PATH or _record(body) is None:
            self._answer(400, b"")
            return
        type(self).record = body
        self._answer(200, b"")

    def _believes(self, body: bytes) -> bool:
        """Whether a record has its proof, and its sender is on this machine: both ends have the same address."""
        near = self.client_address[0] == self.connection.getsockname()[0]
        return near and hmac.compare_digest(
            (self.headers.get(PROOF) or "").encode(), proof(type(self).keys, body).encode()
        )

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: the runtime logs meetings."""


def register(where: str, record: PrefillRecord, seconds: float, keys: Keys | Plain) -> None:
    """Put a record at HOST:PORT within `seconds`, with a proof by the engine's keys. Raises HandshakeError."""
    body = json.dumps(asdict(record)).encode()

    def put(left: float) -> bool:
        status, _ = _ask(where, "PUT", body, left, {PROOF: proof(keys, body)})
        if status == 403:
            what = f"the bootstrap service at {where} takes this worker for one of another machine, or of other keys"
            raise HandshakeError(f"{what}: start one engine at this port, with one KVPLAN_CONFIG")
        return status == 200

    _until(seconds, put, f"no bootstrap service takes it at {where}")


def lookup(where: str, seconds: float) -> PrefillRecord:
    """Return the record at HOST:PORT, within `seconds`. Raises HandshakeError."""
    found: list[PrefillRecord] = []

    def ask(left: float) -> bool:
        status, body = _ask(where, "GET", None, left)
        record = _record(body) if status == 200 else None
        found.extend([] if record is None else [record])
        return bool(found)

    _until(seconds, ask, f"no prefill engine with kvplan answers at {where}")
    return found[0]


def _until(seconds: float, attempt: Callable[[float], bool], what: str) -> None:
    end, why = time.monotonic() + seconds, ""
    while (left := end - time.monotonic()) > 0:
        try:
            if attempt(min(left, REQUEST_S)):
                return
        except (OSError, http.client.HTTPException) as error:
            why = f": {error}"
        time.sleep(min(RETRY_S, left))
    raise HandshakeError(f"{what} within {seconds:g} s{why}")


def proof(keys: Keys | Plain, body: bytes) -> str:
    """Return the proof of a body, which needs the secret key; without keys any process can compute it."""
    secret = keys.secret if isinstance(keys, Keys) else b""
    return hmac.new(secret, PATH.encode() + body, hashlib.sha256).hexdigest()


def _ask(
    where: str, method: str, body: bytes | None, seconds: float, headers: Mapping[str, str] = NONE
) -> tuple[int, bytes]:
    host, _, port = where.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=seconds)
    try:
        connection.request(method, PATH, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(LARGEST)
    finally:
        connection.close()


def _record(body: bytes) -> PrefillRecord | None:
    """Return the record of a body, None if it has none."""
    try:
        said = json.loads(body)
    except ValueError:
        return None
    words = {"address", "key"}
    if not isinstance(said, dict) or set(said) != words or not all(isinstance(said[word], str) for word in words):
        return None
    return PrefillRecord(**said)
