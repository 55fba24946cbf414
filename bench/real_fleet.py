"""A real fleet: prefill and decode engines of one worker each, as processes of this machine over NIXL.

Prefill holds all requests from the beginning. Decode has each moved as soon as it is due and there are blocks for it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kvplan.demo.processes import WorkerHandle, WorkerPipe
    from kvplan.runtime import DecodeWorker, Identity, Keys, Transfer

# Engines of either kind, and blocks of the pool of each.
ENGINES, BLOCKS = 2, 256
SECONDS, AHEAD = 60.0, 0.5
SCHEDSTAT = "/proc/{}/schedstat"


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A request of the fleet: its due time, in seconds from the beginning, its tokens, its prefill engine."""

    name: str
    at: float
    tokens: int
    prefill: int


@dataclass(frozen=True, slots=True)
class Moved:
    """The times at which a request was submitted and had arrived, in seconds from the beginning."""

    submitted: float
    arrived: float


@dataclass(frozen=True, slots=True)
class FleetRun:
    """All requests of one run, and the share of the time in which decode had a core when it needed one to move."""

    moved: tuple[Moved, ...]
    share: float


@dataclass(frozen=True, slots=True)
class CoreTime:
    """Nanoseconds that a process' first thread has run, and that it has waited for a core."""

    run: int = 0
    waited: int = 0

    def __add__(self, other: CoreTime) -> CoreTime:
        return CoreTime(self.run + other.run, self.waited + other.waited)

    def __sub__(self, other: CoreTime) -> CoreTime:
        return CoreTime(self.run - other.run, self.waited - other.waited)


def run_once(decodes: Sequence[WorkerHandle], schedule: Sequence[Sequence[FleetRequest]]) -> FleetRun:
    """Run one schedule on the decode engines, which begin at the same time."""
    begin = time.monotonic() + AHEAD
    for engine, requests in zip(decodes, schedule, strict=True):
        engine.tell((begin, requests))
    answers = [engine.hear(time.monotonic() + SECONDS) for engine in decodes]
    moved = [each for some, _ in answers for each in some]
    cores = sum((busy for _, busy in answers), CoreTime())
    return FleetRun(tuple(moved), cores.run / (cores.run + cores.waited))


def working() -> float:
    """Return seconds by a clock that stops while this thread waits for a core."""
    return time.perf_counter() - core_time().waited / 1e9


def core_time() -> CoreTime:
    """Return the core time of this process' first thread so far."""
    run, waited, _ = Path(SCHEDSTAT.format("self")).read_text().split()
    return CoreTime(int(run), int(waited))


@contextmanager
def real_fleet(path: str, schedules: Iterable[list[list[FleetRequest]]]) -> Iterator[list[WorkerHandle]]:
    """Start decode engines, each a process, which have met the prefill engines and follow orders."""
    from kvplan.calibrate.peers import ServedPair, serve
    from kvplan.demo.processes import Processes
    from kvplan.demo.run import engines

    held = tuple(each.name for schedule in schedules for requests in schedule for each in requests)
    served = (ServedPair(path, BLOCKS, held),)
    who = engines(*(f"{role}-{number}" for role in ("prefill", "decode") for number in range(ENGINES)))
    with Processes() as crew:
        prefills = [crew.start(f"prefill-{n}", serve, served, "DRAM", *who[f"prefill-{n}"]) for n in range(ENGINES)]
        addresses = [each.hear(time.monotonic() + SECONDS)[0] for each in prefills]
        keys = [who[f"prefill-{n}"][1].public for n in range(ENGINES)]
        peers = list(zip(addresses, keys, strict=True))
        decodes = [crew.start(f"decode-{n}", read, path, peers, *who[f"decode-{n}"]) for n in range(ENGINES)]
        for each in decodes:
            each.hear(time.monotonic() + SECONDS)
        yield decodes


def read(line: WorkerPipe, path: str, peers: Sequence[tuple[str, bytes]], identity: Identity, keys: Keys) -> None:
    """Run a decode engine that follows orders: a beginning, and requests from then on."""
    from kvplan.calibrate.memories import memory_of
    from kvplan.calibrate.peers import arrays, room
    from kvplan.runtime import DecodeWorker, Nixl, load_plan, views

    plan = load_plan(path)
    pool = views(plan.decode, 0, arrays(plan.decode, BLOCKS, memory_of("DRAM").allocate(room(plan.decode, BLOCKS))))
    worker = DecodeWorker(plan, 0, pool, Nixl(identity.name), identity=identity, keys=keys)
    names = [worker.connect(address, SECONDS, key=key).name for address, key in peers]
    line.say(names)
    while True:
        begin, requests = line.listen(SECONDS * 60)
        reading = Reading(worker, names, begin)
        line.say((reading.run(requests), reading.busy))


class Reading:
    """One decode engine while its requests move, each as soon as it is due and there are blocks for it.

    `busy` is its core time while any was in progress: between them it polls in vain.
    """

    def __init__(self, worker: DecodeWorker, peers: Sequence[str], begin: float) -> None:
        self._worker, self._peers, self._begin = worker, peers, begin
        (self._group,) = (group for group in worker.peers()[0].plan.decode.groups)
        self._random = np.random.default_rng(5)
        self._free = self._random.permutation(BLOCKS).tolist()
        self._running: dict[Transfer, tuple[float, list[int]]] = {}
        self._moved: list[Moved] = []
        self.busy = self._before = CoreTime()

    def run(self, requests: Sequence[FleetRequest]) -> list[Moved]:
        waiting = deque(requests)
        while waiting or self._running:
            self._submit(waiting)
            self._worker.run_once()
            self._collect()
            due = waiting[0].at - self._now() if waiting else 1.0
            self._worker.rest(max(0.0, min(1e-3, due) if due > 0 else 1e-3))
        return self._moved

    def _now(self) -> float:
        return time.monotonic() - self._begin

    def _submit(self, waiting: deque[FleetRequest]) -> None:
        from kvplan.runtime import Blocks, Request

        while waiting and waiting[0].at <= self._now():
            count = -(-waiting[0].tokens // self._group.tokens)
            if count > len(self._free):
                return
            due, ids = waiting.popleft(), [self._free.pop(0) for _ in range(count)]
            source = self._random.permutation(BLOCKS)[:count].astype(np.int64)
            prefill, decode = ({self._group.name: Blocks(0, np.array(each, np.int64))} for each in (source, ids))
            if not self._running:
                self._before = core_time()
            submitted = self._now()
            transfer = self._worker.submit(
                Request(due.name, (0, due.tokens), prefill, decode), SECONDS, peer=self._peers[due.prefill]
            )
            self._running[transfer] = submitted, ids

    def _collect(self) -> None:
        for transfer in [transfer for transfer in self._running if transfer.ended]:
            transfer.wait()
            submitted, ids = self._running.pop(transfer)
            self._free += ids
            self._moved.append(Moved(submitted, self._now()))
            if not self._running:
                self.busy += core_time() - self._before
