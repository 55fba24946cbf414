"""A fleet in etcd: an engine's record is kept under a lease, and everybody watches.

A record goes when its engine says so or has not been heard for the lease; after a restart of etcd, or a time in which
it could not be reached, it is put again. Who watches sees records as of the last answer: what cannot be told now stays.
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
# The gateway's, from etcd 3.4 on.
API = "/v3/"
# Seconds: after which a silent engine's record ends, and the time limit of one answer.
LEASE = 15
# Bytes of an answer: the records of all engines.
LARGEST = 64 << 20
PATIENCE = 5.0
# Seconds between two watches.
PAUSE = 0.2
# Parts of a lease: how often it is renewed, and how long nothing is watched before all is read again.
RENEWALS = 3
# A share of the most blocks that were ever free: smaller changes are not sent, as etcd keeps its whole history,
# unless the last free block is taken or one is free again.
SHARE = 8


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files for TLS: who is believed to be etcd, and who we are."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None


class EtcdFleet:
    """Engines that announce themselves in etcd. Threads of its own announce, and watch from the first question on:
    nothing here waits for etcd. If several runs have one name, the one that began last counts.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str = PREFIX,
        lease: int = LEASE,
        certificates: Certificates | None = None,
    ) -> None:
        """`endpoints` are URLs of one cluster, `http://host:2379`, `prefix` ends with /. Raises FleetError."""
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
        self._untold, self._uncounted = "", ""
        self._keeper = threading.Thread(target=self._keep, name="kvplan-announce", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="kvplan-fleet", daemon=True)

    def announce(self, record: EngineRecord, free: Callable[[], int] | None = None) -> None:
        """Put a record, or another one in its place, and keep it. Raises FleetError where it cannot be kept.

        `free` is asked at each renewal how many blocks are free; who watches is told where that has changed by a lot,
        or to or from none.
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
        """Engines by name, as etcd said last; see `age`."""
        self.age()
        with self._lock:
            seen = sorted(self._seen.values(), key=lambda pair: (pair[1].started, pair[0]))
        return {record.name: record for _, record in seen}

    def age(self) -> float:
        """Seconds since etcd has been heard, infinite before the first time."""
        with self._lock:
            if self._watcher.ident is None and not self._stop.is_set():
                self._watcher.start()
        return time.monotonic() - self._heard

    def problem(self) -> str:
        """Why etcd could not be heard last, empty where it was."""
        return self._problem

    def close(self, seconds: float = 2 * PATIENCE) -> None:
        """Take back what was announced, if etcd can be reached, and end; wait no longer than `seconds` for that."""
        self._stop.set()
        self._changed.set()
        # Counting free blocks may end the program: that is within the thread that takes the record back.
        if self._keeper.ident not in (None, threading.get_ident()):
            self._keeper.join(seconds)
        self._cluster.end()

    def _keep(self) -> None:
        """Hold a lease with the own record under it, until the end."""
        lease: int | None = None
        while not self._stop.is_set():
            self._changed.clear()
            try:
                # Kept where anything below fails: a lease lasts longer than that, and etcd says where it does not.
                lease = self._leased(lease)
                self._cluster.asked("/kv/txn", self._put_if_missing(self._record_now(), lease))
                self._untold = ""
                self._changed.wait(self._lease / RENEWALS)
            except Exception as error:  # a gateway may answer anything: the next time it may be right
                self._untold = _logged("fleet not told", self._untold, error)
                self._stop.wait(min(1.0, self._lease / RENEWALS))
        if lease is not None:
            self._cluster.tried("/lease/revoke", {"ID": lease})

    def _leased(self, lease: int | None) -> int:
        """The lease, renewed, or another one where there is none or etcd has it no more. Raises FleetError."""
        if lease is not None and self._cluster.asked("/lease/keepalive", {"ID": lease})["result"].get("TTL"):
            return lease
        return int(self._cluster.asked("/lease/grant", {"TTL": self._lease})["ID"])

    def _record_now(self) -> EngineRecord:
        """What was announced, with the blocks that are free now, where that is worth a word."""
        with self._lock:
            record, free = self._own, self._free
        assert record is not None
        count = record.free_blocks if free is None else self._counted(free, record.free_blocks)
        self._most_free = max(self._most_free, count, record.free_blocks)
        little = abs(count - record.free_blocks) * SHARE < max(self._most_free, 1)
        # Whether any is free is always told: who is full gets no requests.
        if little and (count == 0) == (record.free_blocks == 0):
            return record
        fresh = replace(record, free_blocks=count)
        with self._lock:
            # Another one may have been announced meanwhile, which is told with the next renewal.
            self._own = fresh if self._own is record else self._own
        return fresh

    def _counted(self, free: Callable[[], int], before: int) -> int:
        """How many blocks are free, as the engine says; as `before` where it says no number, which is logged."""
        try:
            count, self._uncounted = max(0, operator.index(free())), ""
        except BaseException as error:  # an engine that cannot count its blocks is still there
            self._uncounted = _logged("free blocks not counted", self._uncounted, error)
            return before
        return count

    def _put_if_missing(self, record: EngineRecord, lease: int) -> dict[str, Any]:
        """The transaction that puts a record, unless it is there to the letter and under this lease."""
        # With escapes: one key for one name and run.
        key = _text(f"{self._prefix}{quote(record.name, safe='')}/{quote(record.run, safe='')}")
        value = _text(encoded(record))
        there = [
            {"key": key, "result": "EQUAL", "target": "VALUE", "value": value},
            {"key": key, "result": "EQUAL", "target": "LEASE", "lease": lease},
        ]
        return {"compare": there, "failure": [{"request_put": {"key": key, "value": value, "lease": lease}}]}

    def _watch(self) -> None:
        """All that is there, then what changes; from the beginning after whatever ends that."""
        while not self._stop.is_set():
            try:
                revision = self._read()
                for change in self._cluster.streamed("/watch", self._range(start_revision=revision + 1), self._lease):
                    self._heard = time.monotonic()
                    if not self._take(change):
                        break
                    self._problem = ""
                # Where a watch ends at once, again and again, etcd is not asked without a pause.
                self._stop.wait(PAUSE)
            except Exception as error:  # as above
                self._problem = _logged("fleet not heard", self._problem, error)
                self._stop.wait(min(1.0, self._lease / RENEWALS))

    def _read(self) -> int:
        """Everything that is there, and of which revision."""
        found = self._cluster.asked("/kv/range", self._range())
        seen = [self._record(pair) for pair in found.get("kvs", [])]
        with self._lock:
            self._seen = {name: pair for each in seen if each for name, pair in [each]}
        self._heard = time.monotonic()
        return int(found["header"]["revision"])

    def _take(self, answer: Mapping[str, Any]) -> bool:
        """Changes that a watch tells of; false where they were compacted. Raises FleetError where it is refused."""
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
        """A record by its key with the revision that made it; None of what is no record, which is logged."""
        name = _bytes(pair["key"]).decode(errors="replace")
        try:
            record = decoded(_bytes(pair.get("value", "")), f"etcd's {name!a}")
        except FleetError as error:
            logs.event(logs.WARNING, "fleet record ignored", error=error)
            return None
        return name, (int(pair["create_revision"]), record)

    def _range(self, **more: int) -> dict[str, Any]:
        """All keys of the prefix, as a range is asked for; with `more`, a watch of it."""
        end = self._prefix[:-1] + chr(ord(self._prefix[-1]) + 1)
        keys: dict[str, Any] = {"key": _text(self._prefix), "range_end": _text(end)}
        return {"create_request": {**keys, "progress_notify": True, **more}} if more else keys


class Cluster:
    """An etcd cluster by the HTTP gateway of its members, the next one where one fails (etcd's v3 API as JSON)."""

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
        # Where the path is not given the client asks for it first, and waits however long the answer takes.
        common = {"timeout": seconds, "api_path": API, **files}
        self._clients: list[Any] = [Etcd3Client(*place, **common) for place in places]

    def asked(self, path: str, words: Mapping[str, object]) -> dict[str, Any]:
        """The answer of the first member that gives one. Raises FleetError."""
        return self._any(lambda client: self._posted(client, path, words))

    def tried(self, path: str, words: Mapping[str, object]) -> None:
        """Ask, and do without an answer."""
        try:
            self.asked(path, words)
        except FleetError as error:
            logs.event(logs.WARNING, "fleet not told", error=error)

    def streamed(self, path: str, words: Mapping[str, object], seconds: float) -> Iterator[dict[str, Any]]:
        """Answers as they come, until none has come for `seconds` or the connection ends. Raises FleetError."""
        import requests

        turn = self._turn
        client = self._clients[turn]
        try:
            url, patience = client.get_url(path), (self._seconds, seconds)
            with client.session.post(url, json=words, stream=True, timeout=patience) as response:
                response.raise_for_status()
                # As it arrives: byte by byte a long line would take the square of its length.
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
        """End what is watched with its next answer, or when it has been silent for its time."""
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
        """Two threads to which one member did not answer go on by one."""
        if self._turn == failed:
            self._turn = (failed + 1) % len(self._clients)


def _within(seconds: float, response: Any) -> bytes:
    """An answer that is whole in time, however it dribbles in. Raises TimeoutError, ValueError."""
    whole, end = bytearray(), time.monotonic() + seconds
    while piece := response.read1(1 << 16, decode_content=True):
        whole += piece
        if time.monotonic() > end:
            raise TimeoutError(f"its answer is not whole after {seconds:g} s")
        if len(whole) > LARGEST:
            raise ValueError(f"its answer has more than {LARGEST} bytes")
    return bytes(whole)


def _place(url: str) -> tuple[str, int, str]:
    """Host, port and scheme of a member. Raises FleetError."""
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
    """The first error of a chain: those of HTTP clients around it repeat the URL, and hide the reason."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error if before is None else _first_of(before)


def _logged(what: str, before: str, error: BaseException) -> str:
    """What an error says; it is logged once, however often it comes."""
    told = cause_text(error)
    if told != before:
        logs.event(logs.WARNING, what, error=told)
    return told


def _text(words: str | bytes) -> str:
    return base64.b64encode(words.encode() if isinstance(words, str) else words).decode()


def _bytes(words: str) -> bytes:
    return base64.b64decode(words)
