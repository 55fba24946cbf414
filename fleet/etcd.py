"""A fleet in etcd: each engine keeps its record under a lease, and every reader watches all records.

A record ends when its engine removes it, or does not renew its lease. After a restart or an outage of etcd the engine
puts it again. Readers see the records of etcd's last answer, even while etcd does not answer.
"""

from __future__ import annotations

import base64
import json
import operator
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from kvplan.fleet.errors import FleetError
from kvplan.fleet.records import EngineRecord, decoded, encoded
from kvplan.runtime.errors import cause_text
from kvplan.runtime.ops import logs

PREFIX = "/kvplan/engines/"
# The path of the HTTP gateway, from etcd 3.4 on.
API = "/v3/"
# Seconds after which a silent engine's record ends.
LEASE = 15
# The most bytes of an answer, which may have the records of all engines, and the seconds that it may take.
LARGEST = 64 << 20
PATIENCE = 5.0
# Seconds between two watches.
PAUSE = 0.2
# How many times a lease is renewed during its length.
RENEWALS = 3
# Changes of free blocks below 1/SHARE of the most ever free are not sent, because etcd stores its whole history. The
# change to or from zero is always sent.
SHARE = 8


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files for TLS: the authority that etcd's certificate must have, and our own certificate and key."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None


class EtcdFleet:
    """Engines that announce themselves in etcd. If several runs have one name, the one that began last counts.

    One thread announces, and another one watches from the first call on, so that no call waits for etcd.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str = PREFIX,
        lease: int = LEASE,
        certificates: Certificates | None = None,
    ) -> None:
        """Take URLs of one cluster, `http://host:2379`, and a `prefix` that ends with /. Raises FleetError."""
        if not prefix.endswith("/"):
            raise FleetError(f"{prefix!a} is no prefix of engines: end it with /, as {PREFIX}")
        self._cluster = Cluster(endpoints, certificates or Certificates(), min(PATIENCE, lease / RENEWALS))
        self._prefix, self._lease = prefix, lease
        self._lock, self._stop, self._changed = threading.Lock(), threading.Event(), threading.Event()
        self._own: EngineRecord | None = None
        self._free: Callable[[], int] | None = None
        self._most_free = 0
        self._seen: dict[str, tuple[int, EngineRecord]] = {}
        self._heard, self._problem = -float("inf"), ""
        self._announce_problem, self._count_problem = "", ""
        self._keeper = threading.Thread(target=self._keep, name="kvplan-announce", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="kvplan-fleet", daemon=True)

    def announce(self, record: EngineRecord, free: Callable[[], int] | None = None) -> None:
        """Put this engine's record, or replace it, and keep it. Raises FleetError if the record cannot be kept.

        `free` returns the number of free blocks. It is called at each renewal, and the record is updated if the number
        has changed a lot, or to or from zero.
        """
        encoded(record)
        with self._lock:
            if self._stop.is_set():
                raise FleetError(f"{record.name} cannot be announced by what is closed: make another EtcdFleet")
            if self._own is not None and (self._own.name, self._own.run) != (record.name, record.run):
                raise FleetError(f"this is announced as {self._own.name} already: a process is one engine")
            begun, self._own, self._free = self._own is not None, record, free
        self._changed.set()
        if not begun:
            self._keeper.start()

    def engines(self) -> Mapping[str, EngineRecord]:
        """Return engines by name, as of etcd's last answer; see `age`."""
        self.age()
        with self._lock:
            seen = sorted(self._seen.values(), key=lambda pair: (pair[1].started, pair[0]))
        return {record.name: record for _, record in seen}

    def age(self) -> float:
        """Return the seconds since etcd's last answer, infinite before the first."""
        with self._lock:
            if self._watcher.ident is None and not self._stop.is_set():
                self._watcher.start()
        return time.monotonic() - self._heard

    def problem(self) -> str:
        """Return why etcd's last answer failed, or an empty text."""
        return self._problem

    def close(self, seconds: float = 2 * PATIENCE) -> None:
        """Remove the record, if etcd can be reached, and end. This takes at most `seconds`."""
        self._stop.set()
        self._changed.set()
        # `free` may end the program, and so call this in the keeper's own thread.
        if self._keeper.ident not in (None, threading.get_ident()):
            self._keeper.join(seconds)
        self._cluster.end()

    def _keep(self) -> None:
        """Hold a lease with this engine's record under it, until `close`."""
        lease: int | None = None
        while not self._stop.is_set():
            self._changed.clear()
            try:
                # The lease is kept if a later line fails. Usually it outlasts the failure; otherwise etcd says so.
                lease = self._leased(lease)
                self._cluster.asked("/kv/txn", self._put_if_missing(self._record_now(), lease))
                self._announce_problem = ""
                self._changed.wait(self._lease / RENEWALS)
            except Exception as error:  # a gateway may answer anything, and its next answer may be valid
                self._announce_problem = _logged("fleet not told", self._announce_problem, error)
                self._stop.wait(min(1.0, self._lease / RENEWALS))
        if lease is not None:
            self._cluster.tried("/lease/revoke", {"ID": lease})

    def _leased(self, lease: int | None) -> int:
        """Renew the lease and return it, or a new one if there is none or etcd has ended it. Raises FleetError."""
        if lease is not None and self._cluster.asked("/lease/keepalive", {"ID": lease})["result"].get("TTL"):
            return lease
        return int(self._cluster.asked("/lease/grant", {"TTL": self._lease})["ID"])

    def _record_now(self) -> EngineRecord:
        """Return the record, with the current number of free blocks if that has changed enough."""
        with self._lock:
            record, free = self._own, self._free
        assert record is not None
        count = record.free_blocks if free is None else self._counted(free, record.free_blocks)
        self._most_free = max(self._most_free, count, record.free_blocks)
        little = abs(count - record.free_blocks) * SHARE < max(self._most_free, 1)
        # The change to or from zero always counts, because a full engine gets no requests.
        if little and (count == 0) == (record.free_blocks == 0):
            return record
        fresh = replace(record, free_blocks=count)
        with self._lock:
            # If another record was announced at the same time, the next renewal puts it.
            self._own = fresh if self._own is record else self._own
        return fresh

    def _counted(self, free: Callable[[], int], before: int) -> int:
        """Return the number of free blocks by `free`. If that fails, log it and return `before`."""
        try:
            count, self._count_problem = max(0, operator.index(free())), ""
        except BaseException as error:  # an engine that cannot count its blocks is still alive
            self._count_problem = _logged("free blocks not counted", self._count_problem, error)
            return before
        return count

    def _put_if_missing(self, record: EngineRecord, lease: int) -> dict[str, Any]:
        """Return the transaction that puts a record, unless the same record is there under this lease."""
        # Name and run are escaped, so that no other pair has the same key.
        key = _text(f"{self._prefix}{quote(record.name, safe='')}/{quote(record.run, safe='')}")
        value = _text(encoded(record))
        there = [
            {"key": key, "result": "EQUAL", "target": "VALUE", "value": value},
            {"key": key, "result": "EQUAL", "target": "LEASE", "lease": lease},
        ]
        return {"compare": there, "failure": [{"request_put": {"key": key, "value": value, "lease": lease}}]}

    def _watch(self) -> None:
        """Read all records, then follow changes. After any end of the watch, begin again."""
        while not self._stop.is_set():
            try:
                revision = self._read()
                for change in self._cluster.streamed("/watch", self._range(start_revision=revision + 1), self._lease):
                    self._heard = time.monotonic()
                    if not self._take(change):
                        break
                    self._problem = ""
                # If every watch ends at once, this keeps the loop from asking without a pause.
                self._stop.wait(PAUSE)
            except Exception as error:  # as above
                self._problem = _logged("fleet not heard", self._problem, error)
                self._stop.wait(min(1.0, self._lease / RENEWALS))

    def _read(self) -> int:
        """Read all records, and return etcd's revision of them."""
        found = self._cluster.asked("/kv/range", self._range())
        seen = [self._record(pair) for pair in found.get("kvs", [])]
        with self._lock:
            self._seen = {name: pair for each in seen if each for name, pair in [each]}
        self._heard = time.monotonic()
        return int(found["header"]["revision"])

    def _take(self, answer: Mapping[str, Any]) -> bool:
        """Apply the changes in a watch's answer. Return False if they were compacted. Raises FleetError if refused."""
        result = answer.get("result")
        if isinstance(result, dict) and int(result.get("compact_revision", 0)):
            return False
        if not isinstance(result, dict) or result.get("canceled"):
            raise FleetError(f"etcd ends the watch of {self._prefix}: {str(answer)[:200]}")
        for event in result.get("events", []):
            name = _bytes(event["kv"]["key"]).decode(errors="replace")
            found = None if event.get("type") == "DELETE" else self._record(event["kv"])
            with self._lock:
                self._seen.pop(name, None)
                self._seen.update([found] if found else [])
        return True

    def _record(self, pair: Mapping[str, Any]) -> tuple[str, tuple[int, EngineRecord]] | None:
        """Return (key, (revision that made it, record)). If a value is not a record, log that and return None."""
        name = _bytes(pair["key"]).decode(errors="replace")
        try:
            record = decoded(_bytes(pair.get("value", "")), f"etcd's {name!a}")
        except FleetError as error:
            logs.event(logs.WARNING, "fleet record ignored", error=error)
            return None
        return name, (int(pair["create_revision"]), record)

    def _range(self, **more: int) -> dict[str, Any]:
        """Return the question for all keys of the prefix, or for a watch of them if there is `more`."""
        end = self._prefix[:-1] + chr(ord(self._prefix[-1]) + 1)
        keys: dict[str, Any] = {"key": _text(self._prefix), "range_end": _text(end)}
        return {"create_request": {**keys, "progress_notify": True, **more}} if more else keys


