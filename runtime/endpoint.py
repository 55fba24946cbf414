"""Endpoint: the resources that both roles of a worker share. The prefill half and the decode half are built over it.

It has the memory, registered once, one transport, one stage, one owner, and one server if it prefills. It is drained,
suspended, resumed and closed as a whole.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TypeVar

from kvplan.plan.types import Plan
from kvplan.runtime.clock import seconds
from kvplan.runtime.control.channel import ControlServer
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.errors import BadRequestError, DrainingError, HandleError, TransportError
from kvplan.runtime.inspection import Inspection
from kvplan.runtime.memory.device import enter
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.owner import Duties, Owner
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.transfer.prepare import link
from kvplan.runtime.transfer.prepared import PreparedLink, PreparedLinks
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.wakeup import QUIET

T = TypeVar("T")


class Half(ABC):
    """One role of a worker. The other role's half may share its endpoint. The worker's owner calls it."""

    def __init__(self, role: str, endpoint: Endpoint) -> None:
        self.name, self.endpoint, self.clock = f"{role} worker {endpoint.worker}", endpoint, endpoint.clock
        self.owner, self.exits = endpoint.owner, deque[BaseException]()
        # Each call removes one gauge.
        self.gauges: list[Callable[[], None]] = []

    @abstractmethod
    def accept(self, pool: Pool) -> None:
        """Check that this half can use the memory. Raises RegisterError."""

    @abstractmethod
    def begin(self) -> None:
        """Begin with newly registered memory: no peer is met, and nothing is in progress."""

    @abstractmethod
    def step(self) -> bool:
        """Carry out one step. Return whether it did anything, or anything is in progress."""

    @abstractmethod
    def moving(self) -> bool:
        """Whether bytes may be on their way. No file descriptor signals their arrival, so the worker polls."""

    @abstractmethod
    def look(self) -> tuple[list[int], float]:
        """Return the file descriptors to wait on until the next step, and for how many seconds at most."""

    @abstractmethod
    def say(self) -> None:
        """Send the messages that peers are due, at the end of a call."""

    @abstractmethod
    def after(self) -> None:
        """Run the caller's callbacks after a call. They may call any worker."""

    @abstractmethod
    def peers(self) -> set[str]:
        """Return the transport's names of the peers that this half needs."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether requests need the memory. Safe to read from any thread."""

    @abstractmethod
    def in_use(self) -> str:
        """Return why the memory cannot be deregistered now, or an empty text."""

    @abstractmethod
    def drop_all(self, why: str) -> None:
        """Drop every peer. Requests end with an error of this half's name followed by `why`."""

    @abstractmethod
    def end(self) -> None:
        """End this half after the worker and its transport are closed: no bytes move any more."""

    @abstractmethod
    def inspected(self) -> Inspection:
        """Return the state of this half."""

    def ending(self) -> None:
        """End the threads that this half began, before the program ends."""
        return

    def raise_exits(self) -> None:
        """Raise an exception that ends the program and came from the caller's code, once all other work is done."""
        if self.exits:
            with suppress(IndexError):
                raise self.exits.popleft()

    def check_open(self) -> None:
        """Check that the worker can work. Raises HandleError if it is closed or suspended, or its thread has ended."""
        self.endpoint.check_open(self.name)

    def check_taking(self) -> None:
        """Check that the worker takes new requests. Raises HandleError as `check_open`, DrainingError if it drains."""
        self.check_open()
        if self.endpoint.drains:
            raise DrainingError(f"{self.name} drains and takes nothing new: ask another engine")

    def overdue(self) -> bool:
        """Whether the worker drains and its deadline has passed: all that is still in progress must end now."""
        return self.endpoint.drains and self.clock() >= self.endpoint.drain_end


