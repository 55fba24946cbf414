"""NIXL over UCX as a transport: no progress thread, one lock, handles that cannot be misused."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvplan.runtime import guard
from kvplan.runtime.errors import (
    HandleError,
    KvplanError,
    NixlMissingError,
    NotBegunError,
    PeerLostError,
    TransportError,
)
from kvplan.runtime.plan import Ints
from kvplan.runtime.transport import Index, Prepared

LOG = logging.getLogger("kvplan.runtime")
MODULES = ("nixl._api", "nixl_cu13._api", "nixl_cu12._api", "nixl_rocm._api", "rixl._api")
OLDEST = (1, 5)
# Set before the import, where the user has not: otherwise every expected error writes to stderr, one line per request.
QUIET = {"NIXL_LOG_LEVEL": "FATAL", "UCX_LOG_LEVEL": "error"}
LOST = "nixlRemoteDisconnectError"


def api() -> Any:
    """NIXL's Python module. Raises NixlMissingError, with what was tried, where none can be used."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger("nixl").setLevel(logging.WARNING)
    tried = []
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError, RuntimeError) as error:
            tried.append(f"{name} ({error})")
            continue
        if (version := _version(module)) is None or version >= OLDEST:
            logging.getLogger("nixl").setLevel(logging.WARNING)
            return module
        tried.append(f"{name} (version {'.'.join(map(str, version))})")
    raise NixlMissingError(f"no NIXL 1.5 or newer: pip install 'kvplan[nixl]' on Linux; tried {'; '.join(tried)}")


