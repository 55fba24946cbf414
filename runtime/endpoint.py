"""Endpoint: what one worker has once, whatever it does. Its halves, which prefill and decode, are built over it.

It has the memory, registered once, one transport, one stage, one owner, and one server if it prefills. It is drained,
suspended, resumed and closed as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from kvplan.runtime.control.channel import PROBE, ControlServer
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.errors import HandleError, TransportError
from kvplan.runtime.inspection import ConnectionState
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.owner import Duties, Owner
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.wakeup import QUIET

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Half:
    """What a half does of the endpoint's work, as its owner calls it.

    `accept` raises RegisterError for memory that the half cannot use. Once that is registered, the half is to `begin`
    from scratch. `poll` is a step: whether there was anything to do, or is anything under way. `moving` says whether
    bytes may be on their way: there is no descriptor to wait for them. `look` says what to wait for, and for how many
    seconds at most. `say` says what is to be said to peers. `after` a call comes what belongs to the caller, which may
    call any worker. `uses` says whether the transport has to know a peer.

    `unused` raises HandleError if the memory cannot be given back now. `drain` has it take nothing new, and end what
    is under way after some seconds; `drained` says whether nothing is left. `leave` drops every peer, with what follows
    the half's name in errors. When the transport is closed it has `closed`. `ending` ends the threads that it began,
    as the program ends.
    """

    accept: Callable[[Pool], None]
    begin: Callable[[], None]
    poll: Callable[[], bool]
    moving: Callable[[], bool]
    look: Callable[[], tuple[list[int], float]]
    say: Callable[[], None]
    after: Callable[[], None]
    uses: Callable[[str], bool]
    unused: Callable[[], None]
    drain: Callable[[float], None]
    drained: Callable[[], bool]
    leave: Callable[[str], None]
    closed: Callable[[], None]
    ending: Callable[[], None]


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
        self.closed = self.asleep = self.under_way = False
        # Registrations of the memory since the first one.
        self.generation = 0
        self.halves = tuple[Half, ...]()
        self.server: ControlServer | None = None
        # Where all workers of this engine answer, in the plan's order, once that is announced.
        self.addresses = tuple[str, ...]()
        self.stage: Stage
        self.metadata = b""
        self._stage_bytes = stage_bytes
        duties = Duties(self._step, self._look, self._say, self._after, self._behind, self._help, self._ending)
        self.owner = Owner(name, duties)

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
        self.stage = Stage(self._stage_bytes, self.transport, geometry, self.owner.wake)
        self.transport.register(geometry.regions, geometry.mem_type)
        # Before a stage is registered: nobody else reads or writes that.
        self.metadata = self.transport.metadata()

    def drain(self, timeout: float) -> None:
        """Have every half take nothing new."""
        for half in self.halves:
            half.drain(timeout)

    def drained(self) -> bool:
        """Whether every half drains, and nothing is left."""
        return all(half.drained() for half in self.halves)

    def suspend(self) -> None:
        """Give the memory back: every peer is dropped, every registration ended. Raises HandleError while in use."""
        for half in self.halves:
            half.unused()
        for half in self.halves:
            half.leave("was suspended")
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
        self.asleep = False

    def close(self) -> None:
        """The last turn: running requests fail, peers lose this worker. Once more does nothing."""
        if self.closed:
            return
        with ExitStack() as last:
            if self.server is not None:
                last.callback(self.server.close)
            for half in self.halves:
                last.callback(half.closed)
            last.callback(self.stage.close)
            last.callback(self.transport.close)
            for half in self.halves:
                half.say()
            self.closed = True
            for half in self.halves:
                last.callback(half.leave, "was closed")

    def connections(self) -> tuple[ConnectionState, ...]:
        """The connections with peers, of both halves; none where there is no server."""
        return () if self.server is None else self.server.connections()

    def needs(self, peer: str) -> bool:
        """Whether any half needs the transport to know a peer."""
        return any(half.uses(peer) for half in self.halves)

    def progress(self, who: str) -> int:
        """Let the transport make progress: how many messages came through it, which nobody sends."""
        try:
            return self.transport.progress()
        except TransportError as error:
            logs.event(logs.WARNING, "progress failed", worker=who, error=error)
            return 0

    def _step(self) -> bool:
        """One step of every half. Whether bytes move."""
        self.under_way = any(_each(half.poll for half in self.halves))
        return self.under_way and any(half.moving() for half in self.halves)

    def _look(self) -> tuple[list[int], float]:
        if self.closed:
            return [], QUIET
        seen = [half.look() for half in self.halves]
        if self.server is not None and self.server.doubts:
            seen.append(([], PROBE))
        return [one for wakers, _ in seen for one in wakers], min((seconds for _, seconds in seen), default=QUIET)

    def _say(self) -> None:
        for half in self.halves:
            half.say()

    def _after(self) -> None:
        _each(half.after for half in self.halves)

    def _behind(self) -> bool:
        """Whether a copy of the stage waits that no thread has begun, on a machine of few cores."""
        return self.stage.behind

    def _help(self) -> None:
        """Make such a copy."""
        self.stage.help()

    def _ending(self) -> None:
        for half in self.halves:
            half.ending()


def _each(calls: Iterable[Callable[[], T]]) -> list[T]:
    """What each of the calls returns. One that raises keeps no other from being made; then the last error is raised."""
    results, failed = list[T](), None
    for call in calls:
        try:
            results.append(call())
        except BaseException as error:
            failed = error
    if failed is not None:
        raise failed
    return results
