"""Endpoint: what one worker has once, whatever it does. Its halves, which prefill and decode, are built over it.

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
from kvplan.runtime.transfer.prepare import PreparedLink, PreparedLinks, link
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.wakeup import QUIET

T = TypeVar("T")


class Half(ABC):
    """One role of a worker, over an endpoint that the other role's half may share. The worker's owner calls it."""

    def __init__(self, role: str, endpoint: Endpoint) -> None:
        self.name, self.endpoint, self.clock = f"{role} worker {endpoint.worker}", endpoint, endpoint.clock
        self.owner, self.exits = endpoint.owner, deque[BaseException]()
        # Each has a gauge forgotten.
        self.gauges: list[Callable[[], None]] = []

    @abstractmethod
    def accept(self, pool: Pool) -> None:
        """Raises RegisterError if this half cannot use the memory."""

    @abstractmethod
    def begin(self) -> None:
        """The memory is registered: nobody is met, and nothing is in progress."""

    @abstractmethod
    def step(self) -> bool:
        """One step. Whether there was anything to do, or is anything in progress."""

    @abstractmethod
    def moving(self) -> bool:
        """Whether bytes may be on their way: there is no descriptor to wait for them."""

    @abstractmethod
    def look(self) -> tuple[list[int], float]:
        """What to wait for until the next step, and for how many seconds at most."""

    @abstractmethod
    def say(self) -> None:
        """At the end of a call: say what is to be said to peers."""

    @abstractmethod
    def after(self) -> None:
        """After a call: what belongs to the caller, which may call any worker."""

    @abstractmethod
    def peers(self) -> set[str]:
        """The peers that this half needs the transport to know, by its names."""

    @abstractmethod
    def in_use(self) -> str:
        """Why the memory cannot be given back now, empty if it can."""

    @abstractmethod
    def drop_all(self, why: str) -> None:
        """Drop every peer; `why` follows this half's name in what its requests end with."""

    @abstractmethod
    def end(self) -> None:
        """The worker is closed, and its transport: nothing moves any more."""

    @abstractmethod
    def inspected(self) -> Inspection:
        """The state of this half."""

    def ending(self) -> None:
        """The program ends: threads that this half began are to end before."""
        return

    def raise_exits(self) -> None:
        """Raise what ends a program and came from the caller's code, now that all else was done."""
        if self.exits:
            with suppress(IndexError):
                raise self.exits.popleft()

    def check_open(self) -> None:
        """Raises HandleError if the worker is closed or suspended, or nobody carries out its work."""
        self.endpoint.check_open(self.name)

    def check_taking(self) -> None:
        """Raises HandleError as `check_open`, DrainingError once the worker drains."""
        self.check_open()
        if self.endpoint.drains:
            raise DrainingError(f"{self.name} drains and takes nothing new: ask another engine")

    def overdue(self) -> bool:
        """Whether the worker drains, and what is still in progress has to end now."""
        return self.endpoint.drains and self.clock() >= self.endpoint.drain_end


class Endpoint:
    """The endpoint of worker number `worker`. `name` is how its owner, its thread and its errors call it.

    `stage_bytes` are for what plans stage, 0 for no stage. What it has is its owner's alone.
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
        # When what is in progress has to end, once it drains, by its clock.
        self.drain_end = math.inf
        # Registrations of the memory since the first one.
        self.generation = 0
        self.halves = tuple[Half, ...]()
        self.server: ControlServer | None = None
        # Where all workers of this engine answer, in the plan's order, once that is announced.
        self.addresses = tuple[str, ...]()
        self.stage: Stage
        self.metadata = b""
        # Peers that a half needs no more, until no other half does and the transport has forgotten them.
        self.unneeded_peers = set[str]()
        self._stage_bytes = stage_bytes
        self.owner = Owner(name, Duties(self._step, self._look, self._say, self._after, self._ending))

    def listen(self, bind: str) -> ControlServer:
        """Answer peers at `bind`. Raises HandshakeError or KeysError."""
        self.server = ControlServer(bind, self.keys)
        self.server.gather()
        return self.server

    def join(self, half: Half) -> None:
        """Take a half over this memory, which is registered with the first one. Raises as `register`."""
        half.accept(self.pool)
        if not self.halves:
            self._register()
        half.begin()
        self.halves = (*self.halves, half)

    def _register(self) -> None:
        """Raises what the transport raises, and LimitedError for a stage of no size."""
        geometry = self.pool.geometry
        self.stage = Stage(self._stage_bytes, self.transport, geometry, self.owner.sleep.wake)
        for mem_type, regions in geometry.by_type():
            self.transport.register(regions, mem_type)
        # Before a stage is registered: nobody else reads or writes that.
        self.metadata = self.transport.metadata()

    def links(
        self, plan: Plan, workers: tuple[int, int], peer: str, remote: Geometry, stage: PeerStage, *, push: bool
    ) -> PreparedLinks:
        """The ways by a plan between `workers`, (prefill, decode), to the memory `remote` of the one that is a peer.

        The transport knows it as `peer`, whose `stage` is used, too. It is written with `push`, and read otherwise.
        """
        own, transport = self.pool.geometry, self.transport
        geometries = (own, remote) if push else (remote, own)
        ends = PreparedLink(*workers, peer, push, *geometries, stage=self.stage, peer_stage=stage)
        return PreparedLinks(lambda layers: link(plan, replace(ends, layers=layers), transport))

    def drain(self, timeout: float) -> None:
        """Take nothing new in any half. A second call only moves the deadline. Raises BadRequestError."""
        self.drain_end = self.clock() + seconds(timeout, BadRequestError)
        self.drains = True

    def drained(self) -> bool:
        """Whether every half drains, and nothing is left."""
        return self.drains and not any(half.in_use() for half in self.halves)

    def suspend(self) -> None:
        """Give the memory back: every peer is dropped, every registration ended. Raises HandleError while in use."""
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
        """The last turn: running requests fail, peers lose this worker. Once more does nothing."""
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
        """Raises HandleError, of the half called `name`, if the worker is closed or not of this process."""
        if self.owner.over:
            raise HandleError(f"{name} is of another process, or of a program that ends: make one here")
        if self.closed:
            raise HandleError(f"{name} is closed: make a new one")

    def check_open(self, name: str) -> None:
        """Raises HandleError, too, if the worker is suspended, or its thread has ended."""
        self.check_not_closed(name)
        self.owner.thread.check_alive(name)
        if self.asleep:
            raise HandleError(f"{name} is suspended: resume it")

    def inspected(self, half: Half, now: float) -> Inspection:
        """The state of the endpoint, to which its `half` adds its own."""
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
        """Let the transport forget the unneeded peers that no half needs."""
        for peer in sorted(self.unneeded_peers.difference(*(half.peers() for half in self.halves))):
            self.unneeded_peers.discard(peer)
            try:
                self.transport.remove_peer(peer)
            except TransportError as error:
                logs.event(logs.WARNING, "removal failed", peer=peer, error=error)

    def progress(self, who: str) -> int:
        """Let the transport make progress: how many messages came through it, which nobody sends."""
        try:
            return self.transport.progress()
        except TransportError as error:
            logs.event(logs.WARNING, "progress failed", worker=who, error=error)
            return 0

    def _step(self) -> bool:
        """One step of every half. Whether bytes move."""
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
    """What each of the calls returns. One that raises keeps no other from being made; then the last error is raised."""
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