class Endpoint:
    """The endpoint of worker number `worker`. `name` appears in its errors and in the name of its thread.

    The stage has `stage_bytes`, 0 for no stage. Only the owner touches what the endpoint has.
    """

    def __init__(
        self,
        name: str,
        worker: int,
        pool: Pool,
        transport: Transport,
        keys: Keys | Plain,
        stage_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self.name, self.worker, self.pool, self.transport, self.clock = name, worker, pool, transport, clock
        self.keys = keys
        self.closed = self.asleep = self.under_way = self.drains = False
        # Once it drains: when all that is in progress must end, by `clock`.
        self.drain_end = math.inf
        # Registrations of the memory since the first one.
        self.generation = 0
        self.halves = tuple[Half, ...]()
        self.server: ControlServer | None = None
        # The addresses of all workers of this engine, in the plan's order, once they are announced.
        self.addresses = tuple[str, ...]()
        self.stage: Stage
        self.metadata = b""
        # Peers that a half no longer needs. They stay here until no half needs them and the transport has removed them.
        self.unneeded_peers = set[str]()
        self._stage_bytes = stage_bytes
        self.owner = Owner(name, Duties(self._step, self._look, self._say, self._after, self._ending))

    def listen(self, bind: str) -> ControlServer:
        """Answer peers at `bind`. Raises HandshakeError or KeysError."""
        self.server = ControlServer(bind, self.keys)
        self.server.gather()
        return self.server

    def join(self, half: Half) -> None:
        """Add a half. The first one registers the memory. Raises RegisterError, and what `_register` raises."""
        half.accept(self.pool)
        if not self.halves:
            self._register()
        half.begin()
        self.halves = (*self.halves, half)

    def _register(self) -> None:
        """Register the memory and make the stage. Raises LimitedError if its size is invalid, and transport errors."""
        geometry = self.pool.geometry
        self.stage = Stage(self._stage_bytes, self.transport, geometry, self.owner.sleep.wake)
        for mem_type, regions in geometry.by_type():
            self.transport.register(regions, mem_type)
        # Taken before a stage is registered, so that it covers the pool alone. `with_stage` adds a stage that is lent.
        self.metadata = self.transport.metadata()

    def links(
        self, plan: Plan, workers: tuple[int, int], peer: str, remote: Geometry, stage: PeerStage, *, push: bool
    ) -> PreparedLinks:
        """Return the prepared links of a plan between `workers`, (prefill, decode); one of them is the peer.

        `remote` is the memory of the peer, `peer` its name in the transport, `stage` its stage. Links write to the peer
        if `push`, and read from it otherwise.
        """
        own, transport = self.pool.geometry, self.transport
        geometries = (own, remote) if push else (remote, own)
        ends = PreparedLink(*workers, peer, push, *geometries, stage=self.stage, peer_stage=stage)
        return PreparedLinks(lambda layers: link(plan, replace(ends, layers=layers), transport))

    def drain(self, timeout: float) -> None:
        """Accept nothing new in any half. A second call only moves the deadline. Raises BadRequestError."""
        self.drain_end = self.clock() + seconds(timeout, BadRequestError)
        self.drains = True

    def drained(self) -> bool:
        """Whether the worker drains and no half has anything left."""
        return self.drains and not any(half.busy for half in self.halves)

    def suspend(self) -> None:
        """Drop every peer and deregister the memory. Raises HandleError while the memory is in use."""
        if used := next(filter(None, (half.in_use() for half in self.halves)), ""):
            raise HandleError(used)
        for half in self.halves:
            half.drop_all("was suspended")
        self.asleep = True
        self.transport.deregister()
        self.stage.close()

    def resume(self, pool: Pool) -> None:
        """Register memory again after `suspend`. Peers must be met again. Raises HandleError, and as `join`."""
        if self.closed or not self.asleep:
            raise HandleError(f"{self.name} is not suspended: call suspend first")
        for half in self.halves:
            half.accept(pool)
        self.generation += 1
        self.pool = pool
        self._register()
        for half in self.halves:
            half.begin()
        self.asleep = self.drains = False

    def close(self) -> None:
        """Fail running requests, drop all peers and close everything, in the last turn. A second call does nothing."""
        if self.closed:
            return
        with ExitStack() as last:
            if self.server is not None:
                last.callback(self.server.close)
            for half in self.halves:
                last.callback(half.end)
            last.callback(self.stage.close)
            last.callback(self.transport.close)
            for half in self.halves:
                half.say()
            self.closed = True
            for half in self.halves:
                last.callback(half.drop_all, "was closed")
                for forget in half.gauges:
                    last.callback(forget)

    def check_not_closed(self, name: str) -> None:
        """Raises HandleError that names the half `name`, if the worker is closed or belongs to another process."""
        if self.owner.over:
            raise HandleError(f"{name} is of another process, or of a program that ends: make one here")
        if self.closed:
            raise HandleError(f"{name} is closed: make a new one")

    def check_open(self, name: str) -> None:
        """Raises HandleError as `check_not_closed`, and if the worker is suspended or its thread has ended."""
        self.check_not_closed(name)
        self.owner.thread.check_alive(name)
        if self.asleep:
            raise HandleError(f"{name} is suspended: resume it")

    def inspected(self, half: Half, now: float) -> Inspection:
        """Return the state of the endpoint. The `half` adds its own."""
        return Inspection(
            name=half.name,
            now=now,
            transport=self.transport.name,
            peers=frozenset(self.transport.peers),
            met=frozenset(self.unneeded_peers.union(*(one.peers() for one in self.halves))),
            stage=self.stage.inspected(),
            connections=() if self.server is None else self.server.lines.connections(),
        )

    def _forget(self) -> None:
        """Remove peers that no half needs from the transport."""
        for peer in sorted(self.unneeded_peers.difference(*(half.peers() for half in self.halves))):
            self.unneeded_peers.discard(peer)
            try:
                self.transport.remove_peer(peer)
            except TransportError as error:
                logs.event(logs.WARNING, "removal failed", peer=peer, error=error)

    def progress(self, who: str) -> int:
        """Let the transport make progress. Return how many messages came through it; peers never send any."""
        try:
            return self.transport.progress()
        except TransportError as error:
            logs.event(logs.WARNING, "progress failed", worker=who, error=error)
            return 0

    def _step(self) -> bool:
        """Carry out one step of every half. Return whether bytes move."""
        enter(self.pool.geometry)
        self.under_way = any(_each([half.step for half in self.halves]))
        return self.under_way and any(half.moving() for half in self.halves)

    def _look(self) -> tuple[list[int], float]:
        if self.closed:
            return [], QUIET
        seen = [half.look() for half in self.halves]
        return [one for wakers, _ in seen for one in wakers], min((seconds for _, seconds in seen), default=QUIET)

    def _say(self) -> None:
        for half in self.halves:
            half.say()
        if self.unneeded_peers:
            self._forget()

    def _after(self) -> None:
        _each([half.after for half in self.halves])

    def _ending(self) -> None:
        for half in self.halves:
            half.ending()


def _each(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls and return their results. Every call is made even if one raises; the last error is raised then."""
    if len(calls) == 1:
        return [calls[0]()]
    results, failed = list[T](), None
    for call in calls:
        try:
            results.append(call())
        except BaseException as error:
            failed = error
    if failed is not None:
        raise failed
    return results