def _version(module: Any) -> tuple[int, ...] | None:
    package = str(module.__name__).partition(".")[0]
    try:
        text = importlib.metadata.version(package.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return None
    return tuple(int(word) for word in text.split(".")[:2] if word.isdecimal())


class _Prepared:
    """A prepared list, known by its owner: NIXL takes a list of another agent, and crashes."""

    def __init__(self, owner: Nixl, peer: str | None, value: Any) -> None:
        self.owner, self.peer, self.value = owner, peer, value
        self.released = False

    def release(self) -> None:
        if not self.released:
            self.released = True
            with _errors(self.owner.bindings):
                self.value.release()


class _Read:
    """One posted read. States: posted, done, failed, released; NIXL is not asked again after the last two."""

    def __init__(self, owner: Nixl, peer: str, value: Any) -> None:
        self.owner, self.peer, self.value, self.state = owner, peer, value, "made"

    def post(self) -> None:
        if self.state != "made":
            raise HandleError(f"a transfer that is {self.state} cannot be posted: make a new one")
        self._follow("transfer")

    def poll(self) -> bool:
        if self.state in ("failed", "released"):
            raise HandleError(f"a transfer that is {self.state} cannot be polled")
        if self.state == "posted":
            self._follow("check_xfer_state")
        return self.state == "done"

    def _follow(self, call: str) -> None:
        agent = self.owner.agent
        # Failed until NIXL says otherwise: an error that is raised here leaves the handle unusable.
        self.state = "failed"
        with _errors(self.owner.bindings):
            answer = getattr(agent, call)(self.value)
        if answer not in ("DONE", "PROC"):
            raise TransportError(f"NIXL says {answer} about a transfer from {self.peer}")
        self.state = "done" if answer == "DONE" else "posted"

    def requests(self) -> int | None:
        if not self.owner.telemetry or self.state != "done":
            return None
        with _errors(self.owner.bindings):
            return int(self.owner.agent.get_xfer_telemetry(self.value).descCount)

    def release(self) -> None:
        if self.state == "released":
            return
        if self.state == "posted" and not self.owner.closed:
            raise HandleError("a transfer that may still write cannot be released: wait, or close the transport")
        self.state = "released"
        # Nothing can be written any more: what NIXL says now must not keep the blocks from their owner.
        _attempt(f"release of a read from {self.peer}", self.value.release)


class Nixl:
    """One NIXL agent with the UCX backend. With `telemetry`, handles count the requests they posted.

    The agent's name carries a new uuid, so that a restarted worker is never taken for the one before it.
    """

    def __init__(self, name: str = "worker", *, telemetry: bool = False, threads: int = 0) -> None:
        module = api()
        self.bindings = module.nixlBind
        self.name, self.telemetry = f"{name}-{uuid.uuid4().hex}", telemetry
        self.peers: set[str] = set()
        self._registered: list[Any] = []
        self.closed = False
        self._met: dict[bytes, str] = {}
        config = module.nixl_agent_config(
            enable_prog_thread=False,
            enable_listen_thread=False,
            capture_telemetry=telemetry,
            num_threads=threads,
            backends=["UCX"],
            sync_mode=module.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT,
        )
        with _errors(self.bindings):
            self._agent: Any = module.nixl_agent(self.name, config)

    @property
    def agent(self) -> Any:
        """NIXL's agent. Raises TransportError after `close`."""
        if self._agent is None:
            raise TransportError(f"the transport {self.name} is closed: make a new one")
        return self._agent

    def register(self, regions: Ints, mem_type: str) -> None:
        guard.check_spans(regions)
        if not len(regions):
            return
        with _errors(self.bindings):
            self._registered.append(self.agent.register_memory(_rows(regions), mem_type))

    def metadata(self) -> bytes:
        with _errors(self.bindings):
            return bytes(self.agent.get_agent_metadata())

    def add_peer(self, metadata: bytes) -> str:
        if self._met.get(metadata) in self.peers:
            return self._met[metadata]
        with _errors(self.bindings):
            name = self.agent.add_remote_agent(metadata)
        peer = name.decode() if isinstance(name, bytes) else str(name)
        self.peers.add(peer)
        self._met[metadata] = peer
        return peer

    def remove_peer(self, peer: str) -> None:
        if peer not in self.peers:
            return
        self.peers.discard(peer)
        self._met = {data: name for data, name in self._met.items() if name != peer}
        with _errors(self.bindings):
            self.agent.remove_remote_agent(peer)

    def prepare(self, peer: str | None, rows: Ints, mem_type: str) -> _Prepared:
        guard.check_rows(rows)
        with _errors(self.bindings):
            value = self.agent.prep_xfer_dlist(peer or "NIXL_INIT_AGENT", _rows(rows), mem_type)
        return _Prepared(self, peer, value)

    def read(self, peer: str, local: Prepared, local_at: Index, remote: Prepared, remote_at: Index) -> _Read:
        mine, theirs = self._own(local, None), self._own(remote, peer)
        if local_at.dtype != np.int32 or remote_at.dtype != np.int32:
            raise NotBegunError("indices are not int32: NIXL would cut them off in silence")
        with _errors(self.bindings, NotBegunError):
            value = self.agent.make_prepped_xfer("READ", mine, local_at, theirs, remote_at)
        return self._post(peer, value)

    def _own(self, prepared: Prepared, peer: str | None) -> Any:
        if not isinstance(prepared, _Prepared) or prepared.owner is not self or prepared.peer != peer:
            raise HandleError("a prepared list belongs to another agent or to another peer")
        if prepared.released:
            raise HandleError("a prepared list is used after its release")
        return prepared.value

    def read_spans(self, peer: str, local: Ints, local_type: str, remote: Ints, remote_type: str) -> _Read:
        guard.check_spans(local)
        guard.check_spans(remote)
        with _errors(self.bindings, NotBegunError):
            mine = self.agent.get_xfer_descs(_rows(local), local_type)
            theirs = self.agent.get_xfer_descs(_rows(remote), remote_type)
            value = self.agent.initialize_xfer("READ", mine, theirs, peer)
        return self._post(peer, value)

    def _post(self, peer: str, value: Any) -> _Read:
        handle = _Read(self, peer, value)
        handle.post()
        return handle

    def notify(self, peer: str, message: bytes) -> None:
        with _errors(self.bindings):
            self.agent.send_notif(peer, message)

    def notifications(self) -> list[tuple[str, bytes]]:
        with _errors(self.bindings):
            found = self.agent.get_new_notifs()
        return [(peer, bytes(message)) for peer, messages in found.items() for message in messages]

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            for peer in sorted(self.peers):
                _attempt(f"removal of {peer}", self.agent.remove_remote_agent, peer)
            for registered in self._registered:
                _attempt("deregistration", self.agent.deregister_memory, registered)
        finally:
            self._agent, self._registered, self._met = None, [], {}
            self.peers.clear()


def _attempt(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Call NIXL to give something back; a failure is logged, and what comes next goes on."""
    try:
        call(*arguments)
    except Exception as error:
        LOG.warning("NIXL %s failed: %s: %s", what, type(error).__name__, error)


def _rows(rows: Ints) -> Ints:
    return np.ascontiguousarray(rows, np.int64)


@contextmanager
def _errors(bindings: Any, other: type[TransportError] = TransportError) -> Iterator[None]:
    """NIXL's exceptions, which have no common base, as ours: `other`, or PeerLostError."""
    try:
        yield
    except KvplanError as error:
        raise error if isinstance(error, other) else other(str(error)) from error
    except Exception as error:
        name = type(error).__name__
        known = getattr(bindings, name, None) is type(error)
        kind = PeerLostError if known and name == LOST else other
        raise kind(f"NIXL: {name}: {error}") from error