class Cluster:
    """An etcd cluster by the HTTP gateways of its members (v3 API as JSON). If one fails, the next one is asked."""

    def __init__(self, endpoints: Sequence[str], certificates: Certificates, seconds: float) -> None:
        places = [_place(url) for url in endpoints]
        if not places:
            raise FleetError("give at least one URL of etcd, http://host:2379")
        try:
            from etcd3gw.client import Etcd3Client
        except ImportError as error:
            raise FleetError(f"a fleet in etcd needs etcd3gw ({error}): pip install 'kvplan[fleet]'") from error
        self._seconds, self._turn, self._ended = seconds, 0, False
        files = {"ca_cert": certificates.authority, "cert_cert": certificates.certificate, "cert_key": certificates.key}
        # Without `api_path` the client asks for it first, without a time limit.
        common = {"timeout": seconds, "api_path": API, **files}
        self._clients: list[Any] = [Etcd3Client(*place, **common) for place in places]

    def asked(self, path: str, words: Mapping[str, object]) -> dict[str, Any]:
        """Return the answer of the first member that gives one. Raises FleetError."""
        return self._any(lambda client: self._posted(client, path, words))

    def tried(self, path: str, words: Mapping[str, object]) -> None:
        """Ask, and only log a failure."""
        try:
            self.asked(path, words)
        except FleetError as error:
            logs.event(logs.WARNING, "fleet not told", error=error)

    def streamed(self, path: str, words: Mapping[str, object], seconds: float) -> Iterator[dict[str, Any]]:
        """Yield answers as they come, until none comes for `seconds` or the connection ends. Raises FleetError."""
        import requests

        turn = self._turn
        client = self._clients[turn]
        try:
            url, patience = client.get_url(path), (self._seconds, seconds)
            with client.session.post(url, json=words, stream=True, timeout=patience) as response:
                response.raise_for_status()
                # Read whole chunks: byte by byte, a long line takes quadratic time.
                for line in response.iter_lines(chunk_size=None):
                    if self._ended:
                        return
                    if line:
                        yield json.loads(line)
        except (requests.Timeout, requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            return
        except Exception as error:  # a gateway may answer anything
            self._next(turn)
            raise FleetError(f"{client.base_url} cannot be watched: {type(error).__name__}: {error}") from error

    def end(self) -> None:
        """End `streamed` at its next answer, or when its time is over."""
        self._ended = True

    def _any(self, ask: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        problem = FleetError("nobody was asked")
        for _ in self._clients:
            turn = self._turn
            try:
                return ask(self._clients[turn])
            except FleetError as error:
                problem = error
                self._next(turn)
        raise problem

    def _posted(self, client: Any, path: str, words: Mapping[str, object]) -> dict[str, Any]:
        try:
            asked = {"json": words, "stream": True, "timeout": self._seconds}
            with client.session.post(client.get_url(path), **asked) as response:
                said = _within(self._seconds, response.raw)
                if not response.ok:
                    raise ValueError(f"{response.status_code} {said[:100].decode(errors='replace')}")
                answer = json.loads(said)
        except Exception as error:  # the client's, those of requests, and what json raises
            raise FleetError(f"{client.base_url} does not answer: {cause_text(_first_of(error))[:200]}") from error
        if not isinstance(answer, dict):
            raise FleetError(f"{client.base_url} is no etcd: it answers with a {type(answer).__name__}")
        return answer

    def _next(self, failed: int) -> None:
        """Turn to the next member, unless another thread has done so after the same failure."""
        if self._turn == failed:
            self._turn = (failed + 1) % len(self._clients)


def _within(seconds: float, response: Any) -> bytes:
    """Return a whole answer. Raises TimeoutError even if bytes still trickle in, ValueError if it is too long."""
    whole, end = bytearray(), time.monotonic() + seconds
    while piece := response.read1(1 << 16, decode_content=True):
        whole += piece
        if time.monotonic() > end:
            raise TimeoutError(f"its answer is not whole after {seconds:g} s")
        if len(whole) > LARGEST:
            raise ValueError(f"its answer has more than {LARGEST} bytes")
    return bytes(whole)


def _place(url: str) -> tuple[str, int, str]:
    """Return host, port and scheme of a member. Raises FleetError."""
    if "@" in url:
        raise FleetError("a URL of etcd has a user or a password, which nobody would ask for: give certificates")
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or 2379
    except ValueError as error:
        raise FleetError(f"{url} is no URL of etcd: {error}") from error
    if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
        raise FleetError(f"{url} is no URL of etcd: give http://host:2379 or https://host:2379")
    return host, port, parts.scheme


def _first_of(error: BaseException) -> BaseException:
    """Return the first error of a chain, because the later ones of HTTP clients only repeat the URL."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error if before is None else _first_of(before)


def _logged(what: str, before: str, error: BaseException) -> str:
    """Return an error's text, and log it unless it is the same as `before`."""
    told = cause_text(error)
    if told != before:
        logs.event(logs.WARNING, what, error=told)
    return told


def _text(words: str | bytes) -> str:
    return base64.b64encode(words.encode() if isinstance(words, str) else words).decode()


def _bytes(words: str) -> bytes:
    return base64.b64decode(words)
