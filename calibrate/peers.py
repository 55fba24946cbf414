"""Two processes: prefill workers of some pairs in one, over one memory, decode workers in this one, over another."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvplan.calibrate.memories import memory_of
from kvplan.demo.processes import Processes, WorkerPipe
from kvplan.demo.run import engines
from kvplan.plan import planes as names
from kvplan.plan.files.loader import load_plan

if TYPE_CHECKING:
    from kvplan.plan.types import Side
    from kvplan.runtime import DecodeWorker, Identity, Keys, Limits, Peer

SECONDS, LEASE, PAUSE = 30.0, 3600.0, 0.05


@dataclass(frozen=True, slots=True)
class ServedPair:
    """Worker 0 of both sides of the plan at `path`: the blocks of either pool, and the requests that prefill holds."""

    path: str
    blocks: int
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairReaders:
    """A maker of decode workers for the pairs, with what they need, and `stack`, which closes them."""

    pairs: Sequence[ServedPair]
    addresses: Sequence[str]
    memory: Any
    identity: Identity
    keys: Keys
    stack: ExitStack

    def reader(self, number: int, limits: Limits | None = None, mode: str = "auto") -> tuple[DecodeWorker, Peer]:
        """Return a decode worker of a pair by number, and its peer, which it has met. `mode` is that of `connect`."""
        from kvplan.runtime import DecodeWorker, Nixl, views

        pair = self.pairs[number]
        plan = load_plan(pair.path)
        pool = views(plan.decode, 0, arrays(plan.decode, pair.blocks, self.memory))
        worker = DecodeWorker(plan, 0, pool, Nixl("decode"), identity=self.identity, keys=self.keys, limits=limits)
        self.stack.callback(worker.close)
        return worker, worker.connect(self.addresses[number], SECONDS, mode=mode)


@contextmanager
def served(pairs: Sequence[ServedPair], mem_type: str) -> Iterator[PairReaders]:
    """Start the other process; yield readers. Raises NixlMissingError, BadInput (S031), ProcessError."""
    from kvplan.runtime.transport.nixl import api

    api()
    memory = memory_of(mem_type).allocate(max(room(load_plan(pair.path).decode, pair.blocks) for pair in pairs))
    who = engines("prefill", "decode")
    with Processes() as crew, ExitStack() as stack:
        member = crew.start("prefill", serve, tuple(pairs), mem_type, *who["prefill"])
        yield PairReaders(pairs, member.hear(time.monotonic() + SECONDS), memory, *who["decode"], stack)


def serve(line: WorkerPipe, pairs: Sequence[ServedPair], mem_type: str, identity: Identity, keys: Keys) -> None:
    """Run prefill workers, which hold noise for all requests, until the parent ends."""
    from kvplan.runtime import Nixl, PrefillWorker, views

    plans, workers = [load_plan(pair.path) for pair in pairs], []
    sizes = [room(plan.prefill, pair.blocks) for plan, pair in zip(plans, pairs, strict=True)]
    kind = memory_of(mem_type)
    memory, filled = kind.noise(max(sizes)), kind.event()
    for plan, pair in zip(plans, pairs, strict=True):
        pool = views(plan.prefill, 0, arrays(plan.prefill, pair.blocks, memory))
        worker = PrefillWorker(plan, 0, pool, Nixl(identity.name), identity=identity, keys=keys, lease=LEASE)
        for request in pair.requests:
            worker.hold(request, after=filled)
        worker.announce([worker.address])
        workers.append(worker)
    line.say([worker.address for worker in workers])
    while not line.waiting():
        select.select([line.pipe.fileno()], [], [], PAUSE)
    for worker in workers:
        worker.close()


def room(side: Side, blocks: int, worker: int = 0) -> int:
    """Return the bytes of `blocks` blocks of each plane of a worker."""
    return sum(size for _, _, size in sizes(side, blocks, worker))


def arrays(side: Side, blocks: int, memory: Any) -> dict[str, Any]:
    """Return worker 0's planes, one behind the other in `memory`: flat bytes of numpy's or torch's."""
    views, at = {}, 0
    for name, stride, size in sizes(side, blocks):
        views[name] = memory[at : at + size].reshape(-1, stride)
        at += size
    return views


def sizes(side: Side, blocks: int, worker: int = 0) -> list[tuple[str, int, int]]:
    """Return each plane's name, the bytes from a block to the next, and the bytes of `blocks` logical blocks."""
    ratios = {group.name: group.ratio for group in side.groups}
    planes = names.planes(side.workers[worker])
    return [(plane.name, plane.stride, blocks * ratios[plane.group] * plane.stride) for plane in planes]
