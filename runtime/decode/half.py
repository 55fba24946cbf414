"""Decode half: the steps of a worker's decode role. The worker's owner calls it."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.runtime import owner
from kvplan.runtime.checksum.checksum import Sample
from kvplan.runtime.decode.driver import DecodeDriver
from kvplan.runtime.decode.engine_table import EngineTable
from kvplan.runtime.decode.meetings import Meetings, WantedPeer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.endpoint import Endpoint, Half
from kvplan.runtime.errors import DrainingError, RegisterError, TransferError, cause_text
from kvplan.runtime.inspection import Inspection, PartState, RequestState
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.protocol.load_table import LoadTable
from kvplan.runtime.protocol.loads import Load, LoadPart
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.wakeup import BUSY, MOVING, QUIET


class DecodeHalf(Half):
    """The decode role over an endpoint, whose pool is of the side with digest `side`.

    Engines without a request for `idle` seconds are dropped. `ended` are requests whose callers are not notified yet.
    """

    engines: EngineTable
    driver: DecodeDriver

    def __init__(self, endpoint: Endpoint, side: str, limits: Limits, counters: Counters, idle: float) -> None:
        super().__init__("decode", endpoint)
        self.limits, self.counters, self.meetings = limits, counters, Meetings()
        self.ended, self._telling = deque[Transfer](), threading.Lock()
        self._side, self._idle = side, idle
        # Submitted requests: transfer, engine, and the error of a bad timeout.
        self.submitted = deque[tuple[Transfer, WantedPeer, BadRequestError | None]]()

    @property
    def loads(self) -> LoadTable:
        return self.driver.core.loads

    def running(self) -> int:
        """Return how many requests are in progress, wait for their engine, or begin in the next turn."""
        return len(self.loads.running) + len(self.meetings) + len(self.submitted)

    def fail(self, load: Load, error: KvplanError) -> None:
        """End a request with an error."""
        self.driver.fail(load, error)

    def start_submitted(self) -> None:
        """Start the next submitted request, or let it wait for its engine. An error of the request ends it."""
        transfer, peer, problem = self.submitted.popleft()
        try:
            self.check_taking()
            if not isinstance(transfer.sample, Sample | None):
                raise BadRequestError(f"a checksum is a Sample or None, not of type {type(transfer.sample).__name__}")
            if not isinstance(peer, str | Future | None):
                raise BadRequestError(f"a peer is a name, or of `connect_soon`, not of type {type(peer).__name__}")
            if problem is not None:
                raise problem
            if transfer.ended:
                return
            engine = self.meetings.engine_for(transfer, peer, self.engines, self.limits.requests)
            if engine is not None:
                self.driver.start(transfer, engine)
        except KvplanError as error:
            self.driver.fail(transfer, error)
        except Exception as error:
            logs.failure("request not begun", worker=self.name)
            self.driver.fail(transfer, TransferError(f"the request was not begun: {cause_text(error)}"))

    def accept(self, pool: Pool) -> None:
        pool.check(self.endpoint.worker, self._side, self.name)
        if not pool.writable:
            raise RegisterError("the memory of a decode worker is read-only: pass writable arrays")

    def begin(self) -> None:
        self.engines = EngineTable(self.endpoint)
        shared = self.limits, self.counters, self.engines.connection, self.ended
        self.driver = self.engines.driver = DecodeDriver(self.endpoint, *shared, self.engines.forgotten)

    def step(self) -> bool:
        if self.endpoint.closed or self.endpoint.asleep:
            return False
        self._advance(self.clock())
        return self.running() > 0

    def moving(self) -> bool:
        return self.driver.moving or self.endpoint.stage.wanted

    def look(self) -> tuple[list[int], float]:
        lines = self.engines.lines
        if self.endpoint.asleep:
            return [], QUIET
        if any(line.pending() for line in lines):
            return [], 0.0
        busy = self.running() or self.loads.quarantine
        most = BUSY if busy else self.driver.core.until_heartbeat(self.clock(), QUIET)
        # Writes to this worker over TCP make progress only while it polls.
        wait = MOVING if self.moving() else most
        return [one for line in lines for one in line.filenos()], wait

    def say(self) -> None:
        for engine in self.engines.every:
            for connection in engine.connections.values():
                connection.control.flush()

    def after(self) -> None:
        """Notify callers of ended requests, one after another: one that ends in a callback is notified after it."""
        while self.ended and self._telling.acquire(blocking=False):
            try:
                with suppress(IndexError):
                    self.ended.popleft().future.set_result(None)
            finally:
                self._telling.release()
        self.raise_exits()

    def peers(self) -> set[str]:
        every = (engine.peers for engine in self.engines.every)
        return self.loads.quarantine.busy().union(*every)

    @property
    def busy(self) -> bool:
        return bool(self.meetings or self.loads.running or self.loads.quarantine)

    def in_use(self) -> str:
        if not self.busy:
            return ""
        if self.meetings:
            return f"{len(self.meetings)} requests wait until their prefill engines are met: wait, too"
        loads = self.loads
        text = f"{len(loads.running)} requests are in progress, blocks {loads.ledger.quarantined()} are in quarantine"
        return f"{self.name} cannot be suspended: {text}: wait for them"

    def drop_all(self, why: str) -> None:
        if self.endpoint.closed:
            self.meetings.refuse(self.driver, lambda who: TransferError(f"{who}: {self.name} {why}"))
        for engine in self.engines.served():
            self.engines.drop(engine, f"{self.name} {why}")
        self.driver.follow()
        self.driver.command(self.driver.core.fail_all, lambda who: TransferError(f"{who}: {self.name} {why}"))
        self.driver.sums.close()
        self.engines.reap()

    def end(self) -> None:
        self.loads.quarantine.abandon()
        self.engines.sweep()

    def ending(self) -> None:
        for meeting in self.meetings.close():
            meeting.join(owner.STOP)

    def inspected(self) -> Inspection:
        driver, engines, loads = self.driver, self.engines, self.loads
        blocks = loads.ledger.quarantined().items()
        connections = (one for engine in engines.every for one in engine.connections.values())
        by_status = {"connected": engines.live.values(), "replanned": engines.replanned, "retired": engines.retired}
        return replace(
            self.endpoint.inspected(self, self.clock()),
            peer_stages=tuple(one.stage.inspected(one.known.name) for one in connections),
            bytes_in_flight=driver.context.admission.in_flight(),
            slices=driver.context.inspected(),
            checksums=len(driver.sums),
            engines=tuple(engine.inspected(status) for status, some in by_status.items() for engine in some),
            requests=tuple(_request(load, driver) for load in loads.running.values()),
            failed=tuple(_request(load, driver) for load in loads.quarantine),
            ended=tuple(transfer.request.id for transfer in self.ended),
            written=loads.ledger.written(),
            quarantined=frozenset((arena, block) for arena, some in blocks for block in some),
        )

    def _advance(self, now: float) -> None:
        """Do one step: send, read messages, advance transfers, and do what is due."""
        # Send claims before all other work, because their requests wait for the answers.
        self.say()
        if stray := self.endpoint.progress(self.name):
            self.counters.add("messages", stray, kind=MessageKind.STRAY)
        self.engines.listen()
        self.driver.context.begin()
        self.meetings.step(self.engines, now)
        self.driver.follow()
        if self.overdue():
            late = "did not end before the worker had to drain"
            self.driver.command(self.driver.core.fail_all, lambda who: DrainingError(f"{who} {late}"))
            self.meetings.refuse(self.driver, lambda who: DrainingError(f"{who} {late}"))
        self.engines.evict(now, self._idle)
        self.driver.tick(now)
        self.engines.sweep()


def _request(load: Load, driver: DecodeDriver) -> RequestState:
    parts = tuple(_part(part, driver) for part in load.parts)
    return RequestState(load.request.id, load.engine.name, load.deadline, parts)


def _part(part: LoadPart, driver: DecodeDriver) -> PartState:
    reads = driver.reads.left(part)
    return PartState(part.worker, part.phase.name.lower(), part.hold, part.arrived, part.writes, reads)
