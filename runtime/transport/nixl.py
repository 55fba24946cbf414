"""NIXL over UCX as a transport: no progress thread, one lock, handles that cannot be misused."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import os
import sys
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np

from kvplan.plan.types import Ints
from kvplan.runtime import process
from kvplan.runtime.clock import now
from kvplan.runtime.errors import HandleError, NixlMissingError, NotBegunError, PeerLostError, TransportError
from kvplan.runtime.memory.device import check_device, shareable
from kvplan.runtime.ops import logs
from kvplan.runtime.transport.base import Index, Op, PreparedList, check_rows, check_spans
from kvplan.runtime.transport.fabrics import fabrics
from kvplan.runtime.transport.nixl_handles import NixlList, NixlTransfer, attempt, errors
from kvplan.runtime.transport.nixl_peers import NixlPeers

MODULES = ("nixl._api", "nixl_cu13._api", "nixl_cu12._api", "nixl_rocm._api", "rixl._api")
OLDEST = (1, 5)
# Set before the import unless the user has set them: otherwise every expected error writes a line to stderr, and UCX
# writes to stdout.
QUIET = {"NIXL_LOG_LEVEL": "FATAL", "UCX_LOG_LEVEL": "error", "UCX_LOG_FILE": "stderr"}
# The network devices of an agent whose peers are on this machine. Shared memory and CUDA IPC need no network device.
LOOPBACK = {"UCX_NET_DEVICES": "lo"}
# If one connection of a write over TCP breaks, the others were seen to deliver bytes for a while. Three TCP
# retransmissions (RFC 6298; on Linux after 0.2, 0.4 and 0.8 s) end within this time.
LINGER_S = 2.0
UNSHARED = "it is of expandable segments, or of an engine that can sleep: within this host it goes over TCP, or RDMA"
# NIXL's wheels depend on torch and CUDA, gigabytes that an engine already has and nothing else needs.
INSTALL = "pip install --no-deps nixl nixl-cu12"
# Hints for memory types that cannot be registered, because NIXL gives the reason only in its log.
HELP = {
    "VRAM": ": UCX may have found no CUDA. It takes the driver, NIXL for its CUDA, and UCX_TLS unset or with cuda; "
    "NIXL_LOG_LEVEL=WARN says more"
}


@contextmanager
def _only(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, which UCX reads when an agent is made, and restore the old ones afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def api() -> Any:
    """Return NIXL's Python module. Raises NixlMissingError, with the modules tried, if none is usable."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger("nixl").setLevel(logging.WARNING)
    tried = list[str]()
    # NIXL's logger keeps the stdout that it finds at its import.
    with redirect_stdout(sys.stderr):
        module = next((found for name in _candidates() if (found := _usable(name, tried)) is not None), None)
    if module is None:
        what = f"no NIXL {'.'.join(map(str, OLDEST))} or newer: on Linux {INSTALL}"
        raise NixlMissingError(f"{what}; tried {'; '.join(tried)}")
    logging.getLogger("nixl").setLevel(logging.WARNING)
    logs.off_stdout("nixl")
    return module


def _candidates() -> tuple[str, ...]:
    """Return the modules to try, in order.

    The first of MODULES chooses a backend by the CUDA that it finds, and imports torch to do so, which takes a second.
    If only one backend is installed, that one comes first.
    """
    backends = [name for name in MODULES[1:] if importlib.util.find_spec(name.partition(".")[0])]
    return tuple(dict.fromkeys((*backends, *MODULES))) if len(backends) == 1 else MODULES


def _usable(name: str, tried: list[str]) -> Any:
    """Return the module of that name. If it is missing or too old, add the reason to `tried` and return None."""
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        tried.append(f"{name} ({error})")
        return None
    if (version := _version(module)) is None or version >= OLDEST:
        return module
    tried.append(f"{name} (version {'.'.join(map(str, version))})")
    return None


