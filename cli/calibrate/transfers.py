"""Transfers between two processes: a prefill worker of each pair in one, decode workers in this one."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvplan.cli.calibrate import pairs as timed
from kvplan.cli.calibrate.memories import memory_of
from kvplan.cli.calibrate.pairs import TimedPair
from kvplan.cli.demo.processes import Processes, WorkerPipe
from kvplan.cli.demo.run import engines

if TYPE_CHECKING:
    from kvplan.runtime import DecodeWorker, Identity, Keys, Peer

SECONDS, LEASE, PAUSE = 30.0, 600.0, 0.05
# Slices that the first pair is cut into where slices are timed.
SLICES = 16


@dataclass(frozen=True, slots=True)
class MovedTransfer:
    """What one transfer moved, and how long it took from submit to done."""

    requests: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TransferCase:
    """A sort of transfer: a decode worker that has met its peer, how many blocks it asks for, in how many slices."""

    name: str
    worker: DecodeWorker
    peer: Peer
    blocks: int
    slices: int

    @property
    def mode(self) -> str:
        """Who moves the bytes: `pull` or `push`."""
        return self.peer.mode

    def run(self, turn: int) -> MovedTransfer:
        """Move a request that prefill holds for this turn. Raises TransferError."""
        wanted = timed.request(self.peer.plan, self.blocks, f"{self.name}-{turn}")
        began = time.perf_counter()
        moved = self.worker.submit(wanted, SECONDS).wait()
        seconds = time.perf_counter() - began
        return MovedTransfer(moved.requests, sum(part.expected for part in moved.parts), seconds)


@contextmanager
def connected(pairs: Sequence[TimedPair], mem_type: str, turns: int) -> Iterator[list[TransferCase]]:
    """What there is to time, each `turns` times, with the processes that it takes.

    Raises NixlMissingError, BadInput (S031), and ProcessError where the other process ends.
    """
    from kvplan.runtime.transport.nixl import api

    api()
    memory = memory_of(mem_type).allocate(timed.room(pairs))
    who = engines()
    with Processes() as crew, ExitStack() as stack:
        member = crew.start("prefill", serve, tuple(pairs), mem_type, turns, *who["prefill"])
        addresses = member.hear(time.monotonic() + SECONDS)
        cases = []
        for number, pair in enumerate(pairs):
            for name, blocks, slices in _sorts(number, pair):
                worker = _decode(pair, memory, slices, *who["decode"])
                stack.callback(worker.close)
                cases.append(TransferCase(name, worker, worker.connect(addresses[number], SECONDS), blocks, slices))
        yield cases


def _sorts(number: int, pair: TimedPair) -> list[tuple[str, int, int]]:
    """What is timed of a pair, as (name, blocks, slices): of the first one a single block and slices, too."""
    whole = f"pair-{number}", pair.blocks, 1
    return [whole] if number else [whole, (f"block-{number}", 1, 1), (f"slices-{number}", pair.blocks, SLICES)]


def serve(
    line: WorkerPipe, pairs: Sequence[TimedPair], mem_type: str, turns: int, identity: Identity, keys: Keys
) -> None:
    """A prefill worker of each pair, all over one memory, that holds what is asked for; until the parent is gone."""
    from kvplan.runtime import Nixl, PrefillWorker, load_plan, views

    memory, workers = memory_of(mem_type).allocate(timed.room(pairs)), []
    for number, pair in enumerate(pairs):
        plan = load_plan(pair.path)
        pool = views(plan.prefill, 0, timed.planes_of(plan.prefill, pair.blocks, memory))
        worker = PrefillWorker(plan, 0, pool, Nixl("prefill"), identity=identity, keys=keys, lease=LEASE)
        for name, _, _ in _sorts(number, pair):
            for turn in range(turns):
                worker.hold(f"{name}-{turn}")
        worker.announce([worker.address])
        workers.append(worker)
    line.say([worker.address for worker in workers])
    while not line.waiting():
        select.select([line.pipe.fileno(), *(worker.fileno() for worker in workers)], [], [], PAUSE)
        for worker in workers:
            worker.poll()
    for worker in workers:
        worker.close()


def _decode(pair: TimedPair, memory: Any, slices: int, identity: Identity, keys: Keys) -> DecodeWorker:
    from kvplan.runtime import DecodeWorker, Limits, Nixl, load_plan, views

    plan = load_plan(pair.path)
    planes = timed.planes_of(plan.decode, pair.blocks, memory)
    (size,) = (plane.nbytes for plane in planes.values())
    limits = Limits(slice_bytes=size // slices) if slices > 1 else Limits()
    pool = views(plan.decode, 0, planes)
    return DecodeWorker(plan, 0, pool, Nixl("decode"), identity=identity, keys=keys, limits=limits)