def _version(module: Any) -> tuple[int, ...] | None:
    package = str(module.__name__).partition(".")[0]
    try:
        text = importlib.metadata.version(package.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return None
    return tuple(int(word) for word in text.split(".")[:2] if word.isdecimal())


class Nixl:
    """One NIXL agent with the UCX backend. With `telemetry`, handles count the descriptors they posted.

    With `loopback`, UCX opens no port that other machines can reach: all peers are on this machine.

    The agent's name has a new uuid, also after `deregister`, so that no peer takes a restarted worker for the earlier
    one, or reaches deregistered memory by the old name.
    """

    def __init__(
        self,
        name: str = "worker",
        *,
        telemetry: bool = False,
        threads: int = 0,
        loopback: bool = False,
        clock: Callable[[], float] = now,
    ) -> None:
        module = api()
        self.bindings = module.nixlBind
        self.telemetry, self.closed = telemetry, False
        self._word, self._clock, self._module = name, clock, module
        self._loopback, self.linger_s = loopback, LINGER_S
        self._config = module.nixl_agent_config(
            enable_prog_thread=False,
            enable_listen_thread=False,
            capture_telemetry=telemetry,
            num_threads=threads,
            backends=["UCX"],
            sync_mode=module.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT,
        )
        self._agent: Any = None
        process.keep(self)
        self._start()

    def _start(self) -> None:
        """Make a new agent, without peers and registrations."""
        self.name = f"{self._word}-{uuid.uuid4().hex}"
        self.fabrics = fabrics() - {"rdma"} if self._loopback else fabrics()
        self._registered: list[Any] = []
        self._given: weakref.WeakSet[NixlList | NixlTransfer] = weakref.WeakSet()
        self._peers = NixlPeers(self, self._given, self._clock)
        self.peers = self._peers.met
        try:
            with errors(self.bindings), _only(LOOPBACK if self._loopback else {}):
                self._agent = self._module.nixl_agent(self.name, self._config)
        except TransportError as error:
            limited = os.environ.get("UCX_TLS")
            text = f": UCX_TLS={limited} may lack what is here, as cuda where there is a GPU" if limited else ""
            raise TransportError(f"{error}{text}; NIXL_LOG_LEVEL=WARN says more") from error

    @property
    def agent(self) -> Any:
        """NIXL's agent. Raises TransportError after `close`."""
        if self._agent is None:
            raise TransportError(f"the transport {self.name} is closed: make a new one")
        return self._agent

    def register(self, regions: Ints, mem_type: str) -> None:
        check_spans(regions)
        if not len(regions):
            return
        for address, _, device in regions.tolist() if mem_type == "VRAM" else ():
            check_device(address, device)
        # Only fabrics that reach all of the memory stay.
        self.fabrics &= fabrics(mem_type)
        try:
            with errors(self.bindings):
                self._registered.append(self.agent.register_memory(_rows(regions), mem_type))
        except TransportError as error:
            raise TransportError(f"{error}{HELP.get(mem_type, '')}") from error
        if mem_type == "VRAM" and not all(map(shareable, regions[:, 0].tolist())):
            logs.event(logs.WARNING, "memory not shared", agent=self.name, why=UNSHARED)

    def deregister(self) -> None:
        """See `Transport.deregister`. Cuts transfers in progress, removes peers, and gives the agent another name."""
        if self.closed:
            raise TransportError(f"the transport {self.name} is closed: make a new one")
        self._end()
        self._start()

    def metadata(self) -> bytes:
        with errors(self.bindings):
            return bytes(self.agent.get_agent_metadata())

    def add_peer(self, metadata: bytes) -> str:
        return self._peers.add(metadata)

    def remove_peer(self, peer: str) -> None:
        self._peers.remove(peer)

    def lost(self, peer: str) -> bool:
        """See `Transport.lost`. Rarely sends an empty message: nothing else reveals that a process has died."""
        return self._peers.lost(peer)

    def broken(self, peer: str) -> bool:
        return self._peers.broken(peer)

    def found_lost(self, peer: str) -> None:
        """Note that a call has found the connection to a peer broken."""
        self._peers.found_lost(peer)

    def prepare(self, peer: str | None, rows: Ints, mem_type: str) -> NixlList:
        check_rows(rows)
        self._peers.check_met(peer)
        with errors(self.bindings):
            value = self.agent.prep_xfer_dlist(peer or "NIXL_INIT_AGENT", _rows(rows), mem_type)
        made = NixlList(self, peer, value)
        self._given.add(made)
        return made

    def post(
        self, op: Op, peer: str, local: PreparedList, local_at: Index, remote: PreparedList, remote_at: Index
    ) -> NixlTransfer:
        mine, theirs = self._own(local, None), self._own(remote, peer)
        if local_at.dtype != np.int32 or remote_at.dtype != np.int32:
            raise NotBegunError("indices are not int32: NIXL would cut them off in silence")
        with errors(self.bindings, NotBegunError):
            value = self.agent.make_prepped_xfer(op, mine, local_at, theirs, remote_at)
        return self._post(peer, value)

    def _own(self, prepared: PreparedList, peer: str | None) -> Any:
        if not isinstance(prepared, NixlList) or prepared.owner is not self or prepared.peer != peer:
            raise HandleError("a prepared list belongs to another agent or to another peer")
        if self.agent and prepared.released:
            raise HandleError("a prepared list is used after its release")
        return prepared.value

    def post_spans(
        self, op: Op, peer: str, local: Ints, local_type: str, remote: Ints, remote_type: str
    ) -> NixlTransfer:
        check_spans(local)
        check_spans(remote)
        self._peers.check_met(peer)
        with errors(self.bindings, NotBegunError):
            mine = self.agent.get_xfer_descs(_rows(local), local_type)
            theirs = self.agent.get_xfer_descs(_rows(remote), remote_type)
            value = self.agent.initialize_xfer(op, mine, theirs, peer)
        return self._post(peer, value)

    def _post(self, peer: str, value: Any) -> NixlTransfer:
        handle = NixlTransfer(self, peer, value)
        self._given.add(handle)
        try:
            handle.post()
        except PeerLostError:
            # No bytes of it move any more, and no caller gets the handle.
            handle.release()
            raise
        return handle

    def progress(self) -> int:
        """See `Transport.progress`. Empty messages are probes of `lost`, and are not counted."""
        with errors(self.bindings):
            found = self.agent.get_new_notifs()
        return sum(1 for messages in found.values() for message in messages if message)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._end()

    def _end(self) -> None:
        """End the agent, its lists, transfers, peers and registrations. No bytes move afterwards."""
        try:
            for given in list(self._given):
                given.cut()
            for peer in self._peers.known():
                attempt(f"removal of {peer}", self._agent.remove_remote_agent, peer)
            for registered in self._registered:
                attempt("deregistration", self._agent.deregister_memory, registered)
        finally:
            self._agent, self._registered = None, []
            self._given.clear()
            self._peers.clear()


def _rows(rows: Ints) -> Ints:
    return np.ascontiguousarray(rows, np.int64)
